"""Kernels with small constant tensors: their elements are found where index maps read them, in every dtype."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from codegen.untiled import Tiled, find_untiled
from lower.kernel_harness import Written, run_kernels
from nacre.compiler.codegen.tiler.dense import LARGEST
from nacre.compiler.lower.kernel import KernelEmitter
from nacre.compiler.lower.lowered import LoweredKernel
from nacre.compiler.targets.x86 import AVX2, SSE
from nacre.dialect.emitter import Loop, Result, Tensor, loops
from nacre.dialect.ops.winograd import WEIGHT
from nacre.dialect.types import BF16, BOOL, F16, F32, F64, I8, I64, U16, DType, TensorType

DTYPES = (F32, F64, BF16, F16, I8, U16, I64, BOOL)
SHAPES = ((6, 3), (1, 7), (5, 1), (33, 2), (0, 3), (1, 1))


def values_of(dtype: DType, shape: Sequence[int]) -> np.ndarray:
    numbers = np.arange(np.prod(shape)).reshape(shape)
    return (numbers % 3 == 1 if dtype is BOOL else numbers % 13).astype(dtype.numpy)


def turned(dtype: DType, shape: tuple[int, int]) -> Written:
    """The constant, transposed."""
    rows, columns = shape
    type = TensorType(dtype, shape)

    def write(e: KernelEmitter) -> Sequence[Tensor]:
        constant = e.constant(type, [x.item() for x in values_of(dtype, shape).reshape(-1)])
        return [e.map(type.with_shape((columns, rows)), [(constant, loops(1, 0))], lambda s, x: x)]

    return Written((), write)


def test_elements() -> None:
    written = {f"{dtype}_{r}_{c}": turned(dtype, (r, c)) for dtype, (r, c) in product(DTYPES, SHAPES)}
    for level in (0, 2):
        made = run_kernels(written, level=level)
        for dtype, shape in product(DTYPES, SHAPES):
            (result,) = made[f"{dtype}_{shape[0]}_{shape[1]}"]([])
            np.testing.assert_array_equal(result, values_of(dtype, shape).T)


def test_sum_of_products() -> None:
    """A matrix times columns of a tensor, as a transform of weights is written."""
    columns = TensorType(F32, (3, 40))

    def write(e: KernelEmitter, x: Tensor) -> Sequence[Tensor]:
        matrix = e.constant(TensorType(F32, (6, 3)), [value for row in WEIGHT for value in row])
        inputs = [(matrix, loops(0, 2)), (x, loops(2, 1))]
        result = Result(TensorType(F32, (6, 40)), loops(0, 1), initial=0)
        body = lambda s, a, b, total: [s.binary("add", total, s.binary("mul", a, b))]  # noqa: E731 (three lines)
        return e.structured([Loop(6), Loop(40), Loop(3, parallel=False)], inputs, [result], body)

    x = np.random.default_rng(0).standard_normal((3, 40)).astype(np.float32)
    (result,) = run_kernels({"f": Written((columns,), write)}, level=2)["f"]([x])
    np.testing.assert_allclose(result, np.asarray(WEIGHT) @ x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", [2, LARGEST, LARGEST + 1])
def test_kernels_are_tiled_up_to_a_size(count: int) -> None:
    kernel = LoweredKernel("f", turned(I8, (count, 1)).kernel(), ())
    left = list(find_untiled(Tiled(kernel.text()), [AVX2, SSE]))
    assert len(left) == (0 if count <= LARGEST else 2), left
