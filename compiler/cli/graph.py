"""`nacre graph`: draws a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from ..base.files import check_writable, write_whole
from ..pipeline import Build
from ..tools.explorer.profile import Profile, read_profile
from ..tools.viewer.layout import check_layout_package
from ..tools.viewer.pictures import make_difference, make_dot, make_page, make_svg
from .model_options import PATH
from .options import MODEL, Chosen, build_options, check_dims, progress, read_dims

_FORMS = (".html", ".svg", ".dot")


def _check_output(context: click.Context, parameter: click.Parameter, value: Path | None) -> Path | None:
    if value is not None and value.suffix not in _FORMS:
        raise click.BadParameter(f"`{value}` must end with one of {', '.join(_FORMS)}")
    return value


def _number_of(build: Build, stage: str) -> int:
    """Returns the number of the last stage with this name; the first stage is `graph`."""
    names = ["graph", *(each.name for each in build.stages[1:])]
    if stage not in names:
        known = ", ".join(dict.fromkeys(names))
        raise click.BadParameter(f"there is no pass `{stage}`; there are {known}", param_hint="--stage")
    return len(names) - 1 - names[::-1].index(stage)


def _read_profile(path: Path, output: Path, dims: Mapping[str, int]) -> Profile:
    if output.suffix != ".html":
        raise click.BadParameter("a profile can only be shown in an .html file", param_hint="--profile")
    if dims:
        raise click.BadParameter("the profile determines the dims", param_hint="--at")
    return read_profile(path)


def _difference(
    files: tuple[Path, Path],
    builds: tuple[Build, Build],
    stage: str | None,
    dims: Mapping[str, int],
    depth: int | None,
) -> str:
    builds[1].optimize()
    first, second = (_number_of(build, stage) if stage else 0 for build in builds)
    return make_difference(builds, (first, second), (str(files[0]), str(files[1])), dims, depth)


@click.command("graph")
@MODEL
@click.option(
    "-o", "--output", type=PATH, callback=_check_output, help="An .html, .svg or .dot file.  [default: MODEL.html]"
)
@build_options
@click.option(
    "--stage", help="Show the graph after this pass, or `graph` for before all passes.  [default: graph for .html]"
)
@click.option("--depth", type=click.IntRange(0), help="Number of nested levels to unfold.  [default: as many as fit]")
@click.option("--at", "dims", metavar="B=1,T=128", callback=read_dims, help="Dims for the costs shown in a page.")
@click.option(
    "--profile", metavar="FILE", type=PATH, help="Show times from the output of `nacre profile --json`; .html only."
)
@click.option("--diff", "other", metavar="FILE", type=PATH, help="Show what differs in this model; .html only.")
def graph_command(
    model: Path,
    output: Path | None,
    other: Path | None,
    chosen: Chosen,
    stage: str | None,
    depth: int | None,
    dims: Mapping[str, int],
    profile: Path | None,
) -> None:
    """Draw a model: blocks, shapes, parameters and kernels.

    \b
      nacre graph model.nacre -o model.html
      nacre graph model.nacre -o model.svg --stage fuse --depth 2
      nacre graph model.nacre -o model.dot --stage graph
      nacre graph model.nacre --diff changed.nacre -o difference.html
      nacre profile model.nacre --json > profile.json
      nacre graph model.nacre -o model.html --profile profile.json

    An .html page is self-contained: blocks fold and unfold, a slider selects the pass, and the source text of the
    selected node is shown. An .svg or .dot file shows one graph, by default after all passes. With --profile, the page
    shows the measured time of each kernel. With --diff, the page shows both models, before the passes by default, and
    marks the nodes of the second that are new or changed.
    """
    path = output or model.with_suffix(".html")
    if path.resolve() == model.resolve():
        raise click.BadParameter(f"`{path}` is the model itself", param_hint="--output")
    check_writable(path)
    if path.suffix != ".dot":
        check_layout_package()
    if other is not None and (path.suffix != ".html" or profile is not None):
        raise click.BadParameter(
            "two models can only be shown in an .html file, without a profile", param_hint="--diff"
        )
    measured = None if profile is None else _read_profile(profile, path, dims)
    with progress(f"drawing {model}"):
        build = chosen.build(model)
        check_dims(build.source_model.module.dims, dims)
        build.optimize()
        if other is not None:
            text = _difference((model, other), (build, chosen.build(other)), stage, dims, depth)
        elif path.suffix == ".html":
            first = _number_of(build, stage) if stage else len(build.stages) - 1 if measured else 0
            text = make_page(build, measured.dims if measured else dims, depth, first, measured)
        else:
            make = make_svg if path.suffix == ".svg" else make_dot
            text = make(build.stages[_number_of(build, stage) if stage else -1], depth)
        write_whole(path, text)
    click.echo(f"wrote {path} ({path.stat().st_size:,} bytes)", err=True)
