"""`nacre graph`: a model as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from ..files import check_writable, write_whole
from ..graph_page.layout import check_layout_package
from ..graph_page.pictures import make_dot, make_page, make_svg
from ..graphs.profile import Profile, read_profile
from ..pipeline import Build
from .options import MODEL, PATH, Chosen, build_options, check_dims, progress, read_dims

_FORMS = (".html", ".svg", ".dot")


def _check_output(context: click.Context, parameter: click.Parameter, value: Path | None) -> Path | None:
    if value is not None and value.suffix not in _FORMS:
        raise click.BadParameter(f"`{value}` is none of {', '.join(_FORMS)}")
    return value


def _number_of(build: Build, stage: str) -> int:
    """The last stage of that name; the first is `graph`."""
    names = ["graph", *(each.name for each in build.stages[1:])]
    if stage not in names:
        known = ", ".join(dict.fromkeys(names))
        raise click.BadParameter(f"there is no pass `{stage}`; there are {known}", param_hint="--stage")
    return len(names) - 1 - names[::-1].index(stage)


def _read_profile(path: Path, output: Path, dims: Mapping[str, int]) -> Profile:
    if output.suffix != ".html":
        raise click.BadParameter("only a page shows a profile", param_hint="--profile")
    if dims:
        raise click.BadParameter("a profile has the sizes that it was measured at", param_hint="--at")
    return read_profile(path)


@click.command("graph")
@MODEL
@click.option(
    "-o", "--output", type=PATH, callback=_check_output, help="A .html, .svg or .dot file.  [default: MODEL.html]"
)
@build_options
@click.option("--stage", help="The pass after which it is shown; `graph` is before any.  [default: graph in a page]")
@click.option("--depth", type=click.IntRange(0), help="How many levels of blocks are unfolded.  [default: what fits]")
@click.option("--at", "dims", metavar="B=1,T=128", callback=read_dims, help="Sizes at which a page counts costs.")
@click.option("--profile", metavar="FILE", type=PATH, help="What `nacre profile --json` measured, for a page.")
def graph_command(
    model: Path,
    output: Path | None,
    chosen: Chosen,
    stage: str | None,
    depth: int | None,
    dims: Mapping[str, int],
    profile: Path | None,
) -> None:
    """Draw a model: its blocks, nodes, shapes and parameters, and the kernels that they become.

    \b
      nacre graph model.nacre -o model.html
      nacre graph model.nacre -o model.svg --stage fuse --depth 2
      nacre graph model.nacre -o model.dot --stage graph
      nacre profile model.nacre --json > profile.json
      nacre graph model.nacre -o model.html --profile profile.json

    The page needs nothing but a browser: blocks fold and unfold, a slider leads through the passes, and the text of the
    model stands beside what is selected. An SVG or DOT file shows one graph, the last one by default. With a profile, a
    page opens with the kernels and the time of each, at the sizes that were measured.
    """
    path = output or model.with_suffix(".html")
    if path.resolve() == model.resolve():
        raise click.BadParameter(f"`{path}` is the model itself", param_hint="--output")
    check_writable(path)
    if path.suffix != ".dot":
        check_layout_package()
    measured = None if profile is None else _read_profile(profile, path, dims)
    with progress(f"drawing {model}"):
        build = chosen.build(model)
        check_dims(build.elaborated.module.dims, dims)
        build.optimize()
        if path.suffix == ".html":
            first = _number_of(build, stage) if stage else len(build.stages) - 1 if measured else 0
            text = make_page(build, measured.dims if measured else dims, depth, first, measured)
        else:
            make = make_svg if path.suffix == ".svg" else make_dot
            text = make(build.stages[_number_of(build, stage) if stage else -1], depth)
        write_whole(path, text)
    click.echo(f"wrote {path} ({path.stat().st_size:,} bytes)", err=True)
