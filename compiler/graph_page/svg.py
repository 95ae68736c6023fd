"""A drawing as an SVG file that stands for itself: light or dark as the reader's screen, and no script."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from .assets import read_asset
from .place import HEADER, LINE_HEIGHT, PADDING, TITLE_HEIGHT, Box, Drawing, Point, heading, port_text
from .tree import Item

_TIP = (
    '<marker id="tip" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="7" markerHeight="7" '
    'markerUnits="userSpaceOnUse" orient="auto"><path class="tip" d="M0 0 6 3 0 6z"/></marker>'
)
"""The head of an arrow."""


def format_svg(drawing: Drawing, title: str) -> str:
    width, height = round(drawing.width), round(drawing.height)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="graph" {size}>',
            f"<title>{escape(title)}</title>",
            f"<style>{read_asset('graph.css')}svg {{ background: var(--paper); }}</style>",
            f"<defs>{_TIP}</defs>",
            *_drawing(drawing),
            "</svg>\n",
        ]
    )


def _drawing(drawing: Drawing) -> Iterator[str]:
    for edge in drawing.edges:
        yield f'<path class="edge" marker-end="url(#tip)" d="{_path(edge)}"/>'
    for box in drawing.boxes:
        yield from _box(box)


def _path(points: tuple[Point, ...]) -> str:
    """Down the first pair, and by a curve to each further one."""
    parts = [f"M{_point(points[0])}L{_point(points[1])}"]
    for (x0, y0), (x1, y1), end in zip(points[1::2], points[2::2], points[3::2], strict=False):
        middle = (y0 + y1) / 2
        parts.append(f"C{_point((x0, middle))} {_point((x1, middle))} {_point((x1, y1))}L{_point(end)}")
    return "".join(parts)


def _point(point: Point) -> str:
    return f"{point[0]:.1f},{point[1]:.1f}"


def _box(box: Box) -> Iterator[str]:
    item = box.item
    names = ["box", "port" if item.is_port else item.role, item.kind, "open" if box.inside is not None else ""]
    yield f'<g class="{" ".join(filter(None, names))}" transform="translate({box.x:.1f} {box.y:.1f})">'
    yield f'<rect class="frame" width="{box.width:.0f}" height="{box.height:.0f}" rx="{7 if item.body else 4}"/>'
    yield from _text(item, box.height, open=box.inside is not None)
    if box.inside is not None:
        x = (box.width - box.inside.width) / 2
        yield f'<g transform="translate({x:.1f} {HEADER})">'
        yield from _drawing(box.inside)
        yield "</g>"
    yield "</g>"


def _text(item: Item, height: float, open: bool) -> Iterator[str]:
    if item.is_port:
        yield f'<text class="line" x="{PADDING}" y="16">{escape(port_text(item))}</text>'
        return
    if item.role == "node":
        yield f'<rect class="stripe" width="4" height="{height:.0f}" rx="2"/>'
    if open:
        yield f'<text class="title" x="{PADDING}" y="20">{escape(heading(item))}</text>'
        return
    y = PADDING - 2
    if item.caption:
        yield f'<text class="caption" x="{PADDING}" y="{y + 11}">{escape(item.caption)}</text>'
        y += LINE_HEIGHT
    mark = "▸ " if item.body is not None else ""
    yield f'<text class="title" x="{PADDING}" y="{y + 13}">{mark}{escape(item.title)}</text>'
    y += TITLE_HEIGHT
    for line in item.lines:
        yield f'<text class="line" x="{PADDING}" y="{y + 11}">{escape(line)}</text>'
        y += LINE_HEIGHT
