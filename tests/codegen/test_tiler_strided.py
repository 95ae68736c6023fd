"""Neighbours that lie a few apart, in reverse, or in rows of a computed number, on watched memory and with units in any
order; and what is written over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from differential.directed import LEVELS, assert_right, case
from differential.maker import Graph
from differential.native import Level
from nacre.compiler.checking import read_model
from nacre.compiler.dumps.dumps import Dumps
from nacre.compiler.pipeline import Build
from nacre.dialect.types import Array

LENGTHS = [{"L": n} for n in (1, 2, 8, 15, 16, 17, 31, 33, 64, 65, 131)]
IDS = {1: lambda shape: np.arange(int(np.prod(shape))).reshape(shape) * 7 % 50 - 20}


def pooled(op: str, **attributes: Any) -> Any:
    return lambda b, x: b.apply(op, [x], attributes)[0]


def depthwise(b: Any, x: Any, w: Any) -> Any:
    return b.conv2d(x, w, stride=2, padding=(1, 0), groups=3)


def depthwise_by(stride: int) -> Any:
    return lambda b, x, w: b.conv2d(x, w, stride=stride, padding=(1, 0), groups=3)


def bags(b: Any, table: Any, ids: Any) -> Any:
    return b.sum(b.embedding(table, ids), axis=1)


def halves(b: Any, x: Any) -> Any:
    return b.slice(x, starts=(0, 1), stops=(3, 131), steps=(1, 2))


def rolled(b: Any, x: Any) -> Sequence[Any]:
    return [b.roll(x, shift=5), b.roll(x, shift=-40, axis=0)]


def joined(b: Any, x: Any, y: Any) -> Sequence[Any]:
    return [b.concat(x, y, axis=1), b.concat(x, y, axis=0), b.concat(x, y, x, axis=1)]


def zeros(shape: Sequence[int]) -> Array:
    return np.copysign(0.0, np.random.default_rng(0).standard_normal(shape))


def graphs() -> list[Graph]:
    return [
        case("pool1d", pooled("max_pool1d", kernel=2), "f32[3, 2, L + 1]", sizes=LENGTHS),
        case("pool2d", pooled("max_pool2d", kernel=3, stride=2, padding=1), "f32[1, 2, 9, L]", sizes=LENGTHS),
        case("pool_mean", pooled("avg_pool2d", kernel=2), "f32[1, 2, 6, L + 1]", sizes=LENGTHS),
        case("depthwise", depthwise, "f32[1, 3, 9, L + 1]", "f32[3, 1, 3, 2]", sizes=LENGTHS),
        case("depthwise_f64", depthwise, "f64[1, 3, 5, 70]", "f64[3, 1, 3, 3]"),
        case("depthwise_bf16", depthwise, "bf16[1, 3, 5, 70]", "bf16[3, 1, 3, 3]"),
        case("depthwise_by_3", depthwise_by(3), "f32[1, 3, 9, L + 1]", "f32[3, 1, 3, 2]", sizes=LENGTHS),
        case("depthwise_by_4", depthwise_by(4), "f32[1, 3, 9, L + 2]", "f32[3, 1, 3, 3]", sizes=LENGTHS),
        case("depthwise_f64_by_3", depthwise_by(3), "f64[1, 3, 5, 70]", "f64[3, 1, 3, 3]"),
        case("depthwise_bf16_by_4", depthwise_by(4), "bf16[1, 3, 5, 70]", "bf16[3, 1, 3, 3]"),
        case("depthwise_7x7", depthwise_by(2), "f32[1, 3, 9, 41]", "f32[3, 1, 7, 7]"),
        case("pool_u8_by_3", pooled("max_pool1d", kernel=3), "u8[2, 2, 109]"),
        case("pool_f16", pooled("max_pool1d", kernel=2), "f16[2, 2, 70]"),
        case("pool_u8", pooled("max_pool1d", kernel=2), "u8[2, 2, 70]"),
        case("pool_i64", pooled("max_pool1d", kernel=2), "i64[2, 2, 70]"),
        case("flip", lambda b, x: b.flip(x), "f32[3, L]", sizes=LENGTHS),
        case("flip_bool", lambda b, x: b.flip(x, axes=-1), "bool[3, 70]"),
        case("flip_added", lambda b, x: b.add(x, b.flip(x, axes=-1)), "f64[3, L]", sizes=LENGTHS),
        case("slice", halves, "f32[3, 131]"),
        case("roll", rolled, "f32[33, 70]"),
        case("concat", joined, "f32[5, 7]", "f32[5, 7]"),
        case("bags", bags, "*f32[50, 48]", "i64[L, 3]", sizes=LENGTHS[:4], given=IDS),
        case("bags_odd", bags, "*f32[50, 37]", "i64[5, L]", sizes=LENGTHS[:6], given=IDS),
        case("extreme_zeros", lambda b, x: b.argmax(b.max(x, axis=-1)), "f32[4, 33]", given={0: zeros}),
        *(
            case(f"reflect_{n}", lambda b, x, n=n: b.pad(x, widths=((0, 0), (2, 1), (n, 1)), mode="reflect"), shape)
            for n, shape in ((0, "f32[2, 5, 40]"), (3, "f32[2, 1, 4]"), (5, "f32[2, 3, 4]"))
        ),
    ]


@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_results_are_right(level: Level) -> None:
    assert_right(graphs(), level)


@pytest.mark.parametrize(
    ("arguments", "result", "body"),
    [
        ("t: f32[50, 64], i: i64[8, 4]", "f32[8, 64]", 'sum(embedding(t, i, mode="clamp"), axis=1)'),
        ("x: f32[1, 4, 8, 64]", "f32[1, 4, 4, 32]", "max_pool2d(x, kernel=2)"),
        ("x: f32[1, 4, 9, 65], w: f32[4, 1, 3, 3]", "f32[1, 4, 4, 32]", "conv2d(x, w, stride=2, groups=4)"),
        ("x: f32[1, 4, 9, 65], w: f32[4, 1, 7, 7]", "f32[1, 4, 2, 30]", "conv2d(x, w, stride=2, groups=4)"),
        ("x: f32[1, 4, 9, 98], w: f32[4, 1, 3, 3]", "f32[1, 4, 3, 32]", "conv2d(x, w, stride=3, groups=4)"),
        ("x: f32[1, 4, 9, 127], w: f32[4, 1, 3, 3]", "f32[1, 4, 2, 32]", "conv2d(x, w, stride=4, groups=4)"),
        ("x: f32[1, 4, 128]", "f32[1, 4, 64]", "avg_pool1d(x, kernel=2)"),
    ],
)
def test_vectors_are_along_the_result(arguments: str, result: str, body: str) -> None:
    dumps = Dumps(keep=("tiled",))
    build = Build(read_model(f"model m({arguments}) -> {result} {{\n  return {body}\n}}\n"), dumps=dumps)
    program = build.generate(build.lower(build.optimize()))
    assert "gather" not in dumps.texts["tiled"]
    (kernels,) = program.kernels.values()
    assert [kernel.report.schedules[0] for kernel in kernels.values()] == ["tile"]
