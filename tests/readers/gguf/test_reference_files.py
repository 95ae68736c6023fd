"""GGUF files of all known architectures compute the stored results of the package `transformers`.

The graphs run in the reference interpreter in f64; `test_architectures.py` compiles them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.readers.gguf.decoder_families import FAMILIES
from readers.huggingface.interpreted import InterpretedSession
from readers.huggingface.tiny_folders import CONTEXT, IDS
from reference_files import EXPERTS, FILES, write_reference

TOLERANCE = 2e-6
"""Of the greatest number: both sides round angles of positions to f32, and the stored results."""


@pytest.mark.parametrize("name", [*FILES, *EXPERTS])
def test_logits(name: str, tmp_path: Path) -> None:
    expected = write_reference(tmp_path / "model.gguf", name)
    session = InterpretedSession(read_model(tmp_path / "model.gguf"), S=CONTEXT)
    found = session.call("score", IDS)[-2:]
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE * float(np.abs(expected).max()))


def test_every_known_architecture_has_a_reference() -> None:
    assert {file.architecture for file in [*FILES.values(), *EXPERTS.values()]} == {*FAMILIES} - {"mistral"}
