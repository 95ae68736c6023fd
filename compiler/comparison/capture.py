"""The named values that a model computes in one call: a compiled model is observed while it runs.

Points are in the order in which kernels write them; the results of the call come last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import Array
from ...runtime.library import NacreError
from ...runtime.loader import Entry, Model, Session
from ...runtime.observe import Event, calls, observe
from .rounding import Rounding


@dataclass(frozen=True, slots=True)
class Point:
    """The tensor of a named value. `at` is its source location, `kernel` the kernel that wrote it, and `op` the
    operator that computes it; they are empty in a reference. `rounding` is the error relative to its largest number.
    `failure` is the error of a device in that kernel; the tensor then has no elements."""

    name: str
    array: Array
    at: str = ""
    kernel: str = ""
    op: str = ""
    rounding: float = 0.0
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Capture:
    """The points of a call by name, in order, and the sizes of its dims; a reference has no dims and no order, and may
    have a `note` about missing values."""

    points: Mapping[str, Point]
    dims: Mapping[str, int] = field(default_factory=dict)
    ordered: bool = True
    note: str = ""


def result_point(name: str) -> str:
    """Returns the name of a result's point; no value of a model has a space in its name."""
    return f"result {name}"


def _failed_points(model: Model, entry: Entry, number: int, failure: str) -> dict[str, Point]:
    """Returns the points of a kernel call, and the results, without tensors."""
    nothing = np.empty(0)
    made = {}
    for call in calls(model)[entry.name][number : number + 1]:
        for value in call.values:
            if value.point is not None:
                at, op = ("", "") if value.operation is None else (value.operation.at or "", value.operation.op)
                made[value.point.name] = Point(value.point.name, nothing, at, call.kernel, op, failure=failure)
    names = [result_point(described.name) for described in entry.results]
    return made | {name: Point(name, nothing, failure=failure) for name in names}


def capture(model: Model, entry: str, inputs: Sequence[Array], *, keeps_failure: bool = False) -> Capture:
    """Calls an entry once and keeps all of its points. Raises NacreError if the inputs do not fit, if the artifact is
    too old to be observed, or if a device fails. With `keeps_failure`, the points of the kernel in which it fails, and
    the results, have the failure instead of a tensor."""
    points: dict[str, Point] = {}
    reached = -1
    dims: dict[str, int] = {}
    precision = model.describe()["options"].get("precision")
    rounding = Rounding(lower=precision not in (None, "", "f32"))

    def keep(event: Event) -> None:
        nonlocal reached
        reached = event.call.number
        dims.update(event.dims)
        rounding.add(event.call, event.dims)
        for value in event.call.values:
            if value.point is not None:
                made = value.operation
                at, op = ("", "") if made is None else (made.at or "", made.op)
                name, array = value.point.name, np.array(value.point.turn(event.array(value)))
                points[name] = Point(name, array, at, event.call.kernel, op, rounding.share)

    called = model.entries[entry]
    try:
        with observe(model, keep):
            results = called(*inputs)
    except NacreError as error:
        # Other classes are errors of the caller, such as an index out of range.
        if not keeps_failure or model.device == "cpu" or type(error) is not NacreError:
            raise
        points |= _failed_points(model, called, reached + 1, str(error))
        return Capture(points, dims)
    made = results if isinstance(results, tuple) else (results,)
    for described, array in zip(called.results, made, strict=True):
        name = result_point(described.name)
        points[name] = Point(name, np.asarray(array), rounding=rounding.share)
    if isinstance(model, Session):
        for state in called.states:
            name = f"state {state}"
            points[name] = Point(name, model.states[state], rounding=rounding.share)
    return Capture(points, dims)
