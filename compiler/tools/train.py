"""`nacre train`: runs a training step over the samples of a file, epoch by epoch, and keeps checkpoints.

An epoch visits every sample once, in an order that the seed and the number of the epoch determine. A checkpoint holds
all states of the session and the number of steps, so a run that continues from it computes the same bits as one that
was never interrupted. This module prints nothing: `report` receives the progress.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...dialect.diagnostics import Diagnostic, DiagnosticError, Note
from ...dialect.dims import INFINITY
from ...dialect.ops.support.conversion import cast_array, first_changed
from ...dialect.types import DTYPES, Array, dtype_of
from ...runtime.library import ArgumentError
from ...runtime.loader import Entry, Model, Session
from ...runtime.states import read_metadata
from ..base.files import reported
from ..base.repeated import find_session_dims
from ..model.parameters import open_parameters
from ..model.source import SourceModel
from ..weights import Checkpoint
from .first_nonfinite import Culprit, are_finite, first_new, watch_step

PROGRESS = "nacre.train"
"""The key of the progress in the metadata of a checkpoint."""
_LISTED = 16
"""The greatest number of elements of an argument that a checkpoint lists."""
SCHEDULES: Mapping[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
}
"""The factor of a scheduled argument, by the fraction of steps that are done."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A training run. `fixed` are arguments that are the same in each step, before `schedules` scale them; `warm_up`
    is the number of steps in which scheduled arguments rise from 0."""

    epochs: int
    batch: int
    seed: int = 0
    fixed: Mapping[str, Array] = field(default_factory=dict)
    schedules: Mapping[str, str] = field(default_factory=dict)
    warm_up: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a run after a step: the first result of the step, and the mean of the epoch so far."""

    epoch: int
    step: int
    steps: int
    loss: float
    mean: float
    seconds: float
    left: float
    """The remaining time in seconds, from the speed of this run."""
    speed: float
    """Steps per second of this run."""
    scheduled: Mapping[str, float] = field(default_factory=dict)
    """The scheduled arguments of the step, by name."""


class Data:
    """The samples of a file: arrays by the names of the arguments of an entry, whose first axis counts samples.
    `notes` has a sentence for each array of floats that an argument takes as integers, and for samples that no batch
    contains."""

    def __init__(self, path: Path, tensors: Checkpoint, model: Model, entry: Entry, plan: Plan) -> None:
        self.path = path
        self.arrays: dict[str, Array] = {}
        self.notes: list[str] = []
        for argument in entry.arguments:
            if argument.name in plan.fixed:
                continue
            if argument.name not in tensors:
                message = f"`{path}` has no array `{argument.name}`, an argument of `{entry.name}`"
                held = ", ".join(tensors.names()) or "nothing"
                help_text = f"the file holds {held}; `--input {argument.name}=...` gives a value for all steps"
                raise _error("bad-samples", message, help_text)
            array = tensors.read(argument.name)
            if array.ndim != len(argument.shape) or not array.ndim:
                message = f"`{argument.name}` of `{path}` has {array.ndim} axes, and `{argument.type}` is the argument"
                raise _error("bad-samples", message, "the first axis of each array counts samples")
            conversion = check_conversion(f"`{argument.name}` of `{path}`", array, argument.dtype)
            self.notes += [conversion] if conversion else []
            self.arrays[argument.name] = array
        if not self.arrays:
            message = f"no argument of `{entry.name}` is in `{path}`"
            raise _error("bad-samples", message, "`--input` gives values for all steps; samples have their own")
        counts = {name: len(array) for name, array in self.arrays.items()}
        self.count = next(iter(counts.values()))
        if len(set(counts.values())) > 1:
            shown = ", ".join(f"{count} of `{name}`" for name, count in counts.items())
            raise _error("bad-samples", f"`{path}` holds different numbers of samples: {shown}")
        if not self.count:
            raise _error("bad-samples", f"`{path}` holds no samples: {', '.join(f'`{n}` is empty' for n in counts)}")
        static, most = fixed_batch(model, entry, plan.fixed)
        self.whole = static is not None
        """Whether each batch has the size that the types state, so that a smaller last one is left out."""
        self.batch = static if static is not None else min(plan.batch, most)
        if self.whole and self.count < self.batch:
            message = f"`{entry.name}` takes {self.batch} samples at once, and `{path}` holds {self.count}"
            raise _error("bad-samples", message)
        self.per_epoch = self.count // self.batch if self.whole else -(-self.count // self.batch)
        rest = self.count % self.batch if self.whole else 0
        if rest:
            taken = f"`{entry.name}` takes {self.batch} samples at once"
            self.notes.append(f"{taken}, so each pass leaves out {rest} of the {self.count} samples of `{path}`")

    def batches(self, order: Array | None = None) -> Iterator[tuple[dict[str, Array], int]]:
        """Yields the arrays of each batch, and its number of samples."""
        for start in range(0, self.per_epoch * self.batch, self.batch):
            count = min(self.batch, self.count - start)
            chosen = slice(start, start + count) if order is None else np.sort(order[start : start + count])
            yield {name: array[chosen] for name, array in self.arrays.items()}, count


def check_conversion(shown: str, array: Array, wanted: str) -> str:
    """Returns a sentence about a conversion of floats to integers or booleans; "" without one. Raises DiagnosticError
    at a number that the conversion would change."""
    array, dtype = np.asarray(array), DTYPES[wanted]
    held = dtype_of(array)
    if dtype.is_float or held is dtype:
        return ""
    index = first_changed(array, dtype)
    if index is not None:
        place = f"[{', '.join(map(str, index))}]" if index else ""
        raise _error("bad-samples", f"{shown} is {array[index]}{f' at {place}' if place else ''}, no value of {wanted}")
    return f"{shown} is converted from {held.name} to {wanted}" if held.is_float else ""


def _described(array: Array) -> object:
    """Returns the elements of a small array, and a hash of a large one, for the metadata of a checkpoint."""
    if array.size <= _LISTED:
        return array.tolist()
    return f"{array.dtype}{list(array.shape)} {hashlib.sha256(array.tobytes()).hexdigest()}"


def _error(code: str, message: str, help_text: str = "") -> DiagnosticError:
    return DiagnosticError([Diagnostic(code, message, help=help_text)])


def fixed_batch(model: Model, entry: Entry, fixed: Mapping[str, Array]) -> tuple[int | None, int]:
    """Returns the batch size that the types of an entry state, None for a dim, and the greatest one."""
    described = next(e for e in model.describe()["entries"] if e["name"] == entry.name)
    dims = {d["name"]: d["high"] for d in described["dims"]}
    leads = {a.shape[0] for a in entry.arguments if a.name not in fixed and a.shape}
    static = [size for size in leads if isinstance(size, int)]
    highest = [INFINITY if dims.get(size) is None else int(dims[size]) for size in leads if isinstance(size, str)]
    return (static[0] if static else None), min(highest, default=INFINITY)


class NotFiniteError(DiagnosticError):
    """The loss is an infinity or a NaN."""


class Trainer:
    """One run of a plan on a session. With a `source`, an error about a loss that is not finite names an operator."""

    def __init__(
        self,
        model: Model,
        entry: Entry,
        data: Data,
        plan: Plan,
        dims: Mapping[str, int],
        source: SourceModel | None = None,
    ) -> None:
        self.plan, self.data, self.source = plan, data, source
        self.kept: tuple[int, Path | None] = (0, None)
        """The step of the last checkpoint, and its path; None for the initial states."""
        self.total, self.seen = 0.0, 0
        """The sum of the losses of the current epoch, and its number of samples."""
        self.steps, self.step = data.per_epoch * plan.epochs, 0
        first = self._inputs(entry, next(data.batches())[0], 0)
        bound = find_session_dims(model, entry.name, first, dims)
        if bound is None:
            message = f"`{entry.name}` keeps no states, so it trains nothing"
            raise _error("nothing-trained", message, "a `train` entry ends with `minimize`")
        self.session: Session = model.session(**bound)
        self.entry = self.session.entries[entry.name]
        self._check_batches(self.entry, data)
        self.workspace = self.entry.workspace_bytes(**self.entry.bind(*first))
        """The bytes of intermediate tensors of a step."""
        self.state_bytes = sum(np.asarray(value).nbytes for value in self.session.states.values())

    def check_evaluation(self, name: str, data: Data) -> None:
        """Raises NacreError or DiagnosticError if an entry does not take the batches of a file."""
        self._check_batches(self.session.entries[name], data)

    def _check_batches(self, entry: Entry, data: Data) -> None:
        """Checks the first batch, and the last one, which may be smaller than the entry admits."""
        first = next(data.batches())[0]
        rest = data.count % data.batch
        is_smaller = not data.whole and rest and data.per_epoch > 1
        try:
            entry.bind(*self._inputs(entry, first, 0))
        except ArgumentError as error:
            raise _error("bad-samples", f"samples of `{data.path}` do not fit `{entry.name}`: {error}") from None
        try:
            last = {name: array[:rest] for name, array in data.arrays.items()} if is_smaller else first
            entry.bind(*self._inputs(entry, last, 0))
        except ArgumentError as error:
            message = f"the last batch has {rest} samples, which `{entry.name}` does not take: {error}"
            raise _error("bad-samples", message, f"choose another --batch for {data.count} samples") from None

    def _inputs(self, entry: Entry, batch: Mapping[str, Array], step: int) -> list[Array]:
        """Returns the arguments of a step in order."""
        found: list[Array] = []
        for argument in entry.arguments:
            dtype = DTYPES[argument.dtype]
            array = batch[argument.name] if argument.name in batch else self.plan.fixed[argument.name]
            if argument.name in self.plan.schedules:
                array = np.asarray(array, np.float64) * self._factor(argument.name, step)
            found.append(np.asarray(cast_array(np.asarray(array), dtype)))
        return found

    def _factor(self, name: str, step: int) -> float:
        if step < self.plan.warm_up:
            return (step + 1) / self.plan.warm_up
        rest = max(1, self.steps - self.plan.warm_up)
        return SCHEDULES[self.plan.schedules[name]]((step - self.plan.warm_up) / rest)

    # --- checkpoints ---

    def _identity(self) -> dict[str, Any]:
        """Returns the parts of the plan that decide the bits of a run."""
        plan = self.plan
        fixed = {name: _described(np.asarray(array)) for name, array in sorted(plan.fixed.items())}
        rates = {"schedules": dict(sorted(plan.schedules.items())), "warm_up": plan.warm_up}
        limit = {"epochs": plan.epochs} if any(s != "constant" for s in plan.schedules.values()) else {}
        return {
            "samples": self.data.count,
            "batch": self.data.batch,
            "seed": plan.seed,
            "fixed": fixed,
            **rates,
            **limit,
        }

    def save(self, path: Path) -> None:
        """Writes a checkpoint. The file appears when it is complete."""
        progress = {"step": self.step, "total": self.total, "seen": self.seen, "plan": self._identity()}
        with reported(path):
            self.session.states.save(path, {PROGRESS: json.dumps(progress)})
        self.kept = (self.step, path)

    def resume(self, path: Path) -> None:
        """Continues after the step at which a checkpoint was written. Raises DiagnosticError if it was another run."""
        text = read_metadata(path).get(PROGRESS)
        if text is None:
            raise _error("other-run", f"`{path}` holds no progress of `nacre train`")
        try:
            progress = json.loads(text)
            plan = dict(progress["plan"])
            step, total, seen = int(progress["step"]), float(progress["total"]), int(progress["seen"])
        except (KeyError, TypeError, ValueError):
            raise _error("other-run", f"the progress in `{path}` is damaged, or of another version") from None
        other = {k: v for k, v in plan.items() if self._identity().get(k) != v}
        if other or plan.keys() != self._identity().keys():
            shown = ", ".join(f"{k} = {v}" for k, v in (other or plan).items())
            raise _error("other-run", f"`{path}` was written by a run with {shown}", "resume with the same options")
        self.session.restore(path)
        self.step, self.total, self.seen = step, total, seen
        if step % self.data.per_epoch == 0:
            self.total, self.seen = 0.0, 0
        self.kept = (self.step, path)

    # --- steps ---

    def run(self, report: Callable[[Progress], None], after_epoch: Callable[[int], None]) -> None:
        """Runs the remaining steps. Raises NotFiniteError at a loss that is not finite; the states are then those
        after the step."""
        start, begun = time.perf_counter(), self.step
        for epoch in range(self.step // self.data.per_epoch, self.plan.epochs):
            for batch, count in self._batches(epoch, self.step):
                inputs = self._inputs(self.entry, batch, self.step)
                scheduled = self._scheduled(inputs)
                loss = self._loss(inputs)
                self.step += 1
                if not math.isfinite(loss):
                    raise self._not_finite(loss, epoch + 1)
                self.total, self.seen = self.total + loss * count, self.seen + count
                mean, seconds = self.total / self.seen, time.perf_counter() - start
                speed = (self.step - begun) / seconds
                left = (self.steps - self.step) / speed
                report(Progress(epoch + 1, self.step, self.steps, loss, mean, seconds, left, speed, scheduled))
            self.total, self.seen = 0.0, 0
            after_epoch(epoch + 1)

    def _batches(self, epoch: int, first: int) -> Iterator[tuple[dict[str, Array], int]]:
        """Yields the batches of an epoch, from that of a step on."""
        order = np.random.default_rng([self.plan.seed, epoch]).permutation(self.data.count)
        for number, batch in enumerate(self.data.batches(order)):
            if epoch * self.data.per_epoch + number >= first:
                yield batch

    def _loss(self, inputs: Sequence[Array]) -> float:
        results = self.entry(*inputs)
        return float(np.asarray(results if len(self.entry.results) == 1 else results[0]).mean())

    def _scheduled(self, inputs: Sequence[Array]) -> dict[str, float]:
        names = [argument.name for argument in self.entry.arguments]
        given = {n: np.asarray(x) for n, x in zip(names, inputs, strict=True) if n in self.plan.schedules}
        return {name: float(array) for name, array in given.items() if not array.ndim}

    # --- a loss that is not finite ---

    def _not_finite(self, loss: float, epoch: int) -> NotFiniteError:
        name = self.entry.results[0].name
        message = f"`{name}` is {loss} after step {self.step}, in epoch {epoch}"
        help_text = "a smaller rate, or `clip 1.0` in the `minimize`, keeps updates small"
        wrong = [f"`{key}`" for key, array in self.data.arrays.items() if not are_finite({key: array})]
        if wrong:
            help_text = f"the samples of {', '.join(wrong)} contain a NaN or an infinity"
        found = None if self.source is None else self._find_culprit(self.source)
        if found is None or self.source is None:
            return NotFiniteError([Diagnostic("not-finite", message, help=help_text)])
        step, culprit = found
        node = culprit.node
        what = {"inf": "an infinity from finite numbers", "nan": "a NaN from other numbers"}[culprit.kind]
        inside = f" in `{node.scope}`" if node.scope else ""
        made = f"`{node.op}`{inside} is the first operator that computes {what}, in step {step}"
        notes = (Note(made, node.span),)
        return NotFiniteError([Diagnostic("not-finite", message, notes=notes, help=help_text)], self.source.sources)

    def _find_culprit(self, source: SourceModel) -> tuple[int, Culprit] | None:
        """Repeats the steps since the last checkpoint up to the first one after which a state or the loss is not
        finite. Returns the number of this step, and the node of it that made the first such number."""
        last, (step, path) = self.step, self.kept
        if path is None:
            self.session.reset()
        else:
            self.session.restore(path)
        before: tuple[Sequence[Array], Mapping[str, Array]] | None = None
        while step < last:
            for batch, _ in self._batches(step // self.data.per_epoch, step):
                inputs, states = self._inputs(self.entry, batch, step), dict(self.session.states)
                loss = self._loss(inputs)
                step += 1
                if not (math.isfinite(loss) and are_finite(dict(self.session.states))):
                    good = () if before is None else self._watch(source, *before)
                    culprit = first_new(self._watch(source, inputs, states), good)
                    return None if culprit is None else (step, culprit)
                before = inputs, states
                if step == last:
                    break
        return None

    def _watch(self, source: SourceModel, inputs: Sequence[Array], states: Mapping[str, Array]) -> Sequence[Culprit]:
        arguments = [*inputs, *(states[name] for name in self.entry.states)]
        return watch_step(source.module, open_parameters(source), self.entry.name, arguments)

    def evaluate(self, name: str, data: Data) -> float:
        """Returns the mean of the first result of another entry over the samples of a file."""
        entry = self.session.entries[name]
        total, seen = 0.0, 0
        for batch, count in data.batches():
            inputs: Sequence[Array] = self._inputs(entry, batch, 0)
            results = entry(*inputs)
            total += count * float(np.asarray(results if len(entry.results) == 1 else results[0]).mean())
            seen += count
        return total / seen
