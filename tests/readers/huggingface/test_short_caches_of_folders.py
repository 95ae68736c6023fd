"""Keys and values in f16, or in integers of 8 bits: near to those in f32, and equal for each way to fill the cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from interpreted import InterpretedSession
from nacre.compiler.base.environment import CHECK_PASSES
from nacre.compiler.checking import read_model
from nacre.compiler.model.source import SourceModel
from nacre.dialect.diagnostics import DiagnosticError
from tiny_folders import CONTEXT, IDS, REFERENCES, write_folder

Array = np.ndarray[Any, Any]
BOUNDS = {"f16": 1e-3, "int8": 2e-2}
"""The largest difference of logits from those of a cache in f32, of the largest one."""
TOKEN_BYTES = {"f32": 2 * 2 * 2 * 8 * 4, "f16": 2 * 2 * 2 * 8 * 2, "int8": 2 * 2 * 2 * (8 + 4)}
"""Of a token: layers, keys and values, heads, and the numbers of a head or with them a scale."""
TABLE = np.array([[3, 1], [0, 2]], np.int32)


def _source(name: str, path: Path, **settings: Any) -> tuple[SourceModel, Array]:
    with np.load(REFERENCES) as stored:
        described, expected = json.loads(bytes(stored[f"{name}/described"])), stored[f"{name}/score"]
    write_folder(path / name, described["config"], described["shapes"])
    return read_model(path / name, settings=settings), expected


@pytest.mark.parametrize("cache", BOUNDS)
@pytest.mark.parametrize("name", ["mistral", "gemma2"])
def test_logits(name: str, cache: str, tmp_path: Path) -> None:
    source, expected = _source(name, tmp_path, page=16, cache=cache)
    session = InterpretedSession(source, S=CONTEXT, P=4)
    whole = session.call("score", IDS)
    most = float(np.abs(expected).max())
    apart = float(np.abs(whole[-2:] - expected).max())
    assert 1e-6 * most < apart < BOUNDS[cache] * most
    session.reset()
    session.call("prefill", IDS[:9])
    np.testing.assert_allclose(session.call("decode", IDS[9:10]), whole[9], rtol=0, atol=1e-9 * most)
    counts = np.array([20, 9], np.int32)
    padded = np.stack([IDS[:20], np.resize(IDS[:9], 20)])
    found = session.call("prefill_rows", padded, counts, counts * 0, TABLE)
    np.testing.assert_allclose(found, whole[[19, 8]], rtol=0, atol=1e-9 * most)
    found = session.call("decode_rows", IDS[[20, 9]], counts, TABLE)
    np.testing.assert_allclose(found, whole[[20, 9]], rtol=0, atol=1e-9 * most)


@pytest.mark.parametrize("cache", TOKEN_BYTES)
def test_bytes_of_a_token(cache: str, tmp_path: Path) -> None:
    source, _ = _source("mistral", tmp_path, page=16, cache=cache)
    sizes = {"S": CONTEXT, "P": 5}
    bytes_of = {True: 0, False: 0}
    for state in source.module.states:
        count = int(np.prod(state.type.concrete(sizes), dtype=np.int64))
        if state.type.rank:
            bytes_of[any(str(size) == "P" for size in state.type.shape)] += count * state.type.dtype.bits // 8
    assert bytes_of == {False: CONTEXT * TOKEN_BYTES[cache], True: 5 * 16 * TOKEN_BYTES[cache]}


@pytest.mark.parametrize(
    ("name", "cache", "message"), [("mistral", "i4", "`cache` is 'i4', not one of f32, f16, int8")]
)
def test_bad_caches(name: str, cache: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DiagnosticError, match=message):
        _source(name, tmp_path, cache=cache)


def test_mamba_has_no_cache(tmp_path: Path) -> None:
    with pytest.raises(DiagnosticError, match="Mamba has none"):
        _source("mamba", tmp_path, cache="f16")


@pytest.mark.parametrize("cache", ["f32", *BOUNDS])
def test_compiled_caches(cache: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    if not pytestconfig.getoption("--variants"):
        pytest.skip("compiled caches run with --variants")
    settings = {"page": 16, "cache": cache}
    source, _ = _source("mistral", tmp_path, **settings)
    reference = InterpretedSession(source, S=CONTEXT, P=4).call("score", IDS)
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv(CHECK_PASSES, raising=False)
        model = nacre.compile(tmp_path / "mistral", tmp_path / "model.so", settings=settings)
    assert model.session_bytes(S=CONTEXT, P=1) - model.session_bytes(S=8, P=1) >= (CONTEXT - 8) * TOKEN_BYTES[cache]
    session = model.session(S=CONTEXT, P=4)
    # A number may be rounded to the other neighbour of a cache where its last bits differ.
    atol = (1e-5 if cache == "f32" else BOUNDS[cache] / 2) * float(np.abs(reference).max())
    np.testing.assert_allclose(session.entries["score"](IDS), reference, rtol=0, atol=atol)
    counts = np.array([20, 9], np.int32)
    padded = np.stack([IDS[:20], np.resize(IDS[:9], 20)])
    found = session.entries["prefill_rows"](padded, counts, counts * 0, TABLE)
    np.testing.assert_allclose(found, reference[[19, 8]], rtol=0, atol=atol)
    for step in range(3):
        found = session.entries["decode_rows"](IDS[[20 + step, 9 + step]], counts + step, TABLE)
        np.testing.assert_allclose(found, reference[[20 + step, 9 + step]], rtol=0, atol=atol)
