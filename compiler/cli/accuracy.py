"""`nacre accuracy`: measures the error of a model against a reference over many samples, layer by layer."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from ...dialect.wrapping import WIDTH, counted, fit
from ..base.files import replacing
from ..base.text_tables import Column, table_lines
from ..comparison.bounds import EXAMPLES, Bound, parse_bound
from ..comparison.sample_errors import Accuracy, PointAccuracy, Scores, compare_models
from ..model.samples import MOST, open_samples
from ..tools.accuracy.accuracy_text import SHOWN, accuracy_data, histogram_lines, sparkline
from ..tools.accuracy.picture import draw_accuracy
from ..tools.plots import check_plot
from .build_options import Chosen, build_options, progress_line, read_dims
from .model_options import PATH
from .models import ENTRY, choose_entry, open_side, session_dims
from .reporting import INPUT_ERROR

DATA = click.option(
    "--data",
    required=True,
    metavar="FILE.npz",
    type=PATH,
    help="Samples: one array per argument, or a folder of such files.",
)
BATCH = click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=MOST,
    show_default=True,
    help="Maximum number of samples per call, if the first dim of the arguments counts samples.",
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
@click.option("--reference", metavar="MODEL[@PRECISION]", help="Reference model.  [default: MODEL@f32]")
@DATA
@ENTRY
@click.option("--at", "dims", metavar="S=64", callback=read_dims, help="Dims of the session of a model with states.")
@BATCH
@click.option(
    "--require",
    "bounds",
    multiple=True,
    callback=read_bounds,
    metavar="BOUND",
    help=f"Exit with 1 unless the bound holds, such as {EXAMPLES}; repeatable.",
)
@click.option("--picture", type=PATH, metavar="FILE.svg", help="Write a plot; also .png and .pdf.")
@build_options
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def accuracy_command(
    model: Path,
    reference: str | None,
    data: Path,
    entry: str | None,
    dims: Mapping[str, int],
    batch: int,
    bounds: tuple[Bound, ...],
    picture: Path | None,
    chosen: Chosen,
    as_json: bool,
) -> int:
    """Measure the error of a model on samples, layer by layer.

    \b
      nacre accuracy model.so --reference model.nacre@f32 --data calibration.npz
      nacre accuracy model.nacre --precision int8 --data calibration.npz
      nacre accuracy new.so --reference old.so --data in/ --require 'snr >= 40'

    MODEL and the reference are artifacts or model files. Model files are compiled with the given options; `@PRECISION`
    after a model file overrides its policies. For every value that both builds store in memory, the report shows the
    largest relative error, the signal-to-noise ratio, the mean and least cosine similarity of a sample, and a histogram
    of the errors. For results that can be class scores, it shows how often the top classes agree. An array `labels`
    gives the correct classes. Each call begins with the initial states, and the states after it are compared.
    """
    if picture is not None:
        check_plot(picture)
    other = _refer(model, reference)
    first = open_side(model, chosen)
    described = choose_entry(first.model, entry)
    samples = open_samples(data, described, batch)
    for batch_of_samples in samples:
        # The first call tells whether dims of the session are missing.
        session_dims(first.model, described, batch_of_samples.inputs, dims)
        break
    path, _, precision = other.partition("@")
    second = open_side(Path(path), replace(chosen, precision=precision) if precision else chosen)
    choose_entry(second.model, described["name"])
    with progress_line() as report:
        accuracy = compare_models(
            first.model,
            second.model,
            described["name"],
            samples,
            lambda done: report(f"comparing call {done} of {samples.calls}"),
            dims,
        )
    names = first.name, second.name
    if picture is not None:
        drawn = draw_accuracy(accuracy, names, picture.suffix)
        with replacing(picture) as file:
            file.write(drawn)
    if as_json:
        click.echo(json.dumps(accuracy_data(accuracy, names, bounds), indent=2))
    else:
        console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        for part in accuracy_tables(accuracy, names, console.width):
            console.print(part)
        for bound in bounds:
            word = Text("holds", "green") if bound.holds(accuracy) else Text("fails", "bold red")
            console.print(Text.assemble(word, fit(f"  {bound}: it is {bound.show(bound.value(accuracy))}")))
    return 0 if all(bound.holds(accuracy) for bound in bounds) else INPUT_ERROR


def _refer(model: Path, reference: str | None) -> str:
    if reference is None and model.suffix == ".so":
        raise click.UsageError(f"{model} is already compiled: give a --reference")
    return f"{model}@f32" if reference is None else reference


def accuracy_tables(accuracy: Accuracy, names: tuple[str, str], width: int = WIDTH) -> Iterator[Text]:
    """Yields the report for people: values, results, histograms and class scores."""
    calls = counted(accuracy.calls, "call")
    yield Text(fit(f"{names[0]} compared with {names[1]}: {counted(accuracy.samples, 'sample')} in {calls}", width))
    if accuracy.points:
        yield from _table("points", accuracy.points, width)
    yield from _table("results", accuracy.results, width)
    for point in accuracy.results:
        yield Text(f"errors of `{point.name}`, as a share of its rms", "bold")
        yield Text("\n".join(histogram_lines(point.figures)))
    for scores in accuracy.scores:
        yield Text(fit(_classes(scores), width))


def _table(title: str, points: Sequence[PointAccuracy], width: int) -> Iterator[Text]:
    """Yields a row of figures for each point; the one with the least ratio of signal to noise is red."""
    spread = f"2^{SHOWN.start} .. 1".ljust(len(SHOWN))
    columns = [
        Column("point", is_name=True),
        *(Column(name) for name in ("error", "SNR", "cosine", "least", "largest", spread)),
        Column("source", is_name=True),
    ]
    rows = [
        (
            point.name,
            f"{point.figures.error:.2e}",
            f"{point.figures.snr:.1f} dB" if point.figures.rms_error else "exact",
            f"{point.figures.cosine:.6f}",
            f"{point.figures.least_cosine:.6f}",
            f"{point.figures.largest:.2e}",
            sparkline(point.figures),
            point.at,
        )
        for point in points
    ]
    head, *others = table_lines(columns, rows, width)
    worst = min((p.figures.snr for p in points), default=math.inf)
    yield Text(title, "bold")
    yield Text("\n".join(head), "dim")
    for point, lines in zip(points, others, strict=True):
        is_worst = point.figures.snr == worst < math.inf and len(points) > 1
        yield Text("\n".join(lines), "red" if is_worst else "")


def _classes(scores: Scores) -> str:
    reported = f"`{scores.name}`: the top class of {scores.classes} agrees in {scores.agreement:.2%}"
    if scores.right is not None and scores.reference_right is not None:
        right, wanted = scores.right / scores.rows, scores.reference_right / scores.rows
        reported += f"; top-1 accuracy {right:.2%}, reference {wanted:.2%}"
    return reported
