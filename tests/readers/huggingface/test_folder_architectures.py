"""Compiled folders compute the same as in `transformers`: as a whole, in chunks, token by token, and batches of
texts of different lengths."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.runtime.loader import NacreError
from tiny_folders import CONTEXT, DECODERS, ENCODERS, IDS, encoder_inputs, without_padding

pytest.importorskip("transformers", reason="the package transformers is not installed")
pytest.importorskip("torch")

from from_transformers import expected_logits, expected_vectors, make_folder

TOLERANCE = 1e-5
"""Of the greatest number; f32 differs by a tenth of that."""


@pytest.fixture(autouse=True)
def _long(pytestconfig: pytest.Config, unchecked: None) -> None:
    if not pytestconfig.getoption("--variants"):
        pytest.skip("compiled architectures run with --variants")


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.filterwarnings("default::nacre.dialect.diagnostics.NacreWarning")
def test_compiled_logits(name: str, tmp_path: Path) -> None:
    model, _ = make_folder(tmp_path / name, *DECODERS[name], shards=2 if name == "qwen2" else 1)
    expected = expected_logits(model)
    compiled = nacre.compile(tmp_path / name, tmp_path / "model.so")
    has_capacity = name != "mamba"
    session = compiled.session(S=CONTEXT) if has_capacity else compiled.session()
    atol = TOLERANCE * float(np.abs(expected).max())
    np.testing.assert_allclose(session.entries["score"](IDS), expected, rtol=0, atol=atol)
    if has_capacity:
        with pytest.raises(NacreError):
            session.entries["decode"](IDS[:1])
    for sizes in ([7, 1, 16], [1] * CONTEXT):
        session.reset()
        last = 0
        for size in sizes:
            found = session.entries["decode" if size == 1 else "prefill"](IDS[last : last + size])
            last += size
            np.testing.assert_allclose(found, expected[last - 1], rtol=0, atol=atol)


@pytest.mark.parametrize("name", ENCODERS)
def test_compiled_vectors(name: str, tmp_path: Path) -> None:
    model, _ = make_folder(tmp_path / name, *ENCODERS[name])
    compiled = nacre.compile(tmp_path / name, tmp_path / "model.so")
    for entry, expected in expected_vectors(model, name).items():
        found = without_padding(name, entry, compiled.entries[entry](*encoder_inputs(name)[entry]))
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE * float(np.abs(expected).max()))
