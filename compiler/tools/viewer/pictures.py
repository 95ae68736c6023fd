"""The three picture formats of a build: a page, an SVG file, DOT text. The caller handles files and options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ....passes.manager import Stage
from ...pipeline import Build
from ...report import usual_size
from ..explorer.profile import Profile
from .data import MEASURES, NODE_FIELDS, Json, PageData, Source
from .difference import add_both
from .dot import format_dot
from .page import format_page
from .place import Unfolded, draw
from .svg import format_svg
from .tree import Body, build_tree, usual_depth
from .weights import weight_data


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
    build: Build,
    dims: Mapping[str, int],
    depth: int | None = None,
    first: int = 0,
    profile: Profile | None = None,
) -> str:
    """Returns the page of a build whose graph has been optimized. It opens with stage number `first`.

    Raises DiagnosticError if the profile is of another graph.
    """
    data = PageData(_sources(build), _sizes(build, dims), depth)
    done = 0
    for stage in build.stages:
        data.add(stage, build.rewrites[done : done + stage.rewrites])
        done += stage.rewrites
    rows = {
        "first": first,
        "weights": weight_data(build.source_model),
        "remarks": [[r.function, r.pass_name, r.source, r.reader, r.text] for r in build.remarks],
        "profile": None if profile is None else data.profiled(profile),
    }
    return _format(build, data, build.source_model.module.name, rows)


def make_difference(
    builds: tuple[Build, Build],
    stages: tuple[int, int],
    names: tuple[str, str],
    dims: Mapping[str, int],
    depth: int | None = None,
) -> str:
    """Returns the page of two builds whose graphs have been optimized: a stage of each, by number."""
    first, second = builds
    data = PageData((*_sources(first), *_sources(second)), {**_sizes(first, dims), **_sizes(second, dims)}, depth)
    add_both(data, builds, stages, names)
    rows = {"first": 1, "weights": weight_data(second.source_model), "remarks": [], "profile": None}
    return _format(second, data, " and ".join(names), rows)


def _sizes(build: Build, dims: Mapping[str, int]) -> dict[str, int]:
    return {symbol.name: dims.get(symbol.name, usual_size(symbol)) for symbol in build.source_model.module.dims}


def _format(build: Build, data: PageData, title: str, rows: Mapping[str, Json]) -> str:
    return format_page(
        {
            "name": title,
            "functions": len(build.source_model.module.functions),
            "options": f"-O{build.options.level}" + " --strict" * build.options.strict,
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


def _sources(build: Build) -> Sequence[Source]:
    """Returns the texts by the file names of spans after `relative_to`."""
    file, texts = build.source_model.file, build.source_model.sources
    folder = Path(file).parent
    names = {path: str(Path(path).relative_to(folder)) if Path(path).is_relative_to(folder) else path for path in texts}
    return [Source(names[path], text) for path, text in texts.items()]
