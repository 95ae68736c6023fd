"""Speculative decoding by look-up changes the number of calls, and no token."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.compiler.cli.main import run
from nacre.compiler.tools.generate import rounding, tokens
from nacre.compiler.tools.generate.lookup import draft
from nacre.compiler.tools.generate.tokens import Generator, Sampling
from talker import CONTEXT, TOKENS

PROMPTS = ([1, 262, 263, 264, 262, 263], [1], [1, *[270, 271, 272] * 6], [1, *range(262, 280)])
SAMPLINGS = (
    Sampling(temperature=0),
    Sampling(temperature=0, penalty=1.3, window=8),
    Sampling(temperature=0.7, seed=1),
    Sampling(temperature=0.2, top_k=3, penalty=1.1, seed=2),
)


def test_drafts() -> None:
    assert draft([1, 2, 3, 4, 2, 3], 2) == [4, 2]
    assert draft([1, 2, 3, 9, 2, 3, 5, 2, 3], 3) == [5, 2, 3], "the last place counts"
    assert draft([7, 1, 2, 3, 9, 8, 2, 3, 5, 1, 2, 3], 1) == [9], "a longer end counts first"
    assert draft([1, 2, 1, 2], 4) == [1, 2, 1, 2]
    assert draft([1, 2, 3], 4) == draft([], 4) == draft([5], 4) == draft([5, 5], 0) == []
    assert draft([5, 5, 5], 3) == [5, 5, 5]
    assert draft([1, 2, 1], 3) == [], "one token says little"


@pytest.mark.parametrize("lookup", [1, 3, 10, 64])
def test_the_tokens_are_the_same(talker: Path, lookup: int) -> None:
    model = nacre.load(talker)
    for sampling in SAMPLINGS:
        for prompt in PROMPTS:
            for end in (frozenset[int](), frozenset(range(0, len(TOKENS), 5))):
                plain, drafting = Generator(model, CONTEXT), Generator(model, CONTEXT, lookup)
                expected = list(plain.generate(prompt, 40, sampling, end))
                assert list(drafting.generate(prompt, 40, sampling, end)) == expected
                # A later text continues from the same cache.
                assert drafting.ids == plain.ids
                if len(plain.ids) < CONTEXT:
                    np.testing.assert_array_equal(drafting.append([265]), plain.append([265]))


def test_repeated_text_needs_fewer_calls(talker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = Generator(nacre.load(talker), CONTEXT, 5)
    calls: list[int] = []
    rows = Generator.append_each
    monkeypatch.setattr(Generator, "append_each", lambda self, ids: calls.append(len(ids)) or rows(self, ids))
    # The model repeats one token where all others are forbidden.
    generator.allowed[:] = False
    generator.allowed[270] = True
    drawn = list(generator.generate([1, 270, 270], 30, Sampling(temperature=0), frozenset()))
    assert drawn == [270] * 30
    assert len(calls) <= 7 and max(calls) == 6


def test_a_text_that_is_left_early_drops_its_draft(talker: Path) -> None:
    model = nacre.load(talker)
    prompt = [1, *[270] * 9]
    for count in (1, 2, 3):
        generator = Generator(model, CONTEXT, 8)
        stream = generator.generate(prompt, 30, Sampling(temperature=0), frozenset())
        drawn = [next(stream) for _ in range(count)]
        stream.close()
        # The last token was given, and not yet added.
        assert generator.ids == [*prompt, *drawn[:-1]]
        other = Generator(model, CONTEXT)
        other.append([*prompt, *drawn[:-1]])
        np.testing.assert_array_equal(generator.append([263]), other.append([263]))


def test_close_logits_are_computed_again(talker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits of drafted tokens decide only where they are far apart: here they are wrong where they are close."""
    model = nacre.load(talker)
    sampling = Sampling(temperature=0)
    prompt = [1, *[270, 271] * 4]
    expected = list(Generator(model, CONTEXT).generate(prompt, 30, sampling, frozenset()))
    monkeypatch.setattr(tokens, "rounding_bound", lambda model, most: 0.2)
    rows, again = Generator.append_each, Generator._again
    repeated: list[int] = []

    def disturbed(self: Generator, ids: list[int]) -> list[Any]:
        found = rows(self, ids)
        if len(ids) == 1:
            return found
        noise = np.random.default_rng(len(self.ids))
        return [(row + noise.uniform(-0.09, 0.09, len(row)) * np.abs(row).max()).astype(np.float32) for row in found]

    monkeypatch.setattr(Generator, "append_each", disturbed)
    monkeypatch.setattr(Generator, "_again", lambda self, *span: repeated.append(1) or again(self, *span))
    generator = Generator(model, CONTEXT, 6)
    assert list(generator.generate(prompt, 30, sampling, frozenset())) == expected
    assert repeated


@pytest.mark.parametrize(
    ("keys", "operation", "dtype", "factors", "most", "bound"),
    [
        ("f32", "matmul", "f32", "f32", 64, 1e-4),
        ("f16", "matmul", "f16", "f16", 64, 1e-3),
        ("i8", "round", "i8", None, 64, 2e-2),
        ("f32", "quantize", "u8", None, 64, 1e-1),
        ("i8", "matmul", "bf16", "bf16", 64, 1e-1),
        # Calls of few tokens round no factors.
        ("f32", "matmul", "f32", "i16", 47, 1e-4),
        ("f32", "matmul", "f32", "i16", 48, 1e-2),
    ],
)
def test_shorter_formats_have_larger_bounds(
    keys: str,
    operation: str,
    dtype: str,
    factors: str | None,
    most: int,
    bound: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    value = SimpleNamespace(type=SimpleNamespace(dtype=dtype))
    call = SimpleNamespace(operations=[SimpleNamespace(op=operation, factors=factors)], values=[value])
    monkeypatch.setattr(rounding, "calls", lambda model: {"decode": [], "score": [call]})
    states = [{"name": "a.length", "dtype": "i64"}, {"name": "a.keys", "dtype": keys}]
    model: Any = SimpleNamespace(describe=lambda: {"session": {"states": states}})
    assert rounding.rounding_bound(model, most) == bound


def test_the_bound_of_a_model_in_f32(talker: Path) -> None:
    assert rounding.rounding_bound(nacre.load(talker)) == 1e-4


def test_texts_at_other_temperatures_have_no_drafts(talker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "draft", lambda ids, count: [] if count <= 0 else pytest.fail("a draft"))
    generator = Generator(nacre.load(talker), CONTEXT, 6)
    assert len(list(generator.generate([1, 270, 270], 9, Sampling(seed=1), frozenset()))) == 9
    assert run(["generate", str(talker), "a", "--lookup", "3"]) == 2


def test_the_command(talker: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for lookup in ("0", "4"):
        assert run(["generate", str(talker), "the the the", "--lookup", lookup, "--temperature", "0"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] and len(texts[0]) > 12
