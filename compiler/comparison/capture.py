"""The named values that a model computes in one call: a compiled model is observed while it runs.

Points are in the order in which kernels write them; the results of the call come last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...dialect.types import Array
from ...runtime.loader import Model, Session
from ...runtime.observe import Event, observe
from .rounding import Rounding


@dataclass(frozen=True, slots=True)
class Point:
    """The tensor of a named value. `at` is its source location, `kernel` the kernel that wrote it, and `op` the
    operator that computes it; they are empty in a reference. `rounding` is the error relative to its largest number."""

    name: str
    array: Array
    at: str = ""
    kernel: str = ""
    op: str = ""
    rounding: float = 0.0


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


def capture(model: Model, entry: str, inputs: Sequence[Array]) -> Capture:
    """Calls an entry once and keeps all of its points. Raises NacreError if the inputs do not fit, or if the artifact
    is too old to be observed."""
    points: dict[str, Point] = {}
    dims: dict[str, int] = {}
    precision = model.describe()["options"].get("precision")
    rounding = Rounding(lower=precision not in (None, "", "f32"))

    def keep(event: Event) -> None:
        dims.update(event.dims)
        rounding.add(event.call, event.dims)
        for value in event.call.values:
            if value.point is not None:
                made = value.operation
                at, op = ("", "") if made is None else (made.at or "", made.op)
                name, array = value.point.name, np.array(value.point.turn(event.array(value)))
                points[name] = Point(name, array, at, event.call.kernel, op, rounding.share)

    called = model.entries[entry]
    with observe(model, keep):
        results = called(*inputs)
    made = results if isinstance(results, tuple) else (results,)
    for described, array in zip(called.results, made, strict=True):
        name = result_point(described.name)
        points[name] = Point(name, np.asarray(array), rounding=rounding.share)
    if isinstance(model, Session):
        for state in called.states:
            name = f"state {state}"
            points[name] = Point(name, model.states[state], rounding=rounding.share)
    return Capture(points, dims)
