"""Mixtures of experts in GGUF files: experts stay quantized, and a call reads those that its tokens choose."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.compiler.base.environment import CHECK_PASSES
from nacre.compiler.checking import read_model
from nacre.compiler.pipeline import Build
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.graph import walk
from nacre.dialect.types import F32
from readers.huggingface.interpreted import InterpretedSession
from readers.huggingface.tiny_folders import CONTEXT, IDS
from reference_files import write_reference

Array = np.ndarray[Any, Any]


def test_experts_in_separate_tensors(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_reference(path, "mixtral")
    path.write_bytes(path.read_bytes().replace(b"blk.1.ffn_gate_exps", b"blk.1.ffn_gate_0.ex"))
    with pytest.raises(
        DiagnosticError, match=r"has no tensor `blk.1.ffn_gate_exps.weight` with the experts of block 1"
    ):
        read_model(path)


def _quantized(name: str, tensor: Array) -> tuple[int, bytes]:
    """Returns experts whose rows are whole blocks as Q8_0, with a scale for each block, and others as they are."""
    if "_exps" not in name or tensor.shape[-1] % 32:
        return 0, np.ascontiguousarray(tensor).tobytes()
    blocks = tensor.reshape(-1, 32).astype(np.float32)
    scales = (np.abs(blocks).max(axis=1, keepdims=True) / 127).astype(np.float16)
    codes = np.rint(blocks / scales.astype(np.float32)).clip(-127, 127).astype(np.int8)
    return 8, np.concatenate([scales.view(np.int8).reshape(-1, 2), codes], axis=1).tobytes()


def test_chosen_experts_are_dequantized(tmp_path: Path) -> None:
    """The quantized values of all experts stay; a step of the loop over chosen experts dequantizes one."""
    expected = write_reference(tmp_path / "model.gguf", "mixtral", _quantized)
    build = Build(read_model(tmp_path / "model.gguf"))
    session = InterpretedSession(build.source_model, S=CONTEXT)
    found = session.call("score", IDS)[-2:]
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.02 * float(np.abs(expected).max()))
    module = build.optimize()
    stored = {p.name: p.type for p in module.parameters if p.type.shape[:2] == (5, 48)}
    assert {str(type.dtype) for type in stored.values()} == {"i8", "f16"} and len(stored) == 8
    decode = next(function for function in module.functions if function.name == "decode")
    large = [v for node in walk(decode.body) for v in node.outputs if v.type.shape[:2] == (5, 48)]
    assert large and all(v.type.dtype is not F32 for v in large)


@pytest.mark.parametrize("kind", ["MXFP4", "Q4_1", "Q5_1"])
def test_experts_with_several_planes_stay_quantized(kind: str, tmp_path: Path) -> None:
    """The planes of all experts stay; a step of the loop over chosen experts reads those of one."""
    quants = pytest.importorskip("gguf.quants", reason="the package gguf is not installed")
    number = getattr(quants.GGMLQuantizationType, kind)

    def quantized(name: str, tensor: Array, *, decoded: bool) -> tuple[int, bytes]:
        if "_exps" not in name or tensor.shape[-1] % 32:
            return 0, np.ascontiguousarray(tensor).tobytes()
        data = quants.quantize(np.ascontiguousarray(tensor, np.float32), number)
        return (0, quants.dequantize(data, number).tobytes()) if decoded else (number, data.tobytes())

    found = []
    for decoded in (True, False):
        path = tmp_path / f"{decoded}.gguf"
        write_reference(path, "mixtral", partial(quantized, decoded=decoded))
        found.append(InterpretedSession(read_model(path), S=CONTEXT).call("score", IDS))
    np.testing.assert_array_equal(*found)
    module = Build(read_model(path)).optimize()
    types = [p.type for p in module.parameters]
    types += [v.type for node in walk(module.function("decode").body) for v in node.outputs]
    large = [type for type in types if type.shape[:2] == (5, 48)]
    assert large and all(type.dtype is not F32 or type.shape[2:] in ((1,), (1, 1)) for type in large), large


@pytest.mark.parametrize("level", [0, 2])
def test_only_chosen_experts_are_read(tmp_path: Path, level: int, pytestconfig: pytest.Config) -> None:
    """Weights of an expert that no token chooses may be anything."""
    if not pytestconfig.getoption("--variants"):
        pytest.skip("compiled mixtures of experts run with --variants")
    results = []
    for value in (0.0, np.nan):

        def change(name: str, tensor: Array, value: float = value) -> tuple[int, bytes]:
            if "_gate_inp" in name:
                # All experts have the same score: the first two are chosen.
                tensor = np.zeros_like(tensor)
            kind, data = _quantized(name, tensor)
            if "_exps" in name:
                end = len(data) // 5
                nan = (
                    np.full(end // 4, value, np.float32).tobytes() if kind == 0 else np.full(end, -1, np.int8).tobytes()
                )
                data = data[: 3 * end] + (nan if value else bytes(end)) + data[4 * end :]
            return kind, data

        path = tmp_path / f"expert{value}.gguf"
        write_reference(path, "mixtral", change)
        with pytest.MonkeyPatch.context() as patched:
            patched.delenv(CHECK_PASSES, raising=False)
            session = nacre.compile(path, tmp_path / f"{value}.so", opt_level=level).session(S=12)
        results.append(session.entries["score"](IDS[:12]))
    assert np.isfinite(results[1]).all()
    np.testing.assert_array_equal(*results)
