"""`nacre accuracy`: how near a model is to a reference over many samples, layer by layer."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ..accuracy.bounds import EXAMPLES, Bound, parse_bound
from ..accuracy.compare import Accuracy, PointAccuracy, Scores, compare_models
from ..accuracy.picture import check_picture, draw_accuracy
from ..accuracy.present import SHOWN, accuracy_data, histogram_lines, sparkline
from ..accuracy.samples import MOST, open_samples
from ..files import check_writable, replacing
from .faults import INPUT_FAULT
from .models import ENTRY, choose_entry, open_side
from .options import PATH, Chosen, build_options, told_progress

_WIDTH = 160
"""Columns of text that goes to no terminal: names of points are long."""
DATA = click.option(
    "--data", required=True, metavar="FILE.npz", type=PATH, help="The samples: an array for each argument, or a folder."
)
BATCH = click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=MOST,
    show_default=True,
    help="At most so many samples in a call, where the first dim of the arguments counts them.",
)


def read_bound(context: click.Context, parameter: click.Parameter, value: str) -> Bound:
    try:
        return parse_bound(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def read_bounds(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> tuple[Bound, ...]:
    return tuple(read_bound(context, parameter, value) for value in values)


@click.command("accuracy")
@click.argument("model", metavar="MODEL", type=PATH)
@click.option("--reference", metavar="MODEL[@PRECISION]", help="What it is compared with.  [default: MODEL@f32]")
@DATA
@ENTRY
@BATCH
@click.option(
    "--require",
    "bounds",
    multiple=True,
    callback=read_bounds,
    metavar="BOUND",
    help=f"Exit with 1 where the results do not keep it: {EXAMPLES}; repeatable.",
)
@click.option("--picture", type=PATH, metavar="FILE.svg", help="Draw it, too; also .png and .pdf.")
@build_options
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON.")
def accuracy_command(
    model: Path,
    reference: str | None,
    data: Path,
    entry: str | None,
    batch: int,
    bounds: tuple[Bound, ...],
    picture: Path | None,
    chosen: Chosen,
    as_json: bool,
) -> int:
    """Say how near a model is to a reference over all samples of a file, layer by layer.

    \b
      nacre accuracy model.so --reference model.nacre@f32 --data calibration.npz
      nacre accuracy model.nacre --precision int8 --data calibration.npz
      nacre accuracy new.so --reference old.so --data samples/ --require 'cosine >= 0.999'

    MODEL and the reference are artifacts or model files, which are compiled with the options given; `@` and a precision
    behind a model file replaces what it says of that itself. For every value that both leave in memory: the largest
    error as a share of the largest number, signal to noise, the cosine of a sample, on average and at least, and how
    errors are spread; for results that can be scores, how often the same class comes first. An array `labels` says
    which class is the right one.
    """
    if picture is not None:
        check_writable(picture)
        check_picture(picture.suffix)
    other = _refer(model, reference)
    first = open_side(model, chosen)
    described = choose_entry(first.model, entry)
    samples = open_samples(data, described, batch)
    path, _, precision = other.partition("@")
    second = open_side(Path(path), replace(chosen, precision=precision) if precision else chosen)
    choose_entry(second.model, described["name"])
    with told_progress() as tell:
        accuracy = compare_models(
            first.model,
            second.model,
            described["name"],
            samples,
            lambda done: tell(f"comparing call {done} of {samples.calls}"),
        )
    names = first.name, second.name
    if picture is not None:
        drawn = draw_accuracy(accuracy, names, picture.suffix)
        with replacing(picture) as file:
            file.write(drawn)
    if as_json:
        click.echo(json.dumps(accuracy_data(accuracy, names, bounds), indent=2))
    else:
        console = Console(highlight=False, markup=False, emoji=False)
        if not console.is_terminal:
            console.width = _WIDTH
        for part in accuracy_tables(accuracy, names):
            console.print(part)
        for bound in bounds:
            word = Text("holds", "green") if bound.holds(accuracy) else Text("fails", "bold red")
            console.print(Text.assemble(word, f"  {bound}: it is {bound.show(bound.value(accuracy))}"))
    return 0 if all(bound.holds(accuracy) for bound in bounds) else INPUT_FAULT


def _refer(model: Path, reference: str | None) -> str:
    if reference is None and model.suffix == ".so":
        raise click.UsageError(f"{model} is compiled already: name its --reference")
    return f"{model}@f32" if reference is None else reference


def accuracy_tables(accuracy: Accuracy, names: tuple[str, str]) -> Iterator[RenderableType]:
    """What a person reads: the points, the results, their histograms, and classes."""
    calls = f"{accuracy.calls} call{'s' * (accuracy.calls != 1)}"
    yield Text(f"{names[0]} beside {names[1]}: {accuracy.samples} samples in {calls}")
    if accuracy.points:
        yield _table("points", accuracy.points)
    yield _table("results", accuracy.results)
    for point in accuracy.results:
        yield Text(f"errors of `{point.name}`, as a share of its rms", "bold")
        yield Text("\n".join(histogram_lines(point.figures)))
    for scores in accuracy.scores:
        yield Text(_classes(scores))


def _table(title: str, points: Sequence[PointAccuracy]) -> Table:
    table = Table(
        title=Text(title, "bold"), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False
    )
    table.add_column("point", no_wrap=True, ratio=1)
    for name in ("error", "SNR", "cosine", "least", "largest"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(f"2^{SHOWN.start} .. 1".ljust(len(SHOWN)), no_wrap=True, min_width=len(SHOWN))
    table.add_column("place", no_wrap=True)
    worst = min((p.figures.snr for p in points), default=math.inf)
    for point in points:
        f = point.figures
        style = "red" if f.snr == worst < math.inf and len(points) > 1 else ""
        table.add_row(
            Text(point.name),
            f"{f.error:.2e}",
            Text(f"{f.snr:.1f} dB" if f.rms_error else "exact", style),
            f"{f.cosine:.6f}",
            f"{f.least_cosine:.6f}",
            f"{f.largest:.2e}",
            Text(sparkline(f)),
            Text(point.at),
        )
    return table


def _classes(scores: Scores) -> str:
    told = f"`{scores.name}`: the same of {scores.classes} classes comes first in {scores.agreement:.2%}"
    if scores.right is not None and scores.reference_right is not None:
        right, wanted = scores.right / scores.rows, scores.reference_right / scores.rows
        told += f"; {right:.2%} are right, {wanted:.2%} in the reference"
    return told
