"""Logs of a training run: lines of a file, TensorBoard, Weights & Biases offline, and a picture of the losses.

A run that is resumed repeats the steps after its last checkpoint. No log shows such a step twice: the lines of these
steps are removed from a file, TensorBoard is told to drop them, and a run of Weights & Biases, which cannot be changed,
receives a step once a checkpoint holds it, or the run has failed. TensorBoard, Weights & Biases and matplotlib are
imported when a log of their kind is opened. Nothing is sent over a network.
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from ..base.files import check_folder, check_opens, check_writable, replacing, reported, write_whole
from ..base.packages import require_package
from .plots import check_plot, draw_plot
from .train import Progress


class Log(Protocol):
    """A log. `name` of a step is that of its first result; an epoch has the mean of a validation, by its name. After
    `keep`, no resumed run repeats the steps so far: a checkpoint holds them, or the last one made a number that is not
    finite."""

    def step(self, name: str, progress: Progress) -> None: ...

    def epoch(self, progress: Progress, values: Mapping[str, float]) -> None: ...

    def keep(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Lines:
    """Lines `step,loss`, or JSON objects if the name of the file ends in `.jsonl`."""

    file: IO[str]
    as_json: bool

    def step(self, name: str, progress: Progress) -> None:
        if self.as_json:
            self._write_json({"step": progress.step, "epoch": progress.epoch, name: progress.loss, **_of_run(progress)})
        else:
            self._write(f"{progress.step},{progress.loss!r}")

    def epoch(self, progress: Progress, values: Mapping[str, float]) -> None:
        if self.as_json and values:
            self._write_json({"step": progress.step, "epoch": progress.epoch, **values})

    def keep(self) -> None:
        pass

    def _write_json(self, values: Mapping[str, object]) -> None:
        self._write(json.dumps(values))

    def _write(self, line: str) -> None:
        self.file.write(line + "\n")
        self.file.flush()

    def close(self) -> None:
        self.file.close()


def _of_run(progress: Progress) -> dict[str, float]:
    return {"seconds": round(progress.seconds, 3), **progress.scheduled}


class _TensorBoard:
    """An event file. It begins with the start of a session, so TensorBoard drops the events of earlier files from its
    step on."""

    def __init__(self, folder: Path, done: int) -> None:
        files: Any = importlib.import_module("tensorboard.summary.writer.event_file_writer")
        self._events: Any = importlib.import_module("tensorboard.compat.proto.event_pb2")
        self._summaries: Any = importlib.import_module("tensorboard.compat.proto.summary_pb2")
        with reported(folder):
            self._writer = files.EventFileWriter(str(folder))
        start = self._events.SessionLog(status=self._events.SessionLog.START)
        self._add(done + 1, session_log=start)

    def _add(self, step: int, **content: Any) -> None:
        self._writer.add_event(self._events.Event(wall_time=time.time(), step=step, **content))

    def _add_scalars(self, step: int, values: Mapping[str, float]) -> None:
        found = [self._summaries.Summary.Value(tag=key, simple_value=value) for key, value in values.items()]
        self._add(step, summary=self._summaries.Summary(value=found))

    def step(self, name: str, progress: Progress) -> None:
        self._add_scalars(progress.step, {name: progress.loss, **progress.scheduled})

    def epoch(self, progress: Progress, values: Mapping[str, float]) -> None:
        self._add_scalars(progress.step, values)

    def keep(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


@dataclass(slots=True)
class _Wandb:
    """A run of Weights & Biases. `pending` are the values of steps that no checkpoint holds yet, by step."""

    run: Any
    pending: dict[int, dict[str, float]] = field(default_factory=dict)

    def step(self, name: str, progress: Progress) -> None:
        self.pending[progress.step] = {name: progress.loss, "epoch": float(progress.epoch), **progress.scheduled}

    def epoch(self, progress: Progress, values: Mapping[str, float]) -> None:
        self.pending.setdefault(progress.step, {}).update(values)

    def keep(self) -> None:
        for step, values in self.pending.items():
            self.run.log(values, step=step)
        self.pending.clear()

    def close(self) -> None:
        self.run.finish()


@dataclass(slots=True)
class _Picture:
    """The losses of this run's steps, their mean of each epoch, and the validations."""

    path: Path
    name: str = ""
    losses: list[tuple[int, float]] = field(default_factory=list)
    means: list[tuple[int, float]] = field(default_factory=list)
    validations: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def step(self, name: str, progress: Progress) -> None:
        self.name = name
        self.losses.append((progress.step, progress.loss))

    def epoch(self, progress: Progress, values: Mapping[str, float]) -> None:
        self.means.append((progress.step, progress.mean))
        for key, value in values.items():
            self.validations.setdefault(key, []).append((progress.step, value))

    def keep(self) -> None:
        pass

    def close(self) -> None:
        if not self.losses:
            return
        drawn = draw_plot((7, 4), self.path.suffix, self._draw)
        with replacing(self.path) as file:
            file.write(drawn)

    def _draw(self, figure: Any) -> None:
        axes = figure.subplots()
        axes.plot(*_columns(self.losses), color="#9ab", linewidth=0.8, label=f"{self.name} of a step")
        axes.plot(*_columns(self.means), color="#036", marker=".", label=f"{self.name}, mean of an epoch")
        for number, (key, values) in enumerate(self.validations.items()):
            axes.plot(*_columns(values), color=f"C{number + 1}", marker=".", label=f"{key}, validation")
        axes.set(xlabel="step")
        axes.grid(alpha=0.3)
        axes.legend()


def _columns(points: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [step for step, _ in points], [value for _, value in points]


Opener = Callable[[int], Log]
"""Opens a log when the run begins, with the number of steps that were done before. Its maker has checked what it needs,
so that a build does not precede an error."""


def _require(package: str, option: str) -> None:
    require_package(package, f"{option} needs the package `{package}`", f"`pip install {package}`")


def lines_log(path: Path, append: bool) -> Opener:
    """A file of lines, or a device. With `append`, the lines of the steps before the run stay. Raises DiagnosticError
    if the file cannot be written."""
    if path.exists():
        check_opens(path)
    else:
        check_writable(path)
    as_json = path.suffix == ".jsonl"

    def start(done: int) -> Log:
        if append and path.is_file():
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            kept = [line for line in lines if line.endswith("\n") and _step_of(line, as_json) <= done]
            if len(kept) < len(lines):  # an interrupted run went on after its last checkpoint
                write_whole(path, "".join(kept))
        with reported(path):
            return _Lines(path.open("a" if append else "w", encoding="utf-8"), as_json)

    return start


def _step_of(line: str, as_json: bool) -> int:
    """Returns the number of the step of a line; 0 for a line of another program."""
    try:
        return int(json.loads(line)["step"] if as_json else line.split(",", 1)[0])
    except (KeyError, TypeError, ValueError):
        return 0


def tensorboard_log(folder: Path) -> Opener:
    """A folder of event files. Raises DiagnosticError if TensorBoard is not installed, or the folder cannot be
    written."""
    _require("tensorboard", "--tensorboard")
    check_folder(folder)
    return lambda done: _TensorBoard(folder, done)


def wandb_log(folder: Path, project: str) -> Opener:
    """A run that is kept in a folder; `wandb sync` uploads it. Raises DiagnosticError if wandb is not installed, or the
    folder cannot be written."""
    _require("wandb", "--wandb")
    check_folder(folder)

    def start(done: int) -> Log:
        wandb: Any = importlib.import_module("wandb")
        with reported(folder):
            folder.mkdir(parents=True, exist_ok=True)
        settings = wandb.Settings(silent=True, console="off", disable_git=True, x_disable_stats=True)
        return _Wandb(wandb.init(mode="offline", dir=str(folder), project=project, settings=settings))

    return start


def picture_log(path: Path) -> Opener:
    """A picture, drawn when the run ends. Raises DiagnosticError if it cannot be drawn or written."""
    check_plot(path)
    return lambda done: _Picture(path)


@contextmanager
def open_logs(openers: Sequence[Opener], done: int) -> Iterator[Sequence[Log]]:
    """Opens logs of a run after `done` steps, and closes all of them at the end, also after an error."""
    with ExitStack() as stack:
        logs: list[Log] = []
        for start in openers:
            logs.append(start(done))
            stack.callback(logs[-1].close)
        yield logs
