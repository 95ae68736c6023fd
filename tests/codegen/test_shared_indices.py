"""Maps whose computed indices some class does not change: its positions are written together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import nacre
import numpy as np
import pytest
from differential.emulated import tile_for
from nacre.compiler.codegen.objects import CodeOptions
from nacre.compiler.lower.module import lower_module
from nacre.compiler.targets.target import Target
from nacre.dialect.graph import Function, Module, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import F32, I64, TensorType

COLUMNS = """language 1
dim R in 0..40
dim N in 0..100
model columns(x: f32[R, 50], i: i64[N]) -> f32[R, N] { return gather(x, i, axis=1) }
model scaled(x: f32[R, 50], i: i64[N]) -> f32[R, N] { return tanh(gather(x, i, axis=1)) * 2.0 }
model planes(x: f32[R, 5, 50], i: i64[N]) -> f32[R, 5, N] { return gather(x, i, axis=2) }
"""


@pytest.fixture(scope="module")
def models() -> Mapping[str, nacre.Entry]:
    return nacre.compile(COLUMNS)


@pytest.mark.parametrize("rows", [0, 1, 3, 4, 5, 8, 37])
@pytest.mark.parametrize("columns", [0, 1, 7, 16, 17, 64, 99])
def test_all_rows_and_columns_are_written(models: Mapping[str, nacre.Entry], rows: int, columns: int) -> None:
    rng = np.random.default_rng(rows * 100 + columns)
    index = rng.integers(-50, 50, columns)
    x, planes = rng.standard_normal((rows, 50), np.float32), rng.standard_normal((rows, 5, 50), np.float32)
    np.testing.assert_array_equal(models.columns(x, index), x[:, index])
    np.testing.assert_array_equal(models.planes(planes, index), planes[:, :, index])
    expected = np.tanh(x[:, index].astype(np.float64)) * 2
    np.testing.assert_allclose(models.scaled(x, index), expected, rtol=1e-6, atol=1e-7)


def test_an_index_out_of_range_is_seen_in_every_block(models: Mapping[str, nacre.Entry]) -> None:
    for rows in (1, 4, 7):
        index = np.zeros(33, np.int64)
        index[32] = 50
        with pytest.raises(nacre.NacreError, match="gather"):
            models.columns(np.zeros((rows, 50), np.float32), index)


def gathered(b: Builder, axis: int, width: int = 64) -> tuple[tuple[Value, ...], Value]:
    inputs = (Value("x", TensorType(F32, (64, width))), Value("i", TensorType(I64, (64,))))
    return inputs, b.apply("gather", list(inputs), {"axis": axis, "mode": "clamp"})[0]


def sliced(b: Builder, axis: int) -> tuple[tuple[Value, ...], Value]:
    inputs = (Value("x", TensorType(F32, (64, 64))), *(Value(name, TensorType(I64, ())) for name in "ij"))
    sizes = (64, 32) if axis else (32, 64)
    return inputs, b.apply("dynamic_slice", list(inputs), {"sizes": sizes, "mode": "clamp"})[0]


@pytest.mark.parametrize(
    ("read", "axis", "stores"), [(gathered, 0, 0), (gathered, 1, 4), (sliced, 0, 0), (sliced, 1, 0)]
)
def test_an_index_is_computed_once_for_a_block(
    read: Callable[[Builder, int], tuple[tuple[Value, ...], Value]], axis: int, stores: int
) -> None:
    """Gathered rows and slices are contiguous, and their elements are copied in vectors."""
    b = Builder(OPERATORS, "t")
    assert code_of(b, *read(b, axis)).count("store float") == stores


@pytest.mark.parametrize(("width", "fetches"), [(64, 1), (256, 1), (272, 0), (4096, 0)])
def test_the_rows_of_the_next_block_are_prefetched(width: int, fetches: int) -> None:
    """Where most of their lines are read: each of 64 positions fetches a line at most, and 4 rows of 256 have 64."""
    b = Builder(OPERATORS, "t")
    assert code_of(b, *gathered(b, 1, width)).count("call void @llvm.prefetch") == fetches


def code_of(b: Builder, inputs: tuple[Value, ...], result: Value) -> str:
    module = Module("m", (), (), (Function("f", inputs, tuple(b.nodes), (result,)),))
    options = CodeOptions((Target(cpu="x86-64-v4"),))
    (tiled,) = tile_for(lower_module(module).kernels, options).values()
    return tiled.text
