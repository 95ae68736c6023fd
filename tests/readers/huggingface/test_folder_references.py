"""Folders of all known architectures compute the stored results of the package `transformers`.

The graphs run in the reference interpreter in f64; `test_folder_architectures.py` compiles them.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from interpreted import InterpretedSession
from nacre.compiler.checking import read_model
from nacre.compiler.readers.huggingface.decoders import DECODERS as KNOWN_DECODERS
from nacre.compiler.readers.huggingface.encoders import ENCODERS as KNOWN_ENCODERS
from tiny_folders import CONTEXT, DECODERS, ENCODERS, IDS, REFERENCES, encoder_inputs, without_padding, write_folder

TOLERANCE = 2e-6
"""Of the greatest number: both sides round angles of positions to f32, and the stored results."""


@pytest.fixture(scope="module")
def references() -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    with np.load(REFERENCES) as stored:
        return dict(stored)


def _session(references: dict[str, np.ndarray], name: str, path: Path, shards: int, **dims: int) -> InterpretedSession:  # type: ignore[type-arg]
    described = json.loads(bytes(references[f"{name}/described"]))
    write_folder(path / name, described["config"], described["shapes"], shards)
    return InterpretedSession(read_model(path / name), **dims)


@pytest.mark.parametrize("name", DECODERS)
def test_logits(references: dict[str, np.ndarray], name: str, tmp_path: Path) -> None:  # type: ignore[type-arg]
    session = _session(references, name, tmp_path, 3 if name == "mixtral" else 1, S=CONTEXT)
    expected = references[f"{name}/score"]
    atol = TOLERANCE * float(np.abs(expected).max())
    whole = session.call("score", IDS)
    np.testing.assert_allclose(whole[-2:], expected, rtol=0, atol=atol)
    # In chunks and token by token, up to the last place of the cache.
    for sizes in ([CONTEXT], [7, 1, 11, *[1] * 5]):
        session.reset()
        last = 0
        for size in sizes:
            found = session.call("decode" if size == 1 else "prefill", IDS[last : last + size])
            last += size
            np.testing.assert_allclose(found, whole[last - 1], rtol=0, atol=atol)


@pytest.mark.parametrize("name", ENCODERS)
def test_vectors(references: dict[str, np.ndarray], name: str, tmp_path: Path) -> None:  # type: ignore[type-arg]
    session = _session(references, name, tmp_path, 1)
    inputs = encoder_inputs(name)
    assert {function.name for function in session.module.functions} >= set(inputs)
    for entry, arrays in inputs.items():
        expected = references[f"{name}/{entry}"]
        found = without_padding(name, entry, session.call(entry, *arrays))[-1:]
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE * float(np.abs(expected).max()))


@pytest.mark.parametrize("name", ["llama", "gpt2", "mixtral"])
def test_tensors_that_the_model_does_not_read(
    references: dict[str, np.ndarray],  # type: ignore[type-arg]
    name: str,
    tmp_path: Path,
) -> None:
    described = json.loads(bytes(references[f"{name}/described"]))
    layers = "transformer.h" if name == "gpt2" else "model.layers"
    further = {f"{layers}.{end}": (4,) for end in ("0.sinks", "1.rotary_emb.inv_freq", "0.attn.masked_bias", "11.norm")}
    write_folder(tmp_path, described["config"], described["shapes"])
    assert read_model(tmp_path).warnings == ()
    write_folder(tmp_path, described["config"], {**described["shapes"], **further})
    (warning,) = read_model(tmp_path).warnings
    assert warning.code == "unread-weights"
    assert warning.message.endswith(f"its layers: `{layers}.0.sinks`, `{layers}.11.norm`")


def test_every_known_architecture_has_a_reference(references: dict[str, np.ndarray]) -> None:  # type: ignore[type-arg]
    found = {json.loads(bytes(references[key]))["config"]["model_type"] for key in references if "described" in key}
    # The two others differ in the place of their configuration, and in the tokenizer.
    assert found == {*KNOWN_DECODERS, *KNOWN_ENCODERS} - {"gemma3", "xlm-roberta"}
