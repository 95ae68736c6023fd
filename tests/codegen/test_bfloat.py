"""bf16 values that live across blocks, on CPUs without AVX-512 BF16."""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import nacre
import numpy as np
import pytest
from nacre.compiler.cli.main import run
from nacre.compiler.codegen.llvm.bfloat import NAME
from nacre.compiler.targets.target import Target

TEXT = "model m(x: bf16[8, 9]) -> bf16[8, 9] { return maximum(x, x[::-1]) }"
TARGET = "x86-64-v3"
LOOP = r"""
    %from = arith.constant 0 : index
    %step = arith.constant 1 : index
    %count = arith.constant 1000 : index
    %last = scf.for %i = %from to %count step %step iter_args(%now = \2) -> (bf16) {
      %above = arith.cmpf ogt, %now, FIRST : bf16
      %greater = arith.select %above, %now, FIRST : bf16
      scf.yield %greater : bf16
    }
    linalg.yield %last : bf16"""
"""A loop that keeps a maximum, in a body that computed it already. LLVM keeps the carried value as f32."""


@pytest.mark.usefixtures("unchecked")
@pytest.mark.skipif(not Target(TARGET).runs_here, reason="this CPU has no AVX2")
def test_a_value_across_blocks_is_linked_and_exact(tmp_path: Path) -> None:
    (tmp_path / "m.nacre").write_text(TEXT)
    options = ["--target", TARGET, "--no-cache"]
    stages = ["--emit", "asm", "-o", str(tmp_path / "m.s"), "--dump-dir", str(tmp_path / "stages")]
    assert run(["compile", str(tmp_path / "m.nacre"), *options, *stages]) == 0
    (path,) = (tmp_path / "stages").glob("*-linalg.mlir")
    text = path.read_text()
    first = re.search(r"\^bb0\((%\w+): bf16", text)
    assert first is not None
    text, count = re.subn(r"(\s*)linalg\.yield (%\w+) : bf16", LOOP.replace("FIRST", first[1]), text)
    assert count == 1
    path.write_text(text)
    assert run(["compile", str(path), "--from", "linalg", *options, "--emit", "obj", "-o", str(tmp_path / "m.o")]) == 0
    assert NAME.encode() in (tmp_path / "m.o").read_bytes(), f"no kernel calls {NAME}: the test needs another one"
    assert run(["compile", str(path), "--from", "linalg", *options, "-o", str(tmp_path / "m.so")]) == 0
    x = np.random.default_rng(0).standard_normal((8, 9)).astype(ml_dtypes.bfloat16)
    x[0, 1], x[2, 3] = -np.inf, np.inf
    expected = np.maximum(x.astype(np.float32), x[::-1].astype(np.float32))
    np.testing.assert_array_equal(nacre.load(tmp_path / "m.so")(x).astype(np.float32), expected)
