"""GGUF files of all known architectures compute the stored results of the package `transformers`: as a whole, in
chunks, and token by token.

The graphs run in the reference interpreter in f64; `--variants` compiles them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.readers.gguf.decoder_families import FAMILIES
from readers.huggingface.interpreted import InterpretedSession
from readers.huggingface.tiny_folders import CONTEXT, IDS
from reference_files import EXPERTS, FILES, Array, write_reference

TOLERANCE = 2e-6
"""Of the greatest number: both sides round angles of positions to f32, and the stored results."""


@pytest.mark.parametrize("name", [*FILES, *EXPERTS])
def test_logits(name: str, tmp_path: Path) -> None:
    expected = write_reference(tmp_path / "model.gguf", name)
    session = InterpretedSession(read_model(tmp_path / "model.gguf"), S=CONTEXT)
    atol = TOLERANCE * float(np.abs(expected).max())
    whole = session.call("score", IDS)
    np.testing.assert_allclose(whole[-2:], expected, rtol=0, atol=atol)
    # The last results, of each way, are those of transformers too.
    for sizes in ([CONTEXT], [7, 1, 11, *[1] * 5]):
        session.reset()
        _compare(session.call, sizes, np.concatenate([whole[:-2], expected]), atol)


def _compare(call: Callable[..., Array], sizes: list[int], expected: Array, atol: float) -> None:
    """Compares the logits behind chunks of these sizes."""
    last = 0
    for size in sizes:
        found = call("decode" if size == 1 else "prefill", IDS[last : last + size])
        last += size
        np.testing.assert_allclose(found, expected[last - 1], rtol=0, atol=atol)


COMPILED = ("gemma2", "gemma3", "phi", "phi3", "mamba", *EXPERTS)
"""The files that `test_architectures.py` does not compile."""


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_logits(name: str, tmp_path: Path, pytestconfig: pytest.Config, unchecked: None) -> None:
    if not pytestconfig.getoption("--variants"):
        pytest.skip("compiled architectures run with --variants")
    expected = write_reference(tmp_path / "model.gguf", name)
    dims = {} if name == "mamba" else {"S": CONTEXT}
    whole = InterpretedSession(read_model(tmp_path / "model.gguf"), **dims).call("score", IDS)
    expected = np.concatenate([whole[:-2], expected])
    session = nacre.compile(tmp_path / "model.gguf", tmp_path / "model.so").session(**dims)
    atol = 1e-5 * float(np.abs(expected).max())
    np.testing.assert_allclose(session.entries["score"](IDS), expected, rtol=0, atol=atol)
    for sizes in ([CONTEXT], [7, 1, 16], [1] * CONTEXT):
        session.reset()
        _compare(lambda entry, ids: session.entries[entry](ids), sizes, expected, atol)


def test_every_known_architecture_has_a_reference() -> None:
    assert {file.architecture for file in [*FILES.values(), *EXPERTS.values()]} == {*FAMILIES} - {"mistral"}
