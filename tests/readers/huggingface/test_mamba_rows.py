"""The entries of Mamba for several texts of different lengths: each text has its own states, and tokens that only fill
up a row change none.

The expected logits are those of the entry for one text, which `test_folder_references.py` compares with those of the
package `transformers`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import nacre
import numpy as np
import pytest
from interpreted import InterpretedSession
from nacre.compiler.base.environment import CHECK_PASSES
from nacre.compiler.checking import read_model
from nacre.compiler.model.source import SourceModel
from nacre.compiler.tools.generate.tokens import Generator, Sampling
from nacre.compiler.tools.serve.batches import Batches
from nacre.compiler.tools.serve.engine import Event, Job, Sampled
from nacre.runtime.loader import Model, OutOfRangeError
from tiny_folders import IDS, REFERENCES, VOCABULARY, Array, write_first_layer, write_folder

POOL = 6
TABLE = np.array([[4], [1], [3]], np.int32)
ENTRIES = ("prefill_rows", "decode_rows")
Call = Callable[..., Array]


def _array(*numbers: int) -> Array:
    return np.array(numbers, np.int32)


def _rows(*rows: Array) -> Array:
    found = np.full((len(rows), max(map(len, rows))), VOCABULARY - 1, np.int32)
    for number, row in enumerate(rows):
        found[number, : len(row)] = row
    return found


def _whole(path: Path) -> SourceModel:
    with np.load(REFERENCES) as stored:
        described = json.loads(bytes(stored["mamba/described"]))
    write_folder(path, described["config"], described["shapes"])
    return read_model(path, settings={"page": 1})


def _check(call: Call, whole: Array, atol: float) -> None:
    def compare(found: Array, *lengths: int) -> None:
        np.testing.assert_allclose(found, whole[[n - 1 for n in lengths]], rtol=0, atol=atol)

    lengths = _array(4, 11, 1)
    compare(call("prefill_rows", _rows(IDS[:4], IDS[:11], IDS[:1]), lengths, lengths * 0, TABLE), 4, 11, 1)
    compare(call("decode_rows", IDS[[4, 11, 1]], lengths, TABLE), 5, 12, 2)
    # A row stays away, and the others change places: one in a chunk, one with a single token.
    found = call("prefill_rows", _rows(IDS[2:9], IDS[5:6]), _array(7, 1), _array(2, 5), TABLE[[2, 0]])
    compare(found, 9, 6)
    # A new text takes the place of one that has ended.
    found = call("prefill_rows", _rows(IDS[12:13], IDS[:2]), _array(1, 2), _array(12, 0), TABLE[[1, 2]])
    compare(found, 13, 2)
    compare(call("decode_rows", IDS[[2, 6, 13]], _array(2, 6, 13), TABLE[[2, 0, 1]]), 3, 7, 14)


def test_rows_in_the_interpreter(tmp_path: Path) -> None:
    session = InterpretedSession(_whole(tmp_path), P=POOL)
    whole = session.call("score", IDS)
    _check(session.call, whole, 1e-9 * float(np.abs(whole).max()))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> SourceModel:
    folder = tmp_path_factory.mktemp("mamba")
    write_first_layer(folder, "mamba")
    return read_model(folder, settings={"page": 1})


@pytest.fixture(scope="module")
def model(source: SourceModel) -> Model:
    functions = tuple(function for function in source.module.functions if function.name in ENTRIES)
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv(CHECK_PASSES, raising=False)
        return nacre.compile(replace(source, module=replace(source.module, functions=functions)), opt_level=0)


def test_compiled_rows(source: SourceModel, model: Model) -> None:
    whole = InterpretedSession(source, P=POOL).call("score", IDS)
    session = model.session(P=POOL)
    _check(lambda name, *given: session.entries[name](*given), whole, 1e-5 * float(np.abs(whole).max()))


@pytest.mark.parametrize(
    ("counts", "at", "page", "index"),
    [(0, 0, 4, -1), (3, 0, 4, 2), (-1, 0, 4, -2), (2, -7, 4, -7), (2, 0, POOL, POOL), (2, 0, -1, -1)],
)
def test_bad_rows_change_no_state(model: Model, counts: int, at: int, page: int, index: int) -> None:
    session = model.session(P=POOL)
    session.entries["prefill_rows"](IDS[None, :5], _array(5), _array(0), TABLE[:1])
    before = {name: array.tobytes() for name, array in session.states.items()}
    with pytest.raises(OutOfRangeError, match=f"index {index} is out of range"):
        session.entries["prefill_rows"](IDS[None, :2], _array(counts), _array(at), _array(page)[:, None])
    with pytest.raises(OutOfRangeError, match=f"index -1 is out of range for an axis of size {VOCABULARY}"):
        session.entries["decode_rows"](_array(-1), _array(5), TABLE[:1])
    assert {name: array.tobytes() for name, array in session.states.items()} == before


def test_served_rows(tmp_path: Path, pytestconfig: pytest.Config, unchecked: None) -> None:
    """Requests of one engine get the tokens that they get alone."""
    if not pytestconfig.getoption("--variants"):
        pytest.skip("the whole model is compiled with --variants")
    _whole(tmp_path)
    compiled = nacre.compile(tmp_path, tmp_path / "model.so", settings={"page": 1})
    sampling = Sampling(temperature=0, top_k=0, top_p=1, min_p=0)
    engine = Batches(compiled, slots=2, capacity=30, pool=60, queue=9, end=frozenset())
    assert engine.pages.count == 2
    found: list[list[Event]] = [[] for _ in range(5)]
    ends = [threading.Event() for _ in found]
    requests = [(IDS[: 3 * n + 1].tolist(), 9 - n) for n in range(5)]
    for number, (ids, count) in enumerate(requests):

        def emit(event: Event, number: int = number) -> None:
            found[number].append(event)
            if not isinstance(event, Sampled):
                ends[number].set()

        engine.submit(Job(ids, count, sampling, emit))
    assert all(end.wait(60) for end in ends)
    engine.stop()
    for (ids, count), events in zip(requests, found, strict=True):
        alone = Generator(compiled, 30).generate(ids, count, sampling, frozenset())
        assert events[:-1] == [Sampled(token) for token in alone]
