"""What a model computes in one call, at every named point: a compiled model is observed while it runs.

Points are in the order in which kernels leave them; the results of the call come last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...dialect.types import Array
from ...runtime.loader import Model
from ...runtime.observe import Event, observe


@dataclass(frozen=True, slots=True)
class Point:
    """The tensor at a named point. `at` is where in the model it is written, `kernel` what left it; both are empty in a
    reference. `operations` counts those of the model up to there; `in_blocks`: one of them is a convolution that is
    computed in blocks."""

    name: str
    array: Array
    at: str = ""
    kernel: str = ""
    operations: int = 0
    in_blocks: bool = False


@dataclass(frozen=True, slots=True)
class Capture:
    """The points of a call by name, in order, and the sizes of the dims in it; a reference has no dims and no order."""

    points: Mapping[str, Point]
    dims: Mapping[str, int] = field(default_factory=dict)
    ordered: bool = True


_IN_BLOCKS = "winograd_input"
"""The operation that only such a convolution has."""


def result_point(name: str) -> str:
    """What the point of a result is called; no value of a model has a space in its name."""
    return f"result {name}"


def capture(model: Model, entry: str, inputs: Sequence[Array]) -> Capture:
    """Calls an entry once and keeps all of its points. Raises NacreError where the inputs do not fit, or where the
    artifact is too old to be observed."""
    points: dict[str, Point] = {}
    dims: dict[str, int] = {}
    operations, in_blocks = 0, False

    def keep(event: Event) -> None:
        nonlocal operations, in_blocks
        dims.update(event.dims)
        operations += len(event.call.operations)
        in_blocks = in_blocks or any(operation.op == _IN_BLOCKS for operation in event.call.operations)
        for value in event.call.values:
            if value.point is not None:
                at = value.operation.at if value.operation is not None else None
                name, array = value.point.name, np.array(value.point.turn(event.array(value)))
                points[name] = Point(name, array, at or "", event.call.kernel, operations, in_blocks)

    called = model.entries[entry]
    with observe(model, keep):
        results = called(*inputs)
    made = results if isinstance(results, tuple) else (results,)
    for described, array in zip(called.results, made, strict=True):
        name = result_point(described.name)
        points[name] = Point(name, np.asarray(array), operations=operations, in_blocks=in_blocks)
    return Capture(points, dims)
