"""Sizes computed by C are the sizes that Python computes, and overflow is noticed."""

import ctypes
import itertools
import subprocess
from pathlib import Path

from c_models import CC, STRICT
from nacre.compiler.artifact.formulas import encode_formula
from nacre.compiler.artifact.link import RUNTIME_FOLDER
from nacre.dialect.dims import Symbol, evaluate, floor_divide, maximum, minimum

A, B, C = Symbol("A", 0, 40), Symbol("B", 1, 30), Symbol("C", 0, 64, 8)
a, b, c = A.size, B.size, C.size
SIZES = [
    5,
    a,
    c,
    3 * a * b - 7,
    a * a * b + 2 * a - b + 1,
    floor_divide(a - 20, 3),
    floor_divide(a - 20, b),  # negative for small dims
    floor_divide(a * b + 5, b),
    floor_divide(c, 16) + floor_divide(c, 4),
    maximum(a, b) * minimum(a, c + 1),
    maximum(floor_divide(a, 2), b - a),
    a + (1 << 70),
]
OVERFLOW = -(1 << 63)


def test_c_agrees_with_python(tmp_path: Path) -> None:
    assert CC
    source, library = str(RUNTIME_FOLDER / "formula.c"), str(tmp_path / "formula.so")
    subprocess.run([CC, *STRICT, "-shared", "-fPIC", "-O1", source, "-o", library], check=True)
    function = ctypes.CDLL(library).nacre_evaluate
    function.restype = ctypes.c_int64
    for i, size in enumerate(SIZES):
        words = encode_formula(size, {A: 0, B: 1, C: 2})
        formula = (ctypes.c_int64 * len(words))(*words)
        for values in itertools.product((0, 1, 2, 19, 20, 21, 40), (1, 2, 7, 30), (0, 8, 24, 64)):
            value = evaluate(size, dict(zip("ABC", values, strict=True)))
            expected = value if value < 1 << 63 else OVERFLOW
            assert function(formula, (ctypes.c_int64 * 3)(*values)) == expected, (size, values)
        if i in (3, 4, 7, 9):
            assert function(formula, (ctypes.c_int64 * 3)(1 << 40, 1 << 40, 1 << 40)) == OVERFLOW, size
