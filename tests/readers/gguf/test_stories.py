"""A trained Llama writes the stories of its reference, from GGUF files and from its hand-written source."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import gguf
import nacre
import numpy as np
import pytest
from greedy import continue_greedily
from nacre.compiler.base.environment import CHECK_PASSES
from nacre.compiler.readers.architectures.decoder import stored_name
from nacre.runtime.loader import ArgumentError, Model, OutOfRangeError

DATA = Path(os.environ.get("NACRE_TEST_DATA", "")) / "stories260k"
SOURCE = Path(__file__).parents[2] / "models" / "stories260k.nacre"
pytestmark = pytest.mark.skipif(
    not os.environ.get("NACRE_TEST_DATA") or not DATA.is_dir(), reason="NACRE_TEST_DATA has no folder stories260k"
)
pytestmark = [pytestmark, pytest.mark.filterwarnings("default::nacre.dialect.diagnostics.NacreWarning")]


def _references(file: str, kind: str = "") -> list[dict[str, list[int]]]:
    content = json.loads((DATA / file).read_text())
    found: list[dict[str, list[int]]] = content[kind] if kind else content
    return found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("stories") / "stories.so"
    return nacre.compile(SOURCE, path, weights=DATA / "stories260k.safetensors")


@pytest.fixture(scope="module")
def q8_0(tmp_path_factory: pytest.TempPathFactory) -> Model:
    # Its graph is that of the other file, whose build is checked.
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv(CHECK_PASSES, raising=False)
        return nacre.compile(DATA / "stories260k-q8_0.gguf", tmp_path_factory.mktemp("stories") / "stories.so")


def test_the_source_with_safetensors(written: Model) -> None:
    logits = np.load(DATA / "logits.npz")
    for number, reference in enumerate(_references("greedy.json")):
        ids = reference["ids"]
        session = written.session(S=len(ids))
        assert continue_greedily(session, reference["prompt_ids"], len(ids)) == ids
        first = logits[f"logits_{number}"]
        session.reset()
        found = session.entries["prefill"](np.array(ids[: len(first)], np.int32))
        np.testing.assert_allclose(found, first, rtol=0, atol=5e-5)  # f32 differs by 3e-5 from f64


def test_q8_0(q8_0: Model) -> None:
    for reference in _references("greedy_gguf.json", "q8_0"):
        ids = reference["ids"]
        assert continue_greedily(q8_0.session(S=len(ids)), reference["prompt_ids"], len(ids)) == ids


@pytest.mark.parametrize("level", [0, 2])
def test_q4_0(tmp_path: Path, level: int, pytestconfig: pytest.Config) -> None:
    if not pytestconfig.getoption("--variants"):
        pytest.skip("the other quantized file runs with --variants")
    model = nacre.compile(DATA / "stories260k-q4_0.gguf", tmp_path / "stories.so", opt_level=level)
    for reference in _references("greedy_gguf.json", "q4_0"):
        ids = reference["ids"]
        assert continue_greedily(model.session(S=len(ids)), reference["prompt_ids"], len(ids)) == ids


def test_prefill_chunks_and_single_tokens_agree(q8_0: Model) -> None:
    ids = np.array(_references("greedy_gguf.json", "q8_0")[0]["ids"][:60], np.int32)
    session = q8_0.session(S=60)
    whole = session.entries["score"](ids)
    for sizes in ([60], [1, 59], [20, 20, 20], [7] * 8 + [4], [1] * 60):
        session.reset()
        last = 0
        for size in sizes:
            entry = session.entries["decode" if size == 1 else "prefill"]
            found = entry(ids[last : last + size])
            last += size
            np.testing.assert_allclose(found, whole[last - 1], rtol=0, atol=5e-5)


def test_codes_stay_as_they_are_in_the_file(q8_0: Model) -> None:
    """Each weight in Q8_0 is stored once, as i8 with at most one panel that is not full; no other matrix is f32."""
    stored = {t.name: t for t in gguf.GGUFReader(DATA / "stories260k-q8_0.gguf").tensors}
    quantized = {name for name, tensor in stored.items() if tensor.tensor_type.name == "Q8_0"}
    assert len(quantized) > 20
    found = set()
    for tensor in q8_0.describe()["weights"]["tensors"]:
        name, _, part = stored_name(tensor["name"]).partition(".weight")
        name, shape = f"{name}.weight", tensor["shape"]
        if part.startswith(".codes"):
            assert name in quantized and name not in found and tensor["dtype"] == "i8"
            found.add(name)
            width, rows = map(int, stored[name].shape)
            panel = shape[-1]
            assert math.prod(shape) == -(-rows // panel) * panel * width
        elif tensor["dtype"] == "f32" and len(shape) > 1:
            assert name in stored and name not in quantized, tensor
    assert found == quantized


def test_errors_leave_the_session_usable(q8_0: Model) -> None:
    ids = np.array(_references("greedy_gguf.json", "q8_0")[0]["ids"][:10], np.int32)
    session = q8_0.session(S=9)
    with pytest.raises(ArgumentError, match="S - T >= 0"):
        session.entries["prefill"](ids)
    session.entries["prefill"](ids[:8])
    with pytest.raises(OutOfRangeError, match="512 is out of range"):
        session.entries["decode"](np.array([512], np.int32))
    with pytest.raises(OutOfRangeError, match="index -1 is out of range for an axis of size 512"):
        session.entries["decode"](np.array([-1], np.int32))
    after = session.entries["decode"](ids[8:9])
    assert after.argmax() == ids[9]
    with pytest.raises(OutOfRangeError, match="index 9 is out of range for an axis of size 9"):
        session.entries["decode"](ids[9:])
    session.reset()
    np.testing.assert_array_equal(session.entries["prefill"](ids[:9]).argmax(), ids[9])
