"""`nacre generate` and `nacre chat`: the text, the cache between questions, and errors."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.cli.main import run
from nacre.compiler.tools.generate.tokens import Generator, Sampling
from nacre.compiler.tools.generate.vocabulary import Vocabulary, read_vocabulary
from nacre.dialect.diagnostics import DiagnosticError
from talker import CONTEXT, TOKENS

GREEDY = ["--temperature", "0"]


def test_the_tokenizer_of_the_artifact(talker: Path) -> None:
    vocabulary = read_vocabulary(nacre.load(talker))
    assert [TOKENS[i] for i in vocabulary.encode("the moth")] == ["<s>", "\u2581the", "\u2581", "m", "o", "th"]
    assert [TOKENS[i] for i in vocabulary.encode("\u00e9")] == ["<s>", "\u2581", "<0xC3>", "<0xA9>"]
    for text in ("the moth.", "a  b", "\u00e9\u4e2d?"):
        assert vocabulary.decode(vocabulary.encode(text)) == text


def test_characters_are_streamed_when_they_are_whole(talker: Path) -> None:
    vocabulary = read_vocabulary(nacre.load(talker))
    prompt, rest = vocabulary.encode("the"), [TOKENS.index(t) for t in ("<0xC3>", "<0xA9>", "\u2581", "a", "<0xE4>")]
    pieces = list(vocabulary.stream(prompt, rest))
    assert pieces[:2] == ["\u00e9", " "] and "".join(pieces) == "\u00e9 a\ufffd"


def test_bytes_after_characters_of_several_tokens(talker: Path) -> None:
    """The end of the prompt that is decoded with an answer does not begin inside a character."""
    vocabulary = read_vocabulary(nacre.load(talker))
    three = vocabulary.encode("\u4e2d\u4e2d\u4e2d")
    assert len(three) == 1 + 1 + 9
    assert list(vocabulary.stream(three, three[-3:] * 2)) == ["\u4e2d"] * 2


def test_the_time_of_a_piece_does_not_grow_with_the_text(talker: Path) -> None:
    vocabulary = read_vocabulary(nacre.load(talker))
    sizes: list[int] = []

    class Watched(Vocabulary):
        def decode(self, ids: Sequence[int]) -> str:
            sizes.append(len(ids))
            return vocabulary.decode(ids)

    watched = Watched(vocabulary.tokenizer, (), frozenset(), "", {})
    ids = vocabulary.encode("the moth \u4e2d is a them. " * 40)
    assert "".join(watched.stream(ids[:1], ids[1:])) == vocabulary.decode(ids)
    assert len(ids) > 500 and max(sizes) < 100


def test_the_text_is_that_of_the_largest_logits(talker: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generate", str(talker), "the", *GREEDY, "--tokens", "12"]) == 0
    printed = capsys.readouterr().out
    model = nacre.load(talker)
    vocabulary = read_vocabulary(model)
    ids = vocabulary.encode("the")
    score = model.session(S=CONTEXT, P=1).entries["score"]
    for _ in range(12):
        session = model.session(S=CONTEXT, P=1)
        score = session.entries["score"]
        following = int(score(np.array(ids, np.int32))[-1].argmax())
        if following in vocabulary.end:
            break
        ids.append(following)
    assert printed == f"{vocabulary.decode(ids)}\n" and len(ids) > 4


def test_a_seed_gives_the_same_text(talker: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for seed in ("1", "1", "2"):
        assert run(["generate", str(talker), "a", "--seed", seed, "--tokens", "20", "--threads", seed]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]


def test_text_ends_where_the_session_is_full(talker: Path) -> None:
    generator = Generator(nacre.load(talker), 6)
    drawn = list(generator.generate([1, 262, 263], 50, Sampling(temperature=0), frozenset()))
    assert len(drawn) == 4 and len(generator.ids) == 6
    with pytest.raises(DiagnosticError, match=r"1 tokens do not fit: 0 of 6 positions are free"):
        generator.append([262])


def test_a_prompt_that_does_not_fit(talker: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generator = Generator(nacre.load(talker), 4)
    with pytest.raises(DiagnosticError, match="5 tokens do not fit: 4 of 4 positions are free"):
        generator.append([262] * 5)
    assert generator.append([262] * 4).shape == (len(TOKENS),)
    assert run(["generate", str(talker), "abcdefgh", "--capacity", "4"]) == 1
    printed = capsys.readouterr()
    assert "error[prompt-too-long]" in printed.err and printed.out == ""
    assert run(["generate", str(talker), "a", "--capacity", "999"]) == 1
    assert "error[bad-capacity]: a capacity of 999 tokens is not between 1 and 640" in capsys.readouterr().err


def test_a_conversation(talker: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("the?\nab\n"))
    assert run(["chat", str(talker), *GREEDY, "--tokens", "5"]) == 0
    first, second, *rest = capsys.readouterr().out.split("\n")
    assert rest == [""]
    model = nacre.load(talker)
    vocabulary = read_vocabulary(model)
    messages = [{"role": "user", "content": "the?"}]
    for answer in (first, second):
        ids = vocabulary.encode(vocabulary.converse(messages))
        drawn = list(Generator(model, CONTEXT).generate(ids, 5, Sampling(temperature=0), vocabulary.end))
        assert "".join(vocabulary.stream([], drawn)) == answer
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "ab"}]


def test_a_template_that_refuses(talker: Path) -> None:
    vocabulary = read_vocabulary(nacre.load(talker))
    with pytest.raises(DiagnosticError, match="the template of the model fails: no such role"):
        vocabulary.converse([{"role": "forbidden", "content": ""}])


def test_models_that_are_no_language_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nacre.compile("model f(x: f32[2]) -> f32[2] { return x }", tmp_path / "f.so")
    for command in (["generate", str(tmp_path / "f.so"), "a"], ["chat", str(tmp_path / "f.so"), "a"]):
        assert run(command) == 1
        assert "has no entry `prefill`, `decode`, `sample`" in " ".join(capsys.readouterr().err.split())
