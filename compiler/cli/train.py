"""`nacre train`: trains a model on the samples of a file."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from ...dialect.types import DTYPES, DType
from ...dialect.wrapping import fit
from ...runtime.loader import Entry, Model
from ..base.files import check_writable
from ..tools.train import SCHEDULES, Data, NotFiniteError, Plan, Progress, Trainer, check_conversion
from ..tools.training_logs import Opener, lines_log, open_logs, picture_log, tensorboard_log, wandb_log
from ..weights import open_tensors
from .build_options import Chosen, build_options, progress_line, read_dims
from .completion import ENTRIES
from .figures import show_duration
from .model_options import PATH
from .models import INPUTS, MODEL_OR_ARTIFACT, THREADS, WEIGHTS, open_with_build
from .tensors import read_tensor, split_assignments


@click.command("train")
@MODEL_OR_ARTIFACT
@click.option(
    "--data", type=PATH, required=True, metavar="FILE", help="Samples: a .npz file with an array per argument."
)
@click.option("--epochs", type=click.IntRange(min=1), default=1, show_default=True, help="Passes over all samples.")
@click.option("--batch", type=click.IntRange(min=1), default=32, show_default=True, help="Samples of one step.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the order of samples.")
@INPUTS
@click.option(
    "--schedule",
    "schedules",
    multiple=True,
    metavar="NAME=KIND",
    help=f"Scale an argument given by --input over the run: {', '.join(SCHEDULES)}.",
)
@click.option(
    "--warm-up", type=click.IntRange(min=0), default=0, help="Steps in which scheduled arguments rise from 0."
)
@click.option("--validate", type=PATH, metavar="FILE", help="Samples for --validation after each epoch.")
@click.option(
    "--validation",
    metavar="ENTRY",
    shell_complete=ENTRIES,
    help="Entry whose first result is averaged over the --validate samples.",
)
@click.option("-o", "--output", type=PATH, help="Checkpoint after each epoch.  [default: MODEL.safetensors here]")
@click.option(
    "--save-steps",
    type=click.IntRange(min=1),
    metavar="STEPS",
    help="Write the checkpoint also within epochs, after every so many steps.",
)
@click.option(
    "--resume", is_flag=True, help="Continue from the checkpoint; results equal those of an uninterrupted run."
)
@click.option(
    "--log", type=PATH, metavar="FILE", help="Write `step,loss` lines to this file, or JSON lines to FILE.jsonl."
)
@click.option("--picture", type=PATH, metavar="FILE", help="Draw the losses: .svg, .png or .pdf.")
@click.option("--tensorboard", type=PATH, metavar="FOLDER", help="Write event files for TensorBoard.")
@click.option("--wandb", type=PATH, metavar="FOLDER", help="Keep a run of Weights & Biases, offline.")
@click.option(
    "--entry",
    metavar="NAME",
    shell_complete=ENTRIES,
    help="Training step to call, if there are several entries with states.",
)
@click.option(
    "--at", "dims", metavar="S=64", callback=read_dims, help="Dims of the session that the samples do not determine."
)
@THREADS
@WEIGHTS
@build_options
@click.pass_context
def train_command(
    context: click.Context,
    model: Path,
    data: Path,
    epochs: int,
    batch: int,
    seed: int,
    inputs: Sequence[str],
    schedules: Sequence[str],
    warm_up: int,
    validate: Path | None,
    validation: str | None,
    output: Path | None,
    save_steps: int | None,
    resume: bool,
    log: Path | None,
    picture: Path | None,
    tensorboard: Path | None,
    wandb: Path | None,
    entry: str | None,
    dims: Mapping[str, int],
    threads: int,
    weights: Path | None,
    chosen: Chosen,
) -> None:
    """Train a model on the samples of a file. A `train` entry is called for each batch, epoch by epoch.

    \b
      nacre train model.nacre --data train.npz --epochs 10 --input lr=1e-3
      nacre train model.nacre --data train.npz --schedule lr=cosine --resume
      nacre compile model.nacre --checkpoint model.safetensors -o model.so

    The checkpoint holds the trained parameters under their paths, and the states of the optimiser. It is written to a
    temporary file and renamed. The run stops at a loss that is not finite, and keeps the last checkpoint.
    Ctrl-C also stops it; --resume then continues from the checkpoint.
    """
    if (validate is None) != (validation is None):
        raise click.UsageError("--validate and --validation belong together")
    openers = _choose_logs(log, resume, picture, tensorboard, wandb, model.stem)
    # Errors of these paths are reported before the model is compiled.
    samples, validated = open_tensors(data), None if validate is None else open_tensors(validate)
    path = output or Path(f"{model.stem}.safetensors")
    check_writable(path)
    opened, build = open_with_build(context, model, chosen, weights, threads)
    step = _choose_step(opened, entry)
    types = {argument.name: DTYPES[argument.dtype] for argument in step.arguments}
    given = split_assignments(inputs)
    for name in given:
        if name not in types:
            raise click.BadParameter(f"`{step.name}` takes {', '.join(types)}, not `{name}`", param_hint="--input")
    fixed = {name: read_tensor(name, value, types[name]) for name, value in given.items()}
    conversions = [check_conversion(f"`{name}` of --input", array, types[name].name) for name, array in fixed.items()]
    kinds = _read_schedules(schedules, fixed, types)
    plan = Plan(epochs, batch, seed, fixed, kinds, warm_up)
    read = Data(data, samples, opened, step, plan)
    trainer = Trainer(opened, step, read, plan, dims, None if build is None else build.source_model)
    checked = None
    if validate is not None and validated is not None and validation is not None:
        if validation not in opened.entries:
            raise click.BadParameter(
                f"the model has the entries {', '.join(opened.entries)}", param_hint="--validation"
            )
        checked = Data(validate, validated, opened, opened.entries[validation], plan)
        trainer.check_evaluation(validation, checked)
    for sentence in (*filter(None, conversions), *read.notes, *([] if checked is None else checked.notes)):
        click.echo(fit(sentence))
    click.echo(fit(f"{read.count} samples in batches of {min(read.batch, read.count)}, {trainer.steps} steps"))
    click.echo(fit(f"memory of a step: {_mebibytes(trainer.workspace)}; states: {_mebibytes(trainer.state_bytes)}"))
    if resume and path.exists():
        trainer.resume(path)
        click.echo(f"resumed {path} after step {trainer.step} of {trainer.steps}")
    elif resume:
        click.echo(fit(f"there is no checkpoint {path} yet: the run begins with the first step"))
    if trainer.step >= trainer.steps:
        click.echo("no steps are left")
        return
    last: list[Progress] = []
    name = trainer.entry.results[0].name
    with open_logs(openers, trainer.step) as logs, progress_line() as show:

        def keep() -> None:
            for log in logs:
                log.keep()

        def watch(progress: Progress) -> None:
            last[:] = [progress]
            for log in logs:
                log.step(name, progress)
            if save_steps is not None and progress.step % save_steps == 0:
                trainer.save(path)
                keep()
            shown = [f"epoch {progress.epoch}", f"step {progress.step}/{progress.steps}", f"{name} {progress.mean:.6g}"]
            speed, left = f"{progress.speed:.3g} steps/s", f"{show_duration(progress.left)} left"
            show("  ".join([*shown, *_rates(progress), speed, left]))

        def finish(epoch: int) -> None:
            trainer.save(path)
            values = (
                {} if checked is None or validation is None else {validation: trainer.evaluate(validation, checked)}
            )
            shown = [f"epoch {epoch}/{epochs}"]
            for progress in last:
                shown += [f"{name} {progress.mean:.6g}", *_rates(progress), show_duration(progress.seconds)]
                for log in logs:
                    log.epoch(progress, values)
            keep()
            click.echo("  ".join([*shown, *(f"{key} {value:.6g}" for key, value in values.items())]))

        try:
            trainer.run(watch, finish)
        except NotFiniteError:
            keep()
            raise
        except KeyboardInterrupt:
            kept, file = trainer.kept
            click.echo(f"{file} holds step {kept}" if file is not None else "no checkpoint is written yet", err=True)
            raise
    click.echo(f"wrote {path}")
    sys.stdout.flush()


def _rates(progress: Progress) -> list[str]:
    return [f"{name} {value:.3g}" for name, value in progress.scheduled.items()]


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB"


def _choose_logs(
    log: Path | None,
    append: bool,
    picture: Path | None,
    tensorboard: Path | None,
    wandb: Path | None,
    project: str,
) -> list[Opener]:
    """Raises DiagnosticError if the package of a log is missing."""
    found: list[Opener] = []
    if log is not None:
        found.append(lines_log(log, append))
    if picture is not None:
        found.append(picture_log(picture))
    if tensorboard is not None:
        found.append(tensorboard_log(tensorboard))
    if wandb is not None:
        found.append(wandb_log(wandb, project))
    return found


def _choose_step(model: Model, name: str | None) -> Entry:
    """Returns the training step: the named entry, or the only one whose name is no model for inference."""
    if name is not None:
        if name not in model.entries:
            raise click.BadParameter(f"the model has the entries {', '.join(model.entries)}", param_hint="--entry")
        return model.entries[name]
    found = [e for e in model.entries.values() if e.name == "step"] or [e for e in model.entries.values() if e.states]
    if not found:
        raise click.UsageError(f"the model has no training step: its entries are {', '.join(model.entries)}")
    if len(found) != 1:
        raise click.UsageError(f"--entry names the training step: the entries are {', '.join(model.entries)}")
    return found[0]


def _read_schedules(texts: Sequence[str], fixed: Mapping[str, object], types: Mapping[str, DType]) -> dict[str, str]:
    found = split_assignments(texts)
    for name, kind in found.items():
        if name not in fixed:
            raise click.BadParameter(f"`{name}` is not given by --input", param_hint="--schedule")
        if not types[name].is_float:
            raise click.BadParameter(f"`{name}` is {types[name]}, which cannot be scaled", param_hint="--schedule")
        if kind not in SCHEDULES:
            raise click.BadParameter(f"`{kind}` is none of {', '.join(SCHEDULES)}", param_hint="--schedule")
    return found
