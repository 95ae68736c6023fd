"""The folder of all-MiniLM-L6-v2 is a model without any text, and gives the embeddings of another implementation.

Needs NACRE_TEST_DATA with `minilm/reference_embeddings.npz`, and the weights that `samples/minilm` keeps in the cache.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from interpreted import InterpretedSession
from nacre.compiler.checking import read_model
from tokenizers import Tokenizer

DATA = os.environ.get("NACRE_TEST_DATA", "")
FOLDER = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "nacre" / "minilm"
pytestmark = [
    pytest.mark.skipif(not DATA, reason="NACRE_TEST_DATA, the folder of reference results, is not set"),
    pytest.mark.skipif(not (FOLDER / "config.json").is_file(), reason=f"{FOLDER} is not filled: run samples/minilm"),
]
Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def texts() -> tuple[Array, Array, Array]:
    """Ids, mask and embeddings of four sentences of different lengths."""
    with np.load(Path(DATA) / "minilm" / "reference_embeddings.npz") as file:
        sentences, expected = file["sentences"].tolist(), file["emb"]
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    tokenizer.no_padding()
    encoded = [tokenizer.encode(sentence).ids for sentence in sentences]
    width = max(map(len, encoded))
    ids = np.array([[*row, *[0] * (width - len(row))] for row in encoded])
    return ids, np.array([[int(t < len(row)) for t in range(width)] for row in encoded]), expected


def test_embeddings(texts: tuple[Array, Array, Array]) -> None:
    ids, mask, expected = texts
    found = InterpretedSession(read_model(FOLDER)).call("embed", ids, mask)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)  # the reference is in f32


def test_compiled_embeddings(
    texts: tuple[Array, Array, Array], tmp_path: Path, pytestconfig: pytest.Config, unchecked: None
) -> None:
    if not pytestconfig.getoption("--variants"):
        pytest.skip("the compiled folder runs with --variants")
    ids, mask, expected = texts
    model = nacre.compile(FOLDER, tmp_path / "minilm.so")
    np.testing.assert_allclose(model.entries["embed"](ids, mask), expected, rtol=0, atol=1e-5)
    hidden = model.entries["encode"](ids, mask)
    means = (hidden * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(means / np.linalg.norm(means, axis=1, keepdims=True), expected, rtol=0, atol=1e-5)
