"""`nacre graph`: draws a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from ..base.files import check_writable, path_beside, write_whole
from ..tools.explorer.measured_times import Profile, read_profile
from ..tools.viewer.drawing import Drawing, drawing_of, drawing_of_artifact
from ..tools.viewer.layout import check_layout_package
from ..tools.viewer.pictures import make_difference, make_dot, make_page, make_svg
from .build_options import MODEL, Chosen, build_options, check_dims, progress, read_dims
from .completion import GRAPHS
from .model_options import PATH
from .models import refuse_build_options

_FORMS = (".html", ".svg", ".dot")


def _check_output(context: click.Context, parameter: click.Parameter, value: Path | None) -> Path | None:
    if value is not None and value.suffix not in _FORMS:
        raise click.BadParameter(f"`{value}` must end with one of {', '.join(_FORMS)}")
    return value


def _draw(context: click.Context, chosen: Chosen, path: Path) -> Drawing:
    """Returns the drawing of a model, or of an artifact."""
    if path.suffix == ".so":
        refuse_build_options(context, path)
        return drawing_of_artifact(path)
    build = chosen.build(path)
    build.optimize()
    return drawing_of(build)


def _number_of(drawing: Drawing, stage: str) -> int:
    """Returns the number of the last stage with this name; the first stage is `graph`."""
    names = drawing.stage_names
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
    drawings: tuple[Drawing, Drawing],
    stage: str | None,
    dims: Mapping[str, int],
    depth: int | None,
) -> str:
    first, second = (_number_of(drawing, stage) if stage else 0 for drawing in drawings)
    return make_difference(drawings, (first, second), (str(files[0]), str(files[1])), dims, depth)


@click.command("graph")
@MODEL
@click.option(
    "-o", "--output", type=PATH, callback=_check_output, help="An .html, .svg or .dot file.  [default: MODEL.html]"
)
@build_options
@click.option(
    "--stage",
    shell_complete=GRAPHS,
    help="Show the graph after this pass, or `graph` for before all passes.  [default: graph for .html]",
)
@click.option("--depth", type=click.IntRange(0), help="Number of nested levels to unfold.  [default: as many as fit]")
@click.option("--at", "dims", metavar="B=1,T=128", callback=read_dims, help="Dims for the costs shown in a page.")
@click.option(
    "--profile", metavar="FILE", type=PATH, help="Show times from the output of `nacre profile --json`; .html only."
)
@click.option("--diff", "other", metavar="FILE", type=PATH, help="Compare with this model; .html only.")
@click.pass_context
def graph_command(
    context: click.Context,
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
      nacre graph model.so -o model.html --stage compiled
      nacre graph model.nacre --diff changed.nacre -o difference.html
      nacre profile model.nacre --json > profile.json
      nacre graph model.nacre -o model.html --profile profile.json

    An .html page is self-contained: blocks fold and unfold, a slider selects the pass, and the source text of the
    selected node is shown. An .svg or .dot file shows one graph, by default after all passes. With --profile, the page
    shows the measured time of each kernel. With --diff, the page shows both models, before the passes by default, and
    marks the nodes of the second that are new or changed.

    The model may also be graph text (.graph) or an artifact (.so), which carries its graph as written and the graph of
    its kernels; options of a build do not apply to it.
    """
    path = output or path_beside(model, ".html")
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
        drawing = _draw(context, chosen, model)
        check_dims(drawing.module.dims, dims)
        if other is not None:
            text = _difference((model, other), (drawing, _draw(context, chosen, other)), stage, dims, depth)
        elif path.suffix == ".html":
            first = _number_of(drawing, stage) if stage else len(drawing.stages) - 1 if measured else 0
            text = make_page(drawing, measured.dims if measured else dims, depth, first, measured)
        else:
            make = make_svg if path.suffix == ".svg" else make_dot
            text = make(drawing.stages[_number_of(drawing, stage) if stage else -1], depth)
        write_whole(path, text)
    click.echo(f"wrote {path} ({path.stat().st_size:,} bytes)", err=True)
