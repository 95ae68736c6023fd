"""Calls, conditionals, loops, and functions of single elements."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from .....dialect.types import BOOL
from ...writing.tensors import Tensor
from ..writing.assertions import assert_sizes
from ..writing.items import Item, flatten, rebuild
from ..writing.records import BlockRecord
from ..writing.use import Converters, Use
from .windows import dynamic_reduce_window


def _call(use: Use) -> Sequence[Item]:
    return use.call(str(use.record.attributes["callee"]).lstrip("@"), use.items)


def _composite(use: Use) -> Sequence[Item]:
    return use.call(str(use.record.attributes["decomposition"]).lstrip("@"), use.items)


def _case(use: Use) -> Sequence[Item]:
    """Converts `case` and `if`. The first branch of `if` is the one for true."""
    return _chosen(use, use.x, list(use.record.regions))


def _chosen(use: Use, index: Tensor, blocks: Sequence[BlockRecord]) -> Sequence[Item]:
    """Returns the results of the block selected by the index; the last block is the default for any other index."""
    g = use.g
    if index.array is not None:
        number = 0 if index.dtype == BOOL and bool(index.array) else int(index.array) if index.dtype != BOOL else 1
        return use.run_block(blocks[number if 0 <= number < len(blocks) else -1], ())
    if len(blocks) == 1:
        return use.run_block(blocks[0], ())
    condition = index if index.dtype == BOOL else g.equal(index, g.like(0, index))

    made: list[Item] = []

    def first(arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        made[:] = use.run_block(blocks[0], ())
        return flatten(made)

    def rest(arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        if len(blocks) == 2:
            return flatten(use.run_block(blocks[1], ()))
        return flatten(_chosen(use, g.subtract(index, g.like(1, index)), blocks[1:]))

    regions = [g.region([], first), g.region([], rest)]
    return rebuild(made, g.control("if", [condition], {}, regions, [value.type for value in regions[0].results]))


def _while(use: Use) -> Sequence[Item]:
    g = use.g
    carried = flatten(use.items)
    types = [each.type for each in carried]

    def run(block: BlockRecord, arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        return flatten(use.run_block(block, rebuild(use.items, arguments)))

    regions = [g.region(types, partial(run, block)) for block in use.record.regions]
    return rebuild(use.items, g.control("while", carried, {}, regions, types))


def _map(use: Use) -> Sequence[Item]:
    """Converts the body, a function of single elements, and applies it to whole tensors."""
    (body,) = use.record.regions
    shape = use.x.shape
    made = use.run_elementwise(body, use.operands)
    return [each if each.shape == shape else use.g.broadcast_to(each, shape=shape) for each in flatten(made)]


def _custom_call(use: Use) -> Sequence[Item]:
    target = str(use.record.attributes.get("call_target_name", ""))
    if target == "shape_assertion":
        assert_sizes(use)
        return []
    if target == "stablehlo.dynamic_reduce_window":
        return dynamic_reduce_window(use)
    if target == "Sharding":
        return use.items
    use.fail(f"calls `{target}`, which is not part of StableHLO", code="unsupported-operator")


CONVERTERS: Converters = {
    "func.call": _call,
    "composite": _composite,
    "case": _case,
    "if": _case,
    "map": _map,
    "while": _while,
    "custom_call": _custom_call,
}
