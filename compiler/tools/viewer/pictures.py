"""The three picture formats of a build: a page, an SVG file, DOT text. The caller handles files and options."""

from __future__ import annotations

from collections.abc import Mapping

from ....passes.manager import Stage
from ...report import usual_size
from ..explorer.measured_times import Profile
from .data import MEASURES, NODE_FIELDS, Json, PageData
from .difference import add_both
from .dot import format_dot
from .drawing import Drawing
from .page import format_page
from .placement import Unfolded, draw
from .svg import format_svg
from .tree import Body, build_tree, usual_depth


def _unfolded(body: Body, depth: int | None) -> Unfolded:
    """Returns a predicate that unfolds boxes up to `depth`; by default as deep as is legible, with kernels folded."""
    if depth is not None:
        return lambda path, item: len(path) <= depth
    usual = usual_depth(body)
    return lambda path, item: len(path) <= usual and item.role != "kernel"


def make_svg(stage: Stage, depth: int | None) -> str:
    body = build_tree(stage.module)
    return format_svg(draw(body, _unfolded(body, depth)), stage.module.name)


def make_dot(stage: Stage, depth: int | None) -> str:
    body = build_tree(stage.module)
    return format_dot(body, _unfolded(body, depth), stage.module.name)


def make_page(
    drawing: Drawing,
    dims: Mapping[str, int],
    depth: int | None = None,
    first: int = 0,
    profile: Profile | None = None,
) -> str:
    """Returns the page of a drawing. It opens with stage number `first`.

    Raises DiagnosticError if the profile is of another graph.
    """
    data = PageData(drawing.sources, _sizes(drawing, dims), depth)
    done = 0
    for stage in drawing.stages:
        data.add(stage, drawing.rewrites[done : done + stage.rewrites])
        done += stage.rewrites
    rows = {
        "first": first,
        "weights": drawing.weights(),
        "remarks": [[r.function, r.pass_name, r.source, r.reader, r.text] for r in drawing.remarks],
        "profile": None if profile is None else data.profiled(profile),
    }
    return _format(drawing, data, drawing.module.name, rows)


def make_difference(
    drawings: tuple[Drawing, Drawing],
    stages: tuple[int, int],
    names: tuple[str, str],
    dims: Mapping[str, int],
    depth: int | None = None,
) -> str:
    """Returns the page of two drawings: a stage of each, by number."""
    first, second = drawings
    data = PageData((*first.sources, *second.sources), {**_sizes(first, dims), **_sizes(second, dims)}, depth)
    add_both(data, drawings, stages, names)
    rows = {"first": 1, "weights": second.weights(), "remarks": [], "profile": None}
    return _format(second, data, " and ".join(names), rows)


def _sizes(drawing: Drawing, dims: Mapping[str, int]) -> dict[str, int]:
    return {symbol.name: dims.get(symbol.name, usual_size(symbol)) for symbol in drawing.module.dims}


def _format(drawing: Drawing, data: PageData, title: str, rows: Mapping[str, Json]) -> str:
    return format_page(
        {
            "name": title,
            "functions": len(drawing.module.functions),
            "options": drawing.options,
            "dims": data.dims,
            "kernels": data.depth is not None,
            "kinds": sorted({row["kind"] for row in data.items.rows if row["kind"]}),
            "measures": MEASURES,
            "fields": NODE_FIELDS,
            "sources": [{"name": source.name, "text": source.text} for source in data.sources],
            **rows,
            "stages": data.stages,
            "grids": data.grids.rows,
            "bodies": data.bodies.rows,
            "items": data.items.rows,
            "nodes": data.nodes.rows,
        },
        title,
    )
