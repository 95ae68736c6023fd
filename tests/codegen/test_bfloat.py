"""bf16 values that live across blocks, on CPUs without AVX-512 BF16."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from nacre.compiler.codegen.jit import build_functions
from nacre.compiler.codegen.llvm.bfloat import NAME, calls_rounding
from nacre.compiler.codegen.objects import CodeOptions, generate_objects
from nacre.compiler.lower.module import lower_module
from nacre.compiler.readers.language import load_module
from nacre.compiler.targets.target import Target

TEXT = "model m(x: bf16[1, 2, 4, 5, 3]) -> bf16[1, 2, 3, 4, 1] { return max_pool3d(x, kernel=(2, 2, 3), stride=1) }"
TARGET = Target("x86-64-v3")


@pytest.mark.skipif(not TARGET.runs_here, reason="this CPU has no AVX2")
def test_a_maximum_in_bf16_is_linked_and_exact() -> None:
    module = load_module(TEXT, text=True).module
    _, objects = generate_objects(lower_module(module), CodeOptions((TARGET,), visible=True))
    assert any(calls_rounding(code) for code in objects), f"no kernel calls {NAME}: the test needs another one"
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 5, 3)).astype(ml_dtypes.bfloat16)
    x[0, 0, 1, 1, 1], x[0, 1, 2, 3, 0] = np.nan, -np.inf
    (actual,) = build_functions(module, level=2, target=TARGET)["m"]([x])
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float32), (2, 2, 3), axis=(2, 3, 4))
    np.testing.assert_array_equal(actual.astype(np.float32), windows.max(axis=(-3, -2, -1)))
