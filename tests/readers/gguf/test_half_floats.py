"""Matrices in F16 and BF16 stay as they are stored; the results are those of the same numbers in F32."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import nacre
import numpy as np
import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.pipeline import Build
from readers.huggingface.interpreted import InterpretedSession
from readers.huggingface.tiny_folders import CONTEXT, IDS
from reference_files import write_reference

Array = np.ndarray[Any, Any]
KINDS: dict[str, tuple[int, Any]] = {"f16": (1, np.float16), "bf16": (30, ml_dtypes.bfloat16)}


def _stored(name: str, tensor: Array, *, kind: str, half: bool) -> tuple[int, bytes]:
    """Returns a matrix of short floats, or the same numbers in F32."""
    number, dtype = KINDS[kind]
    if tensor.ndim != 2:
        return 0, np.ascontiguousarray(tensor, np.float32).tobytes()
    rounded = np.ascontiguousarray(tensor).astype(dtype)
    return (number, rounded.tobytes()) if half else (0, rounded.astype(np.float32).tobytes())


@pytest.mark.parametrize("kind", KINDS)
def test_matrices_keep_their_dtype(kind: str, tmp_path: Path) -> None:
    results = []
    for half in (True, False):
        path = tmp_path / f"{half}.gguf"
        write_reference(path, "qwen3-moe", partial(_stored, kind=kind, half=half))
        results.append(InterpretedSession(read_model(path), S=CONTEXT).call("score", IDS))
    np.testing.assert_array_equal(*results)
    module = Build(read_model(tmp_path / "True.gguf")).optimize()
    matrices = [p for p in module.parameters if p.type.rank == 2]
    assert len(matrices) > 8 and {str(p.type.dtype) for p in matrices} == {kind}


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_models_agree_with_the_interpreter(
    kind: str, level: int, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    if level == 0 and not pytestconfig.getoption("--variants"):
        pytest.skip("level 0 runs with --variants; the interpreter checks it by default")
    path = tmp_path / "model.gguf"
    write_reference(path, "qwen3-moe", partial(_stored, kind=kind, half=True))
    expected = InterpretedSession(read_model(path), S=CONTEXT).call("score", IDS)
    session = nacre.compile(path, tmp_path / "model.so", opt_level=level).session(S=CONTEXT)
    tolerance = 1e-5 * float(np.abs(expected).max())
    np.testing.assert_allclose(session.entries["score"](IDS), expected, rtol=0, atol=tolerance)
