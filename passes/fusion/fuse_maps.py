"""Summed and parallel axes of contractions, and axis orders of movements, derived from their lowerings.

The lowering runs with an emitter that writes no code: each tensor records the operand that its elements come from, as
long as only their dtype changes.

    matmul(x, w), x [B, T, K], w [B, K, N]     sums over axis 2 of x and axis 1 of w (`summed_axes`)
                                               each result depends on its own B and T alone in x (`axes_apart`: 0, 1)
    transpose(x) {axes = (0, 2, 1)}            axes 0, 1, 2 of x are axes 0, 2, 1 of the result (`permutation`)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...dialect.dims import Shape
from ...dialect.emitter import IndexMap, Loop, Result, identity, loop
from ...dialect.graph import Node
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ...dialect.type_emitter import TypeEmitter
from ...dialect.types import TensorType


@dataclass(frozen=True, slots=True)
class _Tensor:
    type: TensorType
    operand: int | None = None


class _Reader(TypeEmitter[_Tensor]):
    """The part of the emitter's protocol that contractions and movements use, without reads of single elements."""

    def __init__(self) -> None:
        super().__init__(_Tensor)
        self.summed: dict[int, set[int]] = {}
        self.apart: dict[int, set[int]] = {}
        self.maps: list[tuple[IndexMap, ...]] = []
        self.framed: set[int] = set()

    def map(self, result: TensorType, inputs: Sequence[tuple[_Tensor, IndexMap]], body: Callable[..., Any]) -> _Tensor:
        self.maps.append(tuple(map for _, map in inputs))
        alone = len(inputs) == 1 and inputs[0][1] == identity(result.rank)
        return _Tensor(result, inputs[0][0].operand if alone else None)

    def structured(
        self,
        loops: Sequence[Loop],
        inputs: Sequence[tuple[_Tensor, IndexMap]],
        results: Sequence[Result],
        body: Callable[..., Any],
    ) -> tuple[_Tensor, ...]:
        sums = {number for number, each in enumerate(loops) if not each.parallel}
        for tensor, map in inputs:
            if tensor.operand is None:
                continue
            axes = self.summed.setdefault(tensor.operand, set())
            axes |= {axis for axis, index in enumerate(map) if any(index == loop(number) for number in sums)}
            own = {loop(number) for number, each in enumerate(loops) if each.parallel}
            alike = enumerate(zip(map, results[0].map, strict=False))
            self.apart[tensor.operand] = {axis for axis, (read, made) in alike if read == made and read in own}
        return tuple(_Tensor(r.type) for r in results)

    def reshape(self, x: _Tensor, shape: Shape) -> _Tensor:
        return x if shape == x.type.shape else super().reshape(x, shape)

    def insert(self, source: _Tensor, target: _Tensor, starts: object, steps: Sequence[int]) -> _Tensor:
        if source.operand is not None and target.operand is None and set(steps) <= {1}:
            self.framed.add(source.operand)
        return super().insert(source, target, starts, steps)


def summed_axes(node: Node, operand: int) -> tuple[int, ...]:
    """Returns the axes of an operand over which the node sums products; none if they are unknown."""
    return tuple(sorted(_read(node).summed.get(operand, ())))


def axes_apart(node: Node, operand: int) -> tuple[int, ...]:
    """Returns the axes of an operand along which each index of a contraction's result depends on the same index
    alone."""
    return tuple(sorted(_read(node).apart.get(operand, ())))


def permutation(node: Node) -> tuple[int, ...] | None:
    """Returns the axis of the result for each axis of the operand, if the node only permutes axes."""
    if len(node.inputs) != 1 or len(node.outputs) != 1 or node.inputs[0].type.rank != node.output.type.rank:
        return None
    maps = _read(node).maps
    if len(maps) != 1 or len(maps[0]) != 1:
        return None
    loops = [loop(number) for number in range(node.output.type.rank)]
    order = [loops.index(index) for index in maps[0][0] if index in loops]
    return tuple(order) if sorted(order) == list(range(len(loops))) else None


def frames(node: Node) -> bool:
    """Returns whether the node puts its operand, unchanged, into a larger tensor that holds no other operand."""
    return len(node.inputs) == 1 and len(node.outputs) == 1 and _read(node).framed == {0}


def _read(node: Node) -> _Reader:
    operator = OPERATORS[node.op]
    reader: Any = _Reader()  # stands in for an Emitter, with separate tensors
    if operator.lower is not None:
        tensors: Any = [_Tensor(v.type, number) for number, v in enumerate(node.inputs)]
        operator.lower(reader, tensors, operator.complete(dict(node.attributes)), [v.type for v in node.outputs])
    found: _Reader = reader
    return found
