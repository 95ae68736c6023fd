"""A drawing as a self-contained SVG file: light or dark as the reader's screen, without scripts.

Viewers other than browsers support neither variables nor mixed colours in a style sheet; attributes of the shapes give
them the light colours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from html import escape

from .assets import read_asset
from .placement import HEADER, LINE_HEIGHT, PADDING, TITLE_HEIGHT, Box, Drawing, Point, heading, port_text
from .tree import Item

_TIP = (
    '<marker id="tip" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="7" markerHeight="7" '
    'markerUnits="userSpaceOnUse" orient="auto"><path class="tip" fill="{}" d="M0 0 6 3 0 6z"/></marker>'
)
"""The head of an arrow, with a placeholder for its colour."""


_FONT = 'font-family="DejaVu Sans Mono, monospace" font-size="11"'
_TINTS = {"node": 0.13, "kernel": 0.24}
"""The share of the kind's colour in the colour of a box, as in `graph.css`."""


@cache
def _light() -> Mapping[str, str]:
    """Returns the light colours of `graph.css`, which precede the dark ones in the file."""
    return dict(reversed(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", read_asset("graph.css"))))


def _fill(item: Item, open: bool) -> str:
    paper = _light()["inside" if open else "paper"]
    if item.role not in _TINTS:
        return paper if open else _light()["block"]
    part = 0.08 if open else _TINTS[item.role]
    pairs = ((int(colour[i : i + 2], 16) for colour in (_light()[item.kind], paper)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(tint * part + ground * (1 - part)):02x}" for tint, ground in pairs)


def format_svg(drawing: Drawing, title: str) -> str:
    width, height = round(drawing.width), round(drawing.height)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="graph" {_FONT} {size}>',
            f"<title>{escape(title)}</title>",
            f"<style>{read_asset('graph.css')}svg {{ background: var(--paper); }}</style>",
            f"<defs>{_TIP.format(_light()['edge'])}</defs>",
            *_drawing(drawing),
            "</svg>\n",
        ]
    )


def _drawing(drawing: Drawing) -> Iterator[str]:
    line = f'fill="none" stroke="{_light()["edge"]}"'
    for edge in drawing.edges:
        yield f'<path class="edge" {line} marker-end="url(#tip)" d="{_path(edge)}"/>'
    for box in drawing.boxes:
        yield from _box(box)


def _path(points: tuple[Point, ...]) -> str:
    """Returns the path of an edge: a line through the first pair, and a curve to each further pair."""
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
    if not item.is_port:
        colours = f'fill="{_fill(item, box.inside is not None)}" stroke="{_light()["line"]}"'
        size = f'width="{box.width:.0f}" height="{box.height:.0f}" rx="{7 if item.body else 4}"'
        yield f'<rect class="frame" {colours} {size}/>'
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
        yield f'<rect class="stripe" fill="{_light()[item.kind]}" width="4" height="{height:.0f}" rx="2"/>'
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
