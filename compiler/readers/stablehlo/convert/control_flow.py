"""Calls, choices and loops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from .....dialect.types import BOOL
from ...writing.tensors import Tensor
from ..writing.use import Converters, Use


def _call(use: Use) -> Sequence[Tensor]:
    return use.call(str(use.record.attributes["callee"]).lstrip("@"), use.operands)


def _composite(use: Use) -> Sequence[Tensor]:
    return use.call(str(use.record.attributes["decomposition"]).lstrip("@"), use.operands)


def _case(use: Use) -> Sequence[Tensor]:
    """`case` with two branches, and `if`: the first branch of `if` is that for true."""
    g, regions = use.g, list(use.record.regions)
    condition = use.x
    if condition.dtype != BOOL:
        if len(regions) != 2:
            use.fail(f"chooses among {len(regions)} branches")
        condition = g.equal(condition, g.like(0, condition))
    if condition.array is not None:
        return use.run_block(regions[0 if bool(condition.array) else 1], ())

    made = [g.region([], partial(use.run_block, block)) for block in regions]
    return g.control("if", [condition], {}, made, [value.type for value in made[0].results])


def _while(use: Use) -> Sequence[Tensor]:
    g = use.g
    types = [each.type for each in use.operands]
    regions = [g.region(types, partial(use.run_block, block)) for block in use.record.regions]
    return g.control("while", list(use.operands), {}, regions, types)


def _custom_call(use: Use) -> Sequence[Tensor]:
    target = str(use.record.attributes.get("call_target_name", ""))
    if target == "shape_assertion":
        # The dims of the model keep what the assertion states, if their values are known to hold.
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
