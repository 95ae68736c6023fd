"""Values that are computed again have the same bits: random graphs, with one to eight segments computed twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from nacre.dialect.graph import Function, Module, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import F32, TensorType
from nacre.dialect.verifier import verify
from nacre.passes.fusion.recompute import MARGIN, Recompute, live_bytes, with_segments
from random_graphs import DIM_VALUES, assert_same_bits, random_module, run_module


@pytest.mark.parametrize("part", range(2))
def test_random_graphs_keep_every_bit(part: int) -> None:
    copied = 0
    for seed in range(part, 24, 2):
        module = random_module(seed, steps=40)
        (function,) = module.functions
        with np.errstate(all="ignore"):
            expected = run_module(module, seed)
            for count in (2, 3, 9):
                again = with_segments(function, count, DIM_VALUES[0])
                copied += len(again.body) - len(function.body)
                changed = replace(module, functions=(again,))
                verify(changed)
                assert_same_bits(expected, run_module(changed, seed))
    assert copied > 50


def test_bytes_of_live_tensors() -> None:
    """A tensor is live from the node that writes it to the last one that reads it; results and views count nothing."""
    b = Builder(OPERATORS)
    x = Value("x", TensorType(F32, (64,)))
    first = b.exp(x)
    second = b.exp(b.reshape(first, shape=(8, 8)))
    third = b.add(second, b.reshape(first, shape=(8, 8)))
    b.exp(third)
    function = Function("f", (x,), tuple(b.nodes), (third,))
    assert [node.op for node in function.body] == ["exp", "reshape", "exp", "reshape", "add", "exp"]
    assert live_bytes(function, {}) == [256, 256, 512, 512, 512, 256]


FORWARD = ("exp", "tanh", "sin", "cos", "sqrt", "erf", "floor", "ceil")


def chain(narrow: int | None) -> Function:
    """A chain of operators, then a product with each of their results, the last one first. Number `narrow` is a sum."""
    b = Builder(OPERATORS)
    x = y = Value("x", TensorType(F32, (64,)))
    kept = []
    for number, operator in enumerate(FORWARD):
        kept.append(b.sum(y, axis=0, keepdims=True) if number == narrow else b.apply(operator, (y,), {})[0])
        y = b.broadcast_to(kept[-1], shape=(64,)) if number == narrow else kept[-1]
    for each in reversed(kept):
        y = b.multiply(y, each)
    return Function("f", (x,), tuple(b.nodes), (y,), ("y",))


@pytest.mark.parametrize(
    ("narrow", "count", "copied"),
    [
        # All values have one size: the segment ends at an equal share.
        (None, 2, ["exp", "tanh", "sin"]),
        (None, 3, ["cos", "exp", "tanh"]),
        # Fewer bytes pass where a sum is broadcast.
        (2, 2, ["exp", "tanh"]),
        (5, 2, ["exp", "tanh", "sin", "cos", "sqrt"]),
    ],
)
def test_segments_end_where_few_bytes_pass(narrow: int | None, count: int, copied: list[str]) -> None:
    again = with_segments(chain(narrow), count, {})
    behind = [node.op for node in again.body[len(FORWARD) + 1 :]]
    assert [op for op in behind if op not in ("multiply", "sum", "broadcast_to")] == copied


@pytest.mark.parametrize(("limit", "is_changed"), [(2488, True), (2489, False)])
def test_a_function_that_fits_with_a_margin_stays(limit: int, is_changed: bool) -> None:
    function = chain(None)
    assert max(live_bytes(function, {})) == 2304 and 2488 < 2304 * MARGIN < 2489
    module = Module("m", (), (), (function,))
    (made,) = Recompute("f", limit, fuses=False).run(module).functions
    assert (made != function) == is_changed
    assert max(live_bytes(made, {})) * MARGIN <= limit
