"""Entries for several texts of different lengths compute the same for each as for one text alone.

The expected logits are those of the package `transformers`: the last two are stored, and the interpreter computes the
others by the entry for one text, which `test_folder_references.py` compares with the stored ones.
"""

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
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.dialect.diagnostics import DiagnosticError
from nacre.runtime.loader import Model, NacreError, OutOfRangeError
from nacre.runtime.observe import Event, observe
from tiny_folders import CONTEXT, DECODERS, IDS, REFERENCES, VOCABULARY, Array, write_folder

PAGE, POOL = 5, 11
TOLERANCE = 1e-5
TABLE = np.array([[7, 2, 9, 0, 4], [3, 10, 1, 8, 0], [5, 6, 0, 0, 0]], np.int32)
"""Pages of three texts in no order; the second row has room for 20 tokens, the third for 10, and page 0 fills up."""
INTERPRETED = ("gemma3", "gpt2", "phi")


def _folder(name: str, path: Path) -> Path:
    with np.load(REFERENCES) as stored:
        described = json.loads(bytes(stored[f"{name}/described"]))
    write_folder(path / name, described["config"], described["shapes"])
    return path / name


def _array(*numbers: int) -> Array:
    return np.array(numbers, np.int32)


def _padded(*rows: Array) -> Array:
    """Returns texts as rows of one array. No token of a text is at its end, where any number may be."""
    found = np.full((len(rows), max(map(len, rows))), VOCABULARY - 1, np.int32)
    for number, row in enumerate(rows):
        found[number, : len(row)] = row
    return found


def _check(call: Any, whole: Array, atol: float) -> None:
    """Three texts that begin at other tokens of `IDS` would need other references, so they differ in length only."""

    def compare(found: Array, *lengths: int) -> None:
        np.testing.assert_allclose(found, whole[[n - 1 for n in lengths]], rtol=0, atol=atol)

    counts = _array(4, 11, 1)
    compare(call("prefill_rows", _padded(IDS[:4], IDS[:11], IDS[:1]), counts, _array(0, 0, 0), TABLE), 4, 11, 1)
    compare(call("decode_rows", IDS[[4, 11, 1]], counts, TABLE), 5, 12, 2)
    # A row stays away, and the others change places: one in a chunk, one with a single token.
    rows = [2, 0]
    found = call("prefill_rows", _padded(IDS[2:9], IDS[5:6]), _array(7, 1), _array(2, 5), TABLE[rows])
    compare(found, 9, 6)
    compare(call("decode_rows", IDS[[6, 12, 9]], _array(6, 12, 9), TABLE), 7, 13, 10)


@pytest.mark.parametrize("name", INTERPRETED)
def test_rows_in_the_interpreter(name: str, tmp_path: Path) -> None:
    session = InterpretedSession(read_model(_folder(name, tmp_path), settings={"page": PAGE}), S=CONTEXT, P=POOL)
    whole = session.call("score", IDS)
    _check(session.call, whole, 1e-9 * float(np.abs(whole).max()))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Mistral: grouped queries, and a window that is no multiple of a page."""
    folder = tmp_path_factory.mktemp("rows")
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv(CHECK_PASSES, raising=False)
        return nacre.compile(_folder("mistral", folder), folder / "rows.so", settings={"page": PAGE})


def _session(model: Model, capacity: int = CONTEXT) -> tuple[Model, Array]:
    session = model.session(S=capacity, P=POOL)
    whole = session.entries["score"](IDS)
    return session, whole


def test_compiled_rows(model: Model) -> None:
    session, whole = _session(model)
    _check(lambda name, *given: session.entries[name](*given), whole, TOLERANCE * float(np.abs(whole).max()))


def test_one_full_row(model: Model) -> None:
    session, whole = _session(model)
    at = _array(0, 0, 0)
    lengths = _array(19, 3, 10)
    # The third row has two pages, and a table with as many.
    tables = TABLE[:, :4].copy()
    session.entries["prefill_rows"](_padded(IDS[:19], IDS[:3], IDS[:10]), lengths, at, tables)
    before = {name: array.tobytes() for name, array in session.states.items()}
    step = session.entries["decode_rows"]
    for bad in (_array(20, 3, 10), _array(-1, 3, 10)):
        with pytest.raises(OutOfRangeError):
            step(IDS[[19, 3, 10]], bad, tables)
    with pytest.raises(OutOfRangeError):
        session.entries["prefill_rows"](_padded(IDS[:1], IDS[3:5]), _array(1, 2), _array(20, 3), tables[:2])
    assert {name: array.tobytes() for name, array in session.states.items()} == before
    atol = TOLERANCE * float(np.abs(whole).max())
    found = step(IDS[[19, 3]], lengths[:2], tables[:2])
    np.testing.assert_allclose(found, whole[[19, 3]], rtol=0, atol=atol)
    with pytest.raises(OutOfRangeError):
        step(IDS[[20, 4]], lengths[:2] + 1, tables[:2])
    np.testing.assert_allclose(step(IDS[4:5], _array(4), tables[1:2])[0], whole[4], rtol=0, atol=atol)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            (_array(VOCABULARY), _array(0), TABLE[:1]),
            f"index {VOCABULARY} is out of range for an axis of size {VOCABULARY}",
        ),
        ((_array(-1), _array(0), TABLE[:1]), f"index -1 is out of range for an axis of size {VOCABULARY}"),
        (
            (_array(1), _array(0), np.array([[POOL]], np.int32)),
            f"index {POOL} is out of range for an axis of size {POOL}",
        ),
        ((_array(1), _array(0), np.array([[-1]], np.int32)), f"index -1 is out of range for an axis of size {POOL}"),
        ((_array(1), _array(0), np.array([[3, POOL]], np.int32)), f"index {POOL} is out of range .* size {POOL}"),
        ((_array(1), _array(0), np.zeros((1, CONTEXT), np.int32)), "M"),
    ],
)
def test_bad_rows(model: Model, given: tuple[Array, ...], message: str) -> None:
    session, whole = _session(model)
    with pytest.raises(NacreError, match=message):
        session.entries["decode_rows"](*given)
    # The last token of a row has the index counts - 1.
    for count in (0, 3, -1):
        with pytest.raises(OutOfRangeError, match=f"index {count - 1} is out of range for an axis of size 2"):
            session.entries["prefill_rows"](IDS[None, :2], _array(count), _array(0), TABLE[:1])
    found = session.entries["decode_rows"](IDS[:1], _array(0), TABLE[:1])[0]
    np.testing.assert_allclose(found, whole[0], rtol=0, atol=TOLERANCE * float(np.abs(whole).max()))


def test_texts_share_pages(model: Model) -> None:
    session, whole = _session(model)
    session.entries["prefill_rows"](IDS[None, :10], _array(10), _array(0), TABLE[:1])
    shared = np.array([[7, 2, 9], [7, 2, 5], [7, 1, 0]], np.int32)
    given = _padded(IDS[10:13], IDS[10:12], IDS[5:8])
    found = session.entries["prefill_rows"](given, _array(3, 2, 3), _array(10, 10, 5), shared)
    np.testing.assert_allclose(found, whole[[12, 11, 7]], rtol=0, atol=TOLERANCE * float(np.abs(whole).max()))


def test_no_cache_is_copied(model: Model, tmp_path: Path) -> None:
    build = Build(read_model(_folder("mistral", tmp_path), settings={"page": PAGE}), Options(level=2))
    build.generate(build.lower(build.optimize()))
    reports = [r for r in build.report() if r.name.endswith("_rows")]
    copied = {s.name: s.copied for r in reports for s in r.states}
    assert len(reports) == 2 and len(copied) == 4
    assert copied == dict.fromkeys(copied, 0)
    seen: dict[str, set[int]] = {}
    session = model.session(S=1, P=POOL)

    def see(event: Event) -> None:
        for value in event.call.values:
            array = event.array(value)
            if array.size == POOL * PAGE * 2 * 8:
                seen.setdefault("pool", set()).add(array.__array_interface__["data"][0])

    with observe(session, see):
        for at in range(3):
            session.entries["decode_rows"](IDS[:2], _array(at, at), TABLE[:2])
    assert len(seen["pool"]) == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"page": -1}, "`page` is -1, not a number of tokens"),
        ({"page": CONTEXT + 1}, "`page` is 25"),
        ({"page": True}, "`page` is True"),
        ({"pages": 4}, "no setting `pages`"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DiagnosticError, match=message):
        read_model(_folder("mistral", tmp_path), settings=settings)


@pytest.mark.parametrize("name", [name for name in DECODERS if name not in ("mistral", "mamba")])
def test_every_architecture(name: str, tmp_path: Path, pytestconfig: pytest.Config, unchecked: None) -> None:
    if not pytestconfig.getoption("--variants"):
        pytest.skip("compiled architectures run with --variants")
    compiled = nacre.compile(_folder(name, tmp_path), tmp_path / "rows.so", settings={"page": PAGE})
    # Rows have the angles of sessions of the greatest capacity.
    session, whole = _session(compiled, 4 * CONTEXT if name == "phi3-short" else CONTEXT)
    _check(lambda entry, *given: session.entries[entry](*given), whole, TOLERANCE * float(np.abs(whole).max()))
