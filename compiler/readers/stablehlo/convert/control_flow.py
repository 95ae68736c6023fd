"""Calls, choices and loops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from .....dialect.types import BOOL
from ...writing.tensors import Tensor
from ..writing.records import BlockRecord
from ..writing.use import Converters, Use


def _call(use: Use) -> Sequence[Tensor]:
    return use.call(str(use.record.attributes["callee"]).lstrip("@"), use.operands)


def _composite(use: Use) -> Sequence[Tensor]:
    return use.call(str(use.record.attributes["decomposition"]).lstrip("@"), use.operands)


def _case(use: Use) -> Sequence[Tensor]:
    """Converts `case` and `if`. The first branch of `if` is the one for true."""
    return _chosen(use, use.x, list(use.record.regions))


def _chosen(use: Use, index: Tensor, blocks: Sequence[BlockRecord]) -> Sequence[Tensor]:
    """Returns the results of the block selected by the index; the last block is the default for any other index."""
    g = use.g
    if index.array is not None:
        number = 0 if index.dtype == BOOL and bool(index.array) else int(index.array) if index.dtype != BOOL else 1
        return use.run_block(blocks[number if 0 <= number < len(blocks) else -1], ())
    if len(blocks) == 1:
        return use.run_block(blocks[0], ())
    condition = index if index.dtype == BOOL else g.equal(index, g.like(0, index))

    def rest(arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        if len(blocks) == 2:
            return use.run_block(blocks[1], ())
        return _chosen(use, g.subtract(index, g.like(1, index)), blocks[1:])

    made = [g.region([], partial(use.run_block, blocks[0])), g.region([], rest)]
    return g.control("if", [condition], {}, made, [value.type for value in made[0].results])


def _while(use: Use) -> Sequence[Tensor]:
    g = use.g
    types = [each.type for each in use.operands]
    regions = [g.region(types, partial(use.run_block, block)) for block in use.record.regions]
    return g.control("while", list(use.operands), {}, regions, types)


def _custom_call(use: Use) -> Sequence[Tensor]:
    target = str(use.record.attributes.get("call_target_name", ""))
    if target == "shape_assertion":
        # An assertion that depends on dims is omitted; one that is known while the file is read must hold.
        if use.x.array is None or bool(use.x.array):
            return []
        use.fail("asserts a relation of dims that does not hold", code="failed-assertion")
    if target == "Sharding":
        return list(use.operands)
    use.fail(f"calls `{target}`, which is not part of StableHLO", code="unsupported-operator")


CONVERTERS: Converters = {
    "func.call": _call,
    "composite": _composite,
    "case": _case,
    "if": _case,
    "while": _while,
    "custom_call": _custom_call,
}
