"""A recurrent language model with trained weights: its states after any split of a text are those of the whole."""

from __future__ import annotations

import json
import os
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.runtime.loader import Model, OutOfRangeError

DATA = Path(os.environ.get("NACRE_TEST_DATA", "")) / "rwkv"
pytestmark = pytest.mark.skipif(
    not os.environ.get("NACRE_TEST_DATA") or not DATA.is_dir(), reason="NACRE_TEST_DATA has no folder rwkv"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("rwkv") / "rwkv.so"
    weights = DATA / "tiny-rwkv-5v2-730K.safetensors"
    return nacre.compile(Path(__file__).with_name("rwkv.nacre"), path, weights=weights)


def _bytes(values: object) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, np.int32)


def test_logits_are_those_of_the_reference(model: Model) -> None:
    expected = np.load(DATA / "logits.npz")
    append = model.session().entries["append"]
    found = append(_bytes(list(b'"in')))[-1]
    np.testing.assert_allclose(found, expected["expected_logits_in"], rtol=0, atol=1e-5)
    for number, reference in enumerate(json.loads((DATA / "greedy.json").read_text())):
        logits = expected[f"logits_{number}"]
        found = model.session().entries["append"](_bytes(reference["ids"][: len(logits)]))
        # Twelve layers and 48 steps in f32: rounding grows with the largest logits.
        np.testing.assert_allclose(found, logits, rtol=0, atol=1e-5 * np.abs(logits).max())


def test_bytes_are_those_of_the_reference(model: Model) -> None:
    for reference in json.loads((DATA / "greedy.json").read_text()):
        append = model.session().entries["append"]
        ids = list(reference["prompt"].encode())
        logits = append(_bytes(ids))
        while len(ids) < len(reference["ids"]):
            ids.append(int(logits[-1].argmax()))
            logits = append(_bytes(ids[-1:]))
        assert ids == reference["ids"]


def test_parts_of_a_text_give_the_states_of_the_whole(model: Model) -> None:
    ids = _bytes(json.loads((DATA / "greedy.json").read_text())[0]["ids"][:24])
    whole = model.session()
    whole.entries["append"](ids)
    for sizes in ([1] * 24, [5, 1, 17, 1]):
        session = model.session()
        for part in np.split(ids, np.cumsum(sizes)[:-1]):
            session.entries["append"](part)
        for name, value in whole.states.items():
            np.testing.assert_allclose(session.states[name], value, rtol=0, atol=1e-5, err_msg=name)


def test_a_byte_out_of_range_leaves_the_states(model: Model) -> None:
    session = model.session()
    session.entries["append"](_bytes([34, 105]))
    before = {name: value.tobytes() for name, value in session.states.items()}
    with pytest.raises(OutOfRangeError, match="256 is out of range"):
        session.entries["append"](_bytes([34, 256]))
    assert {name: value.tobytes() for name, value in session.states.items()} == before
