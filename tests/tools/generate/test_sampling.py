"""The choice of tokens: which tokens can be chosen, how often, and that a seed determines them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.runtime.loader import Model, OutOfRangeError
from talker import TOKENS

COUNT = len(TOKENS)
LOGITS = (np.random.default_rng(0).standard_normal(COUNT) * 2).astype(np.float32)
ORDER = np.argsort(-LOGITS)


def probabilities(logits: np.ndarray[Any, Any], temperature: float = 1.0) -> np.ndarray[Any, np.dtype[np.float64]]:
    powers = np.exp((logits.astype(np.float64) - logits.max()) / temperature)
    return np.asarray(powers / powers.sum())


@pytest.fixture(scope="module")
def model(talker: Path) -> Model:
    return nacre.load(talker)


def draw(model: Model, count: int = 300, *, logits: np.ndarray[Any, Any] = LOGITS, **given: Any) -> list[int]:
    values = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "penalty": 1.0, "seed": 3} | given
    recent = np.array(values.pop("recent", []), np.int32)
    allowed = values.pop("allowed", np.ones(COUNT, np.bool_))
    sample = model.entries["sample"]
    drawn = [sample(logits=logits, recent=recent, allowed=allowed, step=i, **values)[0] for i in range(count)]
    return [int(token) for token in drawn]


def test_the_most_likely_token_at_temperature_0(model: Model) -> None:
    allowed = np.sort(LOGITS)[-3] > LOGITS
    assert set(draw(model, 3, temperature=0.0)) == {ORDER[0]}
    assert set(draw(model, 3, temperature=0.0, allowed=allowed)) == {ORDER[3]}


def test_frequencies_are_the_probabilities(model: Model) -> None:
    for temperature in (0.5, 1.0, 2.0):
        drawn = np.bincount(draw(model, 3000, temperature=temperature), minlength=COUNT) / 3000
        expected = probabilities(LOGITS, temperature)
        # The mean distance of 3000 draws from `expected`, times two.
        assert np.abs(drawn - expected).sum() < 2 * np.sqrt(expected / 3000).sum()
        assert np.abs(drawn - expected).max() < 5 * np.sqrt(expected.max() / 3000)


@pytest.mark.parametrize("k", [1, 2, 7])
def test_top_k(model: Model, k: int) -> None:
    assert set(draw(model, top_k=k)) == set(ORDER[:k].tolist())


def test_top_k_of_all_tokens_and_of_more(model: Model) -> None:
    assert draw(model, 50, top_k=COUNT) == draw(model, 50, top_k=COUNT + 5) == draw(model, 50)


@pytest.mark.parametrize("p", [1e-6, 0.1, 0.3])
def test_top_p(model: Model, p: float) -> None:
    total = np.cumsum(probabilities(LOGITS)[ORDER])
    kept = int(np.searchsorted(total, p)) + 1
    assert set(draw(model, top_p=p)) == set(ORDER[:kept].tolist())


@pytest.mark.parametrize("p", [0.2, 0.6, 1.0])
def test_min_p(model: Model, p: float) -> None:
    chances = probabilities(LOGITS)
    assert set(draw(model, min_p=p)) == set(np.flatnonzero(chances >= p * chances.max()).tolist())


def test_equal_logits_are_kept_together(model: Model) -> None:
    equal = np.where(np.isin(np.arange(COUNT), [4, 9, 200]), 1.0, -3.0).astype(np.float32)
    assert set(draw(model, logits=equal, top_k=1)) == {4, 9, 200}
    assert set(draw(model, 3, logits=np.zeros(COUNT, np.float32), top_k=5, top_p=0.5)) <= set(range(COUNT))


def test_masked_tokens_are_never_chosen(model: Model) -> None:
    allowed = np.isin(np.arange(COUNT), [3, 8])
    for given in ({}, {"top_k": 1}, {"top_p": 0.01}, {"min_p": 1.0}, {"temperature": 0.0}):
        drawn = set(draw(model, 40, allowed=allowed, **given))
        assert drawn <= {3, 8} and drawn
    assert set(draw(model, 60, allowed=allowed, top_k=20)) == {3, 8}


def test_a_penalty_changes_tokens_that_occurred(model: Model) -> None:
    two = np.full(COUNT, -50.0, np.float32)
    two[[5, 6]] = 2.0, 1.9
    assert set(draw(model, 3, logits=two, temperature=0.0, penalty=1.1, recent=[5])) == {6}
    assert set(draw(model, 3, logits=two, temperature=0.0, penalty=1.1, recent=[5, 6, 6])) == {5}
    assert set(draw(model, 3, logits=-two, temperature=0.0, penalty=1.5, recent=range(7, COUNT))) <= set(range(5))


def test_the_most_likely_token_reaches_every_fraction(model: Model) -> None:
    for fraction in (2.0, np.inf):
        assert set(draw(model, 3, min_p=fraction)) == {ORDER[0]}


NOTHING = np.zeros(COUNT, np.bool_)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "given",
    [
        {"allowed": NOTHING},
        {"logits": np.where(np.arange(COUNT) == 5, np.nan, LOGITS).astype(np.float32)},
        {"logits": np.where(np.arange(COUNT) == 5, np.inf, LOGITS).astype(np.float32)},
        {"recent": [-1]},
        {"recent": [COUNT]},
    ],
)
def test_a_choice_without_a_token_fails(model: Model, given: dict[str, Any], temperature: float) -> None:
    index = given["recent"][0] if "recent" in given else COUNT
    with pytest.raises(OutOfRangeError, match=f"index {index} is out of range"):
        draw(model, 1, temperature=temperature, **given)


def test_a_seed_determines_the_tokens(model: Model, talker: Path) -> None:
    drawn = draw(model, 64, top_k=40, top_p=0.9, min_p=0.01, temperature=1.3)
    for threads in (1, 2, 3):
        other = nacre.load(talker, threads=threads)
        assert draw(other, 64, top_k=40, top_p=0.9, min_p=0.01, temperature=1.3) == drawn
    assert draw(model, 64, seed=4) != draw(model, 64, seed=5)


def test_the_probability_is_that_of_the_logits(model: Model) -> None:
    sample = model.entries["sample"]
    allowed, none = np.ones(COUNT, np.bool_), np.empty(0, np.int32)
    token, logarithm = sample(LOGITS, none, allowed, 0.7, 5, 0.9, 0.0, 1.0, 1, 1)
    np.testing.assert_allclose(logarithm, np.log(probabilities(LOGITS)[int(token)]), rtol=1e-5)
