"""Logs of a training run: lines of a file, TensorBoard, Weights & Biases offline, and a picture of the losses.

TensorBoard, Weights & Biases and matplotlib are imported when a log of their kind is opened. Nothing is sent over a
network.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from ..base.files import check_writable, replacing, write_whole
from ..base.packages import require_package
from .plots import check_plot, draw_plot
from .train import Progress


class Log(Protocol):
    """A log. `name` of a step is that of its first result; an epoch has the mean of a validation, by its name."""

    def step(self, name: str, progress: Progress) -> None: ...

    def epoch(self, progress: Progress, values: Mapping[str, float]) -> None: ...

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

    def _write_json(self, values: Mapping[str, object]) -> None:
        self._write(json.dumps(values))

    def _write(self, line: str) -> None:
        self.file.write(line + "\n")
        self.file.flush()

    def close(self) -> None:
        self.file.close()


def _of_run(progress: Progress) -> dict[str, float]:
    return {"seconds": round(progress.seconds, 3), **progress.scheduled}


@dataclass(frozen=True, slots=True)
class _TensorBoard:
    writer: Any

    def step(self, name: str, progress: Progress) -> None:
        for key, value in {name: progress.loss, **progress.scheduled}.items():
            self.writer.add_scalar(key, value, progress.step)

    def epoch(self, progress: Progress, values: Mapping[str, float]) -> None:
        for key, value in values.items():
            self.writer.add_scalar(key, value, progress.step)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


@dataclass(slots=True)
class _Wandb:
    """The values of a step are sent when the next one begins, since a validation belongs to its last step."""

    run: Any
    number: int = 0
    values: dict[str, float] = field(default_factory=dict)

    def step(self, name: str, progress: Progress) -> None:
        self._send()
        self.number = progress.step
        self.values = {name: progress.loss, "epoch": float(progress.epoch), **progress.scheduled}

    def epoch(self, progress: Progress, values: Mapping[str, float]) -> None:
        self.values |= values

    def _send(self) -> None:
        if self.values:
            self.run.log(self.values, step=self.number)
        self.values = {}

    def close(self) -> None:
        self._send()
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
    if the file cannot be made."""
    if not path.exists():
        check_writable(path)
    as_json = path.suffix == ".jsonl"

    def start(done: int) -> Log:
        if append and path.is_file():
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            kept = [line for line in lines if line.endswith("\n") and _step_of(line, as_json) <= done]
            if len(kept) < len(lines):  # an interrupted run went on after its last checkpoint
                write_whole(path, "".join(kept))
        return _Lines(path.open("a" if append else "w", encoding="utf-8"), as_json)

    return start


def _step_of(line: str, as_json: bool) -> int:
    """Returns the number of the step of a line; 0 for a line of another program."""
    try:
        return int(json.loads(line)["step"] if as_json else line.split(",", 1)[0])
    except (KeyError, TypeError, ValueError):
        return 0


def tensorboard_log(folder: Path) -> Opener:
    """A folder of event files. Raises DiagnosticError if TensorBoard is not installed."""
    _require("tensorboard", "--tensorboard")

    def start(done: int) -> Log:
        summary: Any = importlib.import_module("tensorboard.summary")
        return _TensorBoard(summary.Writer(str(folder)))

    return start


def wandb_log(folder: Path, project: str) -> Opener:
    """A run that is kept in a folder; `wandb sync` uploads it. Raises DiagnosticError if wandb is not installed."""
    _require("wandb", "--wandb")

    def start(done: int) -> Log:
        wandb: Any = importlib.import_module("wandb")
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
