"""Layers of each channel alone, which are computed slice by slice: which kernels are, and that numbers stay right on
watched memory and with units in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from differential.directed import LEVELS, assert_right, case
from differential.maker import Graph
from differential.native import Level
from nacre.compiler.codegen.structured.body_nodes import Node
from nacre.compiler.codegen.tiler.schedule import Stage
from nacre.compiler.codegen.tiler.slices import _candidates
from nacre.compiler.codegen.tiler.structure import Buffer, Op, Tensor, View
from nacre.dialect.emitter import loops
from schedules import generate, schedules


def layers(count: int, **attributes: Any) -> Any:
    """Convolutions of each channel alone; the first weight is that of all of them."""

    def write(b: Any, x: Any, weight: Any, *bias: Any) -> Any:
        for _ in range(count):
            given = {"padding": 1, "groups": x.type.shape[1]} | attributes
            (x,) = b.apply(f"conv{x.type.rank - 2}d", [x, weight, *bias], given)
            x = b.relu(x)
        return x

    return write


def framed_twice(b: Any, x: Any, w: Any) -> Any:
    """Frames of different constants and widths, which no two slices may share."""
    padded = b.pad(x, widths=((0, 0), (0, 0), (1, 1), (1, 1)), value=1.5)
    y = b.conv2d(padded, w, groups=24)
    return b.conv2d(b.pad(b.tanh(y), widths=((0, 0), (0, 0), (2, 0), (0, 2)), value=-0.5), w, groups=24)


def used_between(b: Any, x: Any, w: Any) -> Sequence[Any]:
    y = b.conv2d(x, w, padding=1, groups=24)
    return [y, b.conv2d(b.relu(y), w, padding=1, groups=24)]


def added_to(b: Any, x: Any, w: Any) -> Any:
    return b.add(x, b.relu(b.conv2d(b.conv2d(x, w, padding=1, groups=24), w, padding=1, groups=24)))


def mixed_channels(b: Any, x: Any, w: Any, v: Any) -> Any:
    """A layer of all channels between two of each alone."""
    y = b.conv2d(x, w, padding=1, groups=24)
    return b.conv2d(b.conv2d(y, v), w, padding=1, groups=24)


def concatenated(b: Any, x: Any, y: Any, z: Any) -> Any:
    """Parts of one result: the middle one is computed, the others are copied."""
    return b.concat(x, b.exp(y), z, axis=1)


def overwritten(b: Any, x: Any, y: Any) -> Any:
    """A part that is written twice: the second time counts."""
    return b.slice_update(b.exp(x), y, starts=(0, 3), stops=(20, 20))


def reflected(b: Any, x: Any) -> Any:
    return b.pad(x, widths=((0, 0), (2, 1), (3, 3)), mode="reflect")


def from_last(b: Any, x: Any, w: Any) -> Any:
    """Images whose channels lie last anyway."""
    y = b.conv2d(b.transpose(x, axes=(0, 3, 1, 2)), w, padding=1, groups=24)
    return b.transpose(b.conv2d(y, w, padding=1, groups=24), axes=(0, 2, 3, 1))


WEIGHT = "*f32[24, 1, 3, 3]"


def chains() -> list[Graph]:
    return [
        case("chain", layers(4), "f32[1, 24, 19, 21]", WEIGHT, "*f32[24]"),
        case("chain_of_batches", layers(3), "f32[3, 24, 9, 16]", WEIGHT),
        case("chain_of_no_batch", layers(2), "f32[B, 24, 9, 16]", WEIGHT, sizes=[{"B": 0}, {"B": 1}, {"B": 20}]),
        case("chain_of_5", layers(2, padding=2), "f32[1, 32, 14, 14]", "*f32[32, 1, 5, 5]", "*f32[32]"),
        case("chain_dilated", layers(2, padding=2, dilation=2), "f32[1, 24, 17, 33]", WEIGHT),
        case("chain_unpadded", layers(3, padding=0), "f32[2, 24, 17, 33]", WEIGHT),
        case("chain_one_side", layers(2, padding=(2, 0, 0, 1)), "f32[1, 24, 10, 40]", WEIGHT),
        case("chain_1d", layers(3), "f32[2, 24, 50]", "*f32[24, 1, 3]"),
        case("chain_3d", layers(2), "f32[1, 24, 4, 5, 9]", "*f32[24, 1, 3, 3, 3]"),
        case("chain_too_large", layers(2), "f32[1, 16, 180, 170]", "*f32[16, 1, 3, 3]"),
        case("chain_strided", layers(2, stride=2), "f32[1, 24, 33, 40]", WEIGHT),
        case("chain_in_f16", layers(2), "f16[1, 24, 12, 17]", "*f16[24, 1, 3, 3]", "*f16[24]"),
        case("few_channels", layers(2), "f32[1, 8, 12, 17]", "*f32[8, 1, 3, 3]", "*f32[8]"),
        case("framed_twice", framed_twice, "f32[1, 24, 12, 17]", WEIGHT),
        case("used_between", used_between, "f32[1, 24, 12, 17]", WEIGHT),
        case("added_to", added_to, "f32[1, 24, 12, 17]", WEIGHT),
        case("mixed_channels", mixed_channels, "f32[1, 24, 12, 17]", WEIGHT, "*f32[24, 24, 1, 1]"),
        case("from_last", from_last, "f32[1, 12, 17, 24]", WEIGHT),
        case("reflected", reflected, "f32[2, 17, 37]"),
        case("reflected_bytes", reflected, "i8[1, 3, 4]"),
        case("reflected_words", reflected, "i64[T, 9, 5]", sizes=[{"T": 0}, {"T": 1}, {"T": 3}]),
        case("concatenated", concatenated, "f32[17, 5]", "f32[17, 33]", "f32[17, 1]"),
        case("concatenated_nothing", concatenated, "f32[17, 0]", "f32[17, 33]", "f32[17, 0]"),
        case("overwritten", overwritten, "f32[20, 40]", "f32[20, 17]"),
        case("no_rows", layers(2), "f32[1, 24, 0, 17]", WEIGHT),
    ]


@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_chains(level: Level) -> None:
    assert_right(chains(), level)


def build(shape: str, channels: int, *lines: str) -> tuple[list[tuple[str, ...]], int]:
    """The schedules of all kernels of a model of these lines, and the workspace of a call of it."""
    body = "\n".join(f"  {line}" for line in lines)
    weights = f"  param w: f32[{channels}, 1, 3, 3]\n  param b: f32[{channels}]"
    program = generate(f"model m(x: {shape}) -> {shape} {{\n{weights}\n{body}\n}}\n")
    (entry,) = program.entries
    assert isinstance(entry.workspace, int), entry
    return schedules(program), entry.workspace


def schedules_of(shape: str, result: str, value: str) -> list[tuple[str, ...]]:
    """The schedules of all kernels of a model that computes one value of x."""
    return schedules(generate(f"model m(x: {shape}) -> {result} {{\n  return {value}\n}}\n"))


def layer(channels: int, of: str = "x") -> str:
    return f"x = relu(conv2d({of}, w, b, padding=1, groups={channels}))"


def test_a_chain_is_computed_slice_by_slice_without_memory() -> None:
    for count in (1, 4):
        assert build("f32[1, 32, 20, 20]", 32, *[layer(32)] * count, "return x") == ([("slices",)], 0)


def test_slices_are_images_and_channels() -> None:
    assert build("f32[4, 8, 20, 20]", 8, layer(8), layer(8), "return x") == ([("slices",)], 0)


def test_parts_of_a_result_are_computed_slice_by_slice() -> None:
    """The edges and the middle of an image are; parts that follow one another in memory are not."""
    padded = 'pad(x, ((0, 0), (2, 2), (3, 3)), mode="reflect")'
    assert schedules_of("f32[2, 20, 40]", "f32[2, 24, 46]", padded) == [("slices",)]
    assert schedules_of("f32[20, 40]", "f32[20, 80]", "concat(x, x, axis=1)") == [("slices",)]
    assert schedules_of("f32[20, 40]", "f32[40, 40]", "concat(x, x, axis=0)") == [("map", "map")]


def test_few_slices_and_large_ones_are_no_slices() -> None:
    for shape, channels in (("f32[1, 12, 20, 20]", 12), ("f32[1, 16, 180, 180]", 16)):
        (schedules, *_), workspace = build(shape, channels, layer(channels), layer(channels), "return x")
        assert "slices" not in schedules
        assert workspace > 0


def test_images_with_channels_last_stay_so() -> None:
    lines = ["x = transpose(x, axes=(0, 3, 1, 2))", layer(32), layer(32), "return transpose(x, axes=(0, 2, 3, 1))"]
    schedules, _ = build("f32[1, 20, 20, 32]", 32, *lines)
    assert all("slices" not in each for each in schedules)


def test_vectors_are_no_slices() -> None:
    """Only the loops around the contiguous one of a result may be steps of slices."""
    sizes = (4, 32, 20, 20)
    op = Op(sizes, (True,) * 4, (), loops(0, 1, 2, 3), Node("constant", "f32", text="1.0"), None)
    op.result = Tensor(sizes, "f32", View(Buffer("r", "f32"), 0, (12800, 400, 20, 1)), op=op)
    stage = Stage([op], {(id(op), loop): loop for loop in range(4)}, list(sizes), [op])
    assert _candidates(stage) == [0, 1, 2]
