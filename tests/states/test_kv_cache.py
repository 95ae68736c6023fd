"""A GPT-2 block with a cache of keys and values computes the same as without one, at both levels."""

from __future__ import annotations

import nacre
import numpy as np
import pytest
from cached_attention import TEXT, WIDTH, make_weights
from nacre.compiler.checking import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.runtime.loader import ArgumentError, Model, OutOfRangeError


@pytest.fixture(scope="module", params=[0, 2])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("cache") / f"cache{request.param}.so"
    return nacre.compile(TEXT, path, weights=make_weights(), opt_level=request.param)


def _tokens(count: int, batch: int = 2) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((batch, count, WIDTH)).astype(np.float32)


@pytest.mark.parametrize("prefilled", [0, 1, 5, 8])
def test_prefill_and_single_steps_compute_the_same_as_without_a_cache(model: Model, prefilled: int) -> None:
    x = _tokens(9)
    expected = model.entries["whole"](x)
    session = model.session(B=2, S=9)
    step = session.entries["prefill"]
    parts = [step(np.ascontiguousarray(x[:, :prefilled]))]
    parts += [step(np.ascontiguousarray(x[:, at : at + 1])) for at in range(prefilled, 9)]
    # Sums over the capacity have more terms, all of them zero.
    np.testing.assert_allclose(np.concatenate(parts, axis=1), expected, rtol=0, atol=4e-5)
    assert session.states["length"] == 9


def test_a_full_cache_fails_the_call_and_changes_no_state(model: Model) -> None:
    session = model.session(B=2, S=8)
    step = session.entries["prefill"]
    step(_tokens(7))
    before = {name: array.tobytes() for name, array in session.states.items()}
    with pytest.raises(OutOfRangeError, match=r"`update_slice` at .*: a window of 2 that starts at 7 is out of range"):
        step(_tokens(2))
    assert {name: array.tobytes() for name, array in session.states.items()} == before
    step(_tokens(1))
    with pytest.raises(OutOfRangeError, match="an axis of size 8"):
        step(_tokens(1))


def test_a_call_that_never_fits_and_a_session_of_other_sizes_are_refused(model: Model) -> None:
    session = model.session(B=2, S=8)
    with pytest.raises(ArgumentError, match=r"needs S - T >= 0, which does not hold"):
        session.entries["prefill"](_tokens(9))
    with pytest.raises(ArgumentError, match=r"axis 0 is 3, expected `B` = 2 from the session"):
        session.entries["prefill"](_tokens(1, batch=3))
    with pytest.raises(ArgumentError, match=r"a session has the dims \(B, S\), got \(B\)"):
        model.session(B=2)
    with pytest.raises(ArgumentError, match=r"dim `S` is 129, outside 1..128 in this session"):
        model.session(B=2, S=129)
    with pytest.raises(ArgumentError, match="call it on a session"):
        model.entries["prefill"](_tokens(1))


def test_memory_is_a_formula_of_the_session(model: Model) -> None:
    described = model.describe()["session"]
    assert [d["name"] for d in described["dims"]] == ["B", "S"]
    assert model.session_bytes(B=2, S=16) == 4 * (2 * 3 * 16 * 8 * 4) + 64
    assert model.session_bytes(B=1, S=1) == 4 * 128 + 64


def test_only_new_rows_are_written() -> None:
    # The report names every copy; the checks with protected pages are in test_in_place.py.
    build = Build(read_model(TEXT, weights=make_weights()), Options(level=2))
    build.generate(build.lower(build.optimize()))
    (report,) = [r for r in build.report() if r.name == "prefill"]
    assert {s.name: s.copied for s in report.states} == dict.fromkeys(
        ["length", *(f"layer.{i}.cache.{what}" for i in (0, 1) for what in ("keys", "values"))], 0
    )
