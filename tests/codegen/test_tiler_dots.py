"""Sums of products of bytes and of bfloats, a group of steps at a time: sizes around the width of a group, of a vector
and of a tile, for CPUs with instructions for them and for CPUs without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from differential.directed import LEVELS, assert_right, case
from differential.maker import Graph
from differential.native import Level
from nacre.compiler.targets.target import parse_targets
from nacre.dialect.ops.support.layouts import LAST
from nacre.dialect.types import BF16, F32, I32, U8

WIDE = tuple(Level(2, cpu, quick=True) for cpu in ("x86-64-v4", "x86-64-v4-vnni-bf16"))
"""Vectors of 512 bits, without products of bytes and of bfloats, and with both: emulated where this CPU lacks them."""
EVERY = [*LEVELS, *WIDE]
SIZES = ((1, 1, 8), (3, 5, 40), (8, 2, 16), (9, 33, 100), (7, 64, 17), (17, 6, 48), (2, 255, 130))


@pytest.fixture(autouse=True)
def _emulated(request: pytest.FixtureRequest) -> None:
    """Emulation takes a minute; by default, `tests/operators/test_variants.py` has fewer cases of it."""
    level = getattr(request.node, "callspec", None) and request.node.callspec.params.get("level")
    if level in WIDE and not parse_targets(level.cpu)[0].runs_here and not request.config.getoption("--variants"):
        pytest.skip("another CPU: is emulated with --variants")


def product(b: Any, x: Any, w: Any) -> Any:
    return b.matmul(x, w)


def residual(b: Any, x: Any, w: Any, bias: Any, other: Any) -> Any:
    return b.add(other, b.relu(b.add(b.matmul(x, w), bias)))


def summed_again(b: Any, w: Any, x: Any) -> Any:
    """The inner loop of the sum moves through x alone, and the outer one has the groups of steps."""
    return b.einsum(w, x, equation="jk,itk->ij")


def turned(b: Any, x: Any, w: Any) -> Any:
    return b.einsum(x, w, equation="mk,nk->mn", into=F32)


def of_rows(b: Any, x: Any, w: Any) -> Any:
    return b.einsum(x, w, equation="km,kn->mn", into=F32)


def unpacked() -> list[Graph]:
    """Both factors are arguments: panels of columns are copied for many rows, in pairs of steps or widened; whole ones
    and stretches, with a last step alone."""
    rows = [{"M": m} for m in (0, 1, 7, 33)]
    return [
        case("apart_bf16", product, "bf16[33, 35]", "bf16[35, 33]"),
        case("apart_bf16_batched", product, "bf16[2, 34, 33]", "bf16[2, 33, 16]"),
        case("apart_bf16_long", product, "bf16[32, 3201]", "bf16[3201, 16]"),
        case("apart_bf16_inner", product, "bf16[32, K + 32]", "bf16[K + 32, 20]", sizes=[{"K": 0}, {"K": 37}]),
        case("turned_bf16_rows", turned, "bf16[M, 40]", "bf16[17, 40]", sizes=rows),
        case("turned_bf16_long", turned, "bf16[9, 3201]", "bf16[20, 3201]"),
        case("turned_bf16_inner", turned, "bf16[5, M]", "bf16[20, M]", sizes=rows),
        case("turned_bf16_columns", turned, "bf16[5, 70]", "bf16[M, 70]", sizes=rows),
        case("both_apart_bf16", of_rows, "bf16[130, 64]", "bf16[130, 48]"),
        case("both_apart_bf16_odd", of_rows, "bf16[33, 9]", "bf16[33, 35]"),
        case("both_apart_bf16_rows", of_rows, "bf16[40, M]", "bf16[40, 17]", sizes=rows),
        case("apart_bf16_few_rows", product, "bf16[4, 33]", "bf16[33, 50]"),
        case("apart_bf16_any_rows", product, "bf16[M, 33]", "bf16[33, 50]", sizes=rows),
        case("apart_f16", product, "f16[64, 33]", "f16[33, 50]"),
    ]


def bfloats() -> list[Graph]:
    rows = [{"M": m} for m in (0, 1, 7, 9, 16)]
    return [
        *(case(f"bf16_{m}_{k}_{n}", product, f"bf16[{m}, {k}]", f"*bf16[{k}, {n}]") for m, k, n in SIZES),
        case("bf16_rows", product, "bf16[M, 35]", "*bf16[35, 50]", sizes=rows),
        case("bf16_stretches", product, "bf16[M, 601]", "*bf16[601, 50]", sizes=rows),
        case("bf16_summed_again", summed_again, "*bf16[32, 256]", "bf16[8, 3, 256]"),
        case("bf16_batched", product, "bf16[2, M, 6]", "*bf16[2, 6, 20]", sizes=rows),
        case("bf16_residual", residual, "bf16[M, 9]", "*bf16[9, 23]", "bf16[23]", "bf16[M, 23]", sizes=rows),
    ]


@pytest.mark.parametrize("level", EVERY, ids=str)
def test_bfloats(level: Level) -> None:
    assert_right(bfloats(), level)


@pytest.mark.parametrize("level", [*LEVELS, WIDE[1]], ids=str)
def test_unpacked_matrices(level: Level) -> None:
    assert_right(unpacked(), level)


def summed_wider(b: Any, x: Any, w: Any) -> Any:
    return b.matmul(x, w, into=I32 if x.type.dtype.bits == 8 else F32)


def rescaled(b: Any, x: Any, w: Any, shift: Any, rows: Any, columns: Any, bias: Any) -> Any:
    """A layer of a network in bytes, from codes of rows to numbers."""
    total = b.cast(b.subtract(b.matmul(x, w, into=I32), shift), dtype=F32)
    return b.relu(b.add(b.multiply(b.multiply(total, rows), columns), bias))


def encode(b: Any, x: Any, scale: Any, zero: float) -> Any:
    steps = b.round(b.multiply(x, b.divide(b.scalar(1.0, F32), scale)))
    return b.cast(b.add(steps, b.scalar(zero, F32)), dtype=U8)


def requantized(b: Any, x: Any, w: Any, scale: Any, bias: Any) -> Any:
    """From codes to codes."""
    total = b.cast(b.matmul(x, w, into=I32), dtype=F32)
    return encode(b, b.relu(b.add(b.multiply(total, scale), bias)), b.scalar(0.5, F32), 3.0)


def quantized_rows(b: Any, x: Any) -> Sequence[Any]:
    """As a layer gets them that is quantized while it runs."""
    scale = b.divide(b.max(b.abs(x), axis=-1, keepdims=True), b.scalar(127.0, F32))
    return [encode(b, x, scale, 128.0), scale]


def normed_to_bfloats(b: Any, x: Any, weight: Any) -> Any:
    return b.cast(b.layer_norm(x, weight, axes=-1), dtype=BF16)


def bfloat_layer(b: Any, x: Any, w: Any, bias: Any) -> Any:
    return b.cast(b.gelu(b.add(b.matmul(x, w, into=F32), bias)), dtype=BF16)


def of_bytes() -> list[Graph]:
    pairs = [(x, w) for x in ("u8", "i8") for w in ("i8", "u8")]
    mixed = [
        case(f"{x}_{w}_{m}_{k}_{n}", summed_wider, f"{x}[{m}, {k}]", f"*{w}[{k}, {n}]")
        for i, (m, k, n) in enumerate(SIZES)
        for x, w in (pairs[0], pairs[1 + i % 3])
    ]
    rows = [{"M": m} for m in (0, 1, 7, 9, 16)]
    return [
        *mixed,
        case("u8_i8_rows", summed_wider, "u8[M, 35]", "*i8[35, 50]", sizes=rows),
        case(
            "rescaled",
            rescaled,
            "u8[M, 19]",
            "*i8[19, 50]",
            *["i32[50]", "f32[M, 1]", "f32[50]", "f32[50]"],
            sizes=rows,
        ),
        case("requantized", requantized, "u8[M, 16]", "*i8[16, 70]", "f32[70]", "f32[70]", sizes=rows),
        case("quantized_rows", quantized_rows, "f32[M, 70]", sizes=rows),
        case("normed_to_bfloats", normed_to_bfloats, "f32[M, 70]", "f32[70]", sizes=rows),
        case("bfloat_layer", bfloat_layer, "bf16[M, 20]", "*bf16[20, 55]", "f32[55]", sizes=rows),
        case("bf16_f32", summed_wider, "bf16[M, 35]", "*bf16[35, 50]", sizes=rows),
    ]


@pytest.mark.parametrize("level", EVERY, ids=str)
def test_bytes(level: Level) -> None:
    assert_right(of_bytes(), level)


def convolved(**attributes: Any) -> Any:
    return lambda b, x, w: b.conv2d(x, w, into=I32 if x.type.dtype.bits == 8 else F32, **attributes)


def last(b: Any, x: Any, w: Any) -> Any:
    return b.conv2d(x, w, into=F32, layout=LAST, padding=1)


DEPTHWISE: Sequence[tuple[int, tuple[int, int], int, int, str, str, Mapping[str, Any]]] = (
    (8, (3, 3), 5, 9, "u8", "i8", {}),
    (40, (3, 3), 4, 17, "u8", "i8", {"stride": 2}),
    (33, (5, 5), 7, 12, "u8", "i8", {"padding": 2}),
    (100, (2, 4), 3, 11, "i8", "i8", {}),
    (16, (4, 1), 9, 3, "u8", "u8", {"dilation": 2}),
    (31, (7, 7), 8, 15, "i8", "u8", {"padding": 3}),
    (64, (1, 3), 3, 8, "u8", "i8", {}),
    (7, (3, 3), 5, 9, "u8", "i8", {}),
)
"""Channels, offsets, places, dtypes, and what else there is: with a kernel for each channel, channels last."""


def windows() -> list[Graph]:
    """With channels that fill groups, and with some that do not."""
    return [
        case("conv_3x3", convolved(padding=1), "u8[2, 8, 7, 9]", "*i8[20, 8, 3, 3]"),
        case("conv_3x3_rest", convolved(padding=1), "u8[1, 6, 9, 17]", "*i8[17, 6, 3, 3]"),
        case("conv_1x1", convolved(), "u8[B, 17, 5, 5]", "*i8[33, 17, 1, 1]", sizes=[{"B": 0}, {"B": 3}]),
        case("conv_stride", convolved(stride=2, padding=1), "i8[1, 5, 15, 18]", "*i8[8, 5, 3, 3]"),
        case("conv_grouped", convolved(groups=2), "u8[1, 8, 9, 17]", "*i8[16, 4, 3, 3]"),
        case("conv_depthwise", convolved(groups=17, padding=1), "u8[2, 17, 16, 33]", "*i8[17, 1, 3, 3]"),
        *(
            case(
                f"conv_depthwise_{i}",
                convolved(groups=c, layout=LAST, **attributes),
                f"{x}[B, {height}, {width}, {c}]",
                f"*{w}[{kernel[0]}, {kernel[1]}, 1, {c}]",
                sizes=[{"B": 0}, {"B": 2}],
            )
            for i, (c, kernel, height, width, x, w, attributes) in enumerate(DEPTHWISE)
        ),
        case("conv_bfloats", convolved(padding=1), "bf16[1, 5, 9, 17]", "*bf16[17, 5, 3, 3]"),
        case("conv_bfloats_last", last, "bf16[1, 9, 17, 12]", "*bf16[3, 3, 12, 24]"),
    ]


@pytest.mark.parametrize("level", EVERY, ids=str)
def test_windows(level: Level) -> None:
    assert_right(windows(), level)
