"""Drafts from earlier text change the number of calls, and no token."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.cli.main import run
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
    assert draft([1, 2, 1], 4) == [2, 1, 2, 1]
    assert draft([1, 2, 3], 4) == draft([], 4) == draft([5], 4) == draft([5, 5], 0) == []
    assert draft([5, 5], 3) == [5, 5, 5]


@pytest.mark.parametrize("lookup", [1, 3, 10, 64])
def test_the_tokens_are_the_same(talker: Path, lookup: int) -> None:
    model = nacre.load(talker)
    for sampling in SAMPLINGS:
        for prompt in PROMPTS:
            for end in (frozenset[int](), frozenset(range(0, len(TOKENS), 5))):
                plain, drafting = Generator(model, CONTEXT), Generator(model, CONTEXT)
                expected = list(plain.generate(prompt, 40, sampling, end))
                assert list(drafting.generate(prompt, 40, sampling, end, lookup)) == expected
                # A later text continues from the same cache.
                assert drafting.ids == plain.ids
                if len(plain.ids) < CONTEXT:
                    np.testing.assert_array_equal(drafting.append([265]), plain.append([265]))


def test_repeated_text_needs_fewer_calls(talker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = Generator(nacre.load(talker), CONTEXT)
    calls: list[int] = []
    append, rows = Generator.append, Generator._rows
    monkeypatch.setattr(Generator, "_rows", lambda self, ids: calls.append(len(ids)) or rows(self, ids))
    monkeypatch.setattr(Generator, "append", lambda self, ids: append(self, ids))
    # The model repeats one token where all others are forbidden.
    generator._allowed[:] = False
    generator._allowed[270] = True
    drawn = list(generator.generate([1, 270, 270], 30, Sampling(temperature=0), frozenset(), 5))
    assert drawn == [270] * 30
    assert len(calls) <= 7 and max(calls) == 6


def test_a_text_that_is_left_early_drops_its_draft(talker: Path) -> None:
    model = nacre.load(talker)
    prompt = [1, *[270] * 9]
    for count in (1, 2, 3):
        generator = Generator(model, CONTEXT)
        stream = generator.generate(prompt, 30, Sampling(temperature=0), frozenset(), 8)
        drawn = [next(stream) for _ in range(count)]
        stream.close()
        # The last token was given, and not yet added.
        assert generator.ids == [*prompt, *drawn[:-1]]
        other = Generator(model, CONTEXT)
        other.append([*prompt, *drawn[:-1]])
        np.testing.assert_array_equal(generator.append([263]), other.append([263]))


def test_the_command(talker: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for lookup in ("0", "4"):
        assert run(["generate", str(talker), "the the the", "--lookup", lookup, "--temperature", "0"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] and len(texts[0]) > 12
