"""Requests with several answers, probabilities of tokens, penalties and biases."""

from __future__ import annotations

import json
import math
from typing import Any

import nacre
import numpy as np
import pytest

pytest.importorskip("starlette", reason="the package starlette is not installed")
pytest.importorskip("uvicorn", reason="the package uvicorn is not installed")

from pathlib import Path

from nacre.compiler.tools.generate.tokens import Generator, Sampling, with_penalties
from nacre.compiler.tools.generate.vocabulary import read_vocabulary
from nacre.compiler.tools.serve.answers import Answer
from nacre.compiler.tools.serve.engine import Finished, Job, Sampled
from nacre.compiler.tools.serve.protocol import read_order
from running_server import Running, expected
from talker import CONTEXT, TOKENS

LONG = "o. o. o."
"""A prompt with a long answer, in which tokens occur several times."""
MANY = {"temperature": 1.5, "seed": 3, "n": 3}


def _parts(running: Running, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the choices in the events of a stream."""
    status, text = running.call(path, body | {"model": "talker", "stream": True})
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert status == 200 and events.pop() == "[DONE]"
    return [choice for event in events for choice in json.loads(event)["choices"]]


def test_several_answers_to_several_prompts(running: Running, talker: Path) -> None:
    found = running.complete(["the moth", "a"], **MANY)
    texts = [choice["text"] for choice in found["choices"]]
    sampling = {"temperature": 1.5, "top_k": 0, "top_p": 1, "min_p": 0}
    wanted = [
        expected(talker, prompt, 12, Sampling(**sampling, seed=3 + number))  # type: ignore[arg-type]  # by their names
        for prompt in ("the moth", "a")
        for number in range(3)
    ]
    assert texts == wanted and len(set(texts)) > 4
    assert [choice["index"] for choice in found["choices"]] == [0, 1, 2, 3, 4, 5]
    prompts = sum(len(running.vocabulary.encode(prompt)) for prompt in ("the moth", "a"))
    assert found["usage"]["prompt_tokens"] == prompts
    parts = _parts(running, "/v1/completions", {"prompt": ["the moth", "a"], "max_tokens": 12, **MANY})
    for index, text in enumerate(texts):
        own = [part for part in parts if part["index"] == index]
        assert "".join(part["text"] for part in own) == text
        assert [part["finish_reason"] for part in own[:-1]] == [None] * (len(own) - 1)
        assert own[-1]["finish_reason"] in ("length", "stop")


def test_more_answers_than_the_queue_holds(running: Running) -> None:
    status, text = running.call("/v1/completions", {"model": "talker", "prompt": "a", "n": 20})
    assert status == 429, text
    assert len(running.complete("a", n=19, max_tokens=1)["choices"]) == 19


def test_an_echo_begins_with_the_prompt(running: Running, talker: Path) -> None:
    found = running.complete(["the", running.vocabulary.encode("the")], echo=True, max_tokens=6)
    text = expected(talker, "the", 6)
    assert [choice["text"] for choice in found["choices"]] == ["the" + text] * 2
    parts = _parts(running, "/v1/completions", {"prompt": "the", "echo": True, "max_tokens": 6, "temperature": 0})
    assert "".join(part["text"] for part in parts) == "the" + text and parts[0]["text"] == "the"


def _logs(talker: Path, ids: list[int], count: int) -> tuple[list[int], list[np.ndarray[Any, Any]]]:
    """Returns the most likely tokens behind a prompt, and the logarithms of all probabilities at each of them."""
    model = nacre.load(talker)
    generator, end = Generator(model, CONTEXT), read_vocabulary(model).end
    tokens, logs = [], []
    for token in generator.generate(ids, count, Sampling(temperature=0), end):
        assert generator.logits is not None
        wide = generator.logits.astype(np.float64)
        tokens.append(token)
        logs.append(wide - wide.max() - math.log(np.exp(wide - wide.max()).sum()))
    return tokens, logs


def test_probabilities_of_tokens(running: Running, talker: Path) -> None:
    ids = running.vocabulary.encode(LONG)
    choice = running.complete(LONG, logprobs=3, max_tokens=5)["choices"][0]
    tokens, logs = _logs(talker, ids, 5)
    assert len(tokens) == 5
    scores = choice["logprobs"]
    np.testing.assert_allclose(scores["token_logprobs"], [row[token] for token, row in zip(tokens, logs, strict=True)])
    assert "".join(scores["tokens"]) == choice["text"]
    assert scores["text_offset"] == [len("".join(scores["tokens"][:n])) for n in range(5)]
    for best, row, text, own in zip(
        scores["top_logprobs"], logs, scores["tokens"], scores["token_logprobs"], strict=True
    ):
        assert 0 < len(best) <= 3 and max(best.values()) == pytest.approx(row.max())
        # At temperature 0, the token is the most likely one; several tokens may have the same text.
        assert best[text] == pytest.approx(own)
    assert running.complete(LONG, logprobs=0, max_tokens=2)["choices"][0]["logprobs"]["top_logprobs"] == [{}, {}]
    parts = _parts(running, "/v1/completions", {"prompt": LONG, "max_tokens": 5, "temperature": 0, "logprobs": 3})
    streamed = [log for part in parts if part["logprobs"] for log in part["logprobs"]["token_logprobs"]]
    assert streamed == scores["token_logprobs"]


def test_probabilities_of_a_prompt(running: Running, talker: Path) -> None:
    """The server returns the probability of each token of the prompt, with or without an answer, and if another request
    had the same prompt."""
    ids = running.vocabulary.encode(LONG)
    generator = Generator(nacre.load(talker), CONTEXT)
    logs = [
        row - row.max() - np.log(np.exp(row - row.max()).sum()) for row in map(np.float64, generator.append_each(ids))
    ]
    wanted = [row[token] for row, token in zip(logs[:-1], ids[1:], strict=True)]
    for given in ({"max_tokens": 0}, {"max_tokens": 3}, {"max_tokens": 3, "n": 2}):
        for choice in running.complete(LONG, echo=True, logprobs=2, **given)["choices"]:
            scores = choice["logprobs"]
            assert scores["token_logprobs"][0] is None and scores["top_logprobs"][0] is None
            np.testing.assert_allclose(scores["token_logprobs"][1 : len(ids)], wanted, rtol=1e-4)
            assert choice["text"].startswith(LONG) and "".join(scores["tokens"]) == choice["text"]
            assert scores["text_offset"] == [len("".join(scores["tokens"][:n])) for n in range(len(scores["tokens"]))]
            for best, row in zip(scores["top_logprobs"][1 : len(ids)], logs, strict=False):
                assert max(best.values()) == pytest.approx(row.max(), rel=1e-4)
            assert len(scores["tokens"]) == len(ids) + given["max_tokens"]
    body = {"prompt": LONG, "max_tokens": 0, "echo": True, "logprobs": 2}
    parts = _parts(running, "/v1/completions", body)
    streamed = [log for part in parts if part["logprobs"] for log in part["logprobs"]["token_logprobs"]]
    np.testing.assert_allclose(streamed[1:], wanted, rtol=1e-4)
    assert "".join(part["text"] for part in parts) == LONG and len(streamed) == len(ids)
    assert running.complete(LONG, echo=True, max_tokens=0, logprobs=0)["usage"]["completion_tokens"] == 0


def test_probabilities_in_conversations(running: Running) -> None:
    messages = [{"role": "user", "content": "the?"}]
    body = {"messages": messages, "max_tokens": 4, "temperature": 0, "logprobs": True, "top_logprobs": 2}
    status, text = running.call("/v1/chat/completions", {"model": "talker", **body})
    choice = json.loads(text)["choices"][0]
    content = choice["logprobs"]["content"]
    assert status == 200 and "".join(token["token"] for token in content) == choice["message"]["content"]
    for token in content:
        assert token["logprob"] == max(other["logprob"] for other in token["top_logprobs"])
        assert len(token["top_logprobs"]) == 2 and bytes(token["bytes"]).decode() == token["token"]
    streamed = _parts(running, "/v1/chat/completions", body)
    assert [token for part in streamed if part["logprobs"] for token in part["logprobs"]["content"]] == content


def test_a_biased_token(running: Running, talker: Path) -> None:
    """A bias of 100 selects a token, one of -100 excludes it; probabilities do not contain biases."""
    ids = running.vocabulary.encode("the moth")
    (best,), (row,) = _logs(talker, ids, 1)
    other = int(np.argsort(row)[-3])
    found = running.complete("the moth", logit_bias={str(other): 100}, max_tokens=1, logprobs=0)["choices"][0]
    assert found["logprobs"]["token_logprobs"] == [pytest.approx(row[other])]
    second = running.complete("the moth", logit_bias={str(best): -100}, max_tokens=1, logprobs=0)["choices"][0]
    assert second["logprobs"]["token_logprobs"] == [pytest.approx(np.sort(row)[-2])]


@pytest.mark.parametrize("name", ["presence_penalty", "frequency_penalty"])
def test_penalties_for_tokens_of_the_answer(running: Running, talker: Path, name: str) -> None:
    """Tokens of the prompt have none: the first token is that without penalties."""
    given = Sampling(temperature=0, top_k=0, top_p=1, min_p=0, **{name.partition("_")[0]: 2.0})
    plain, changed = expected(talker, LONG, 30), expected(talker, LONG, 30, given)
    assert plain != changed and plain[0] == changed[0]
    found = running.complete(LONG, max_tokens=30, **{name: 2.0})["choices"][0]["text"]
    assert found == changed


def test_penalties_count_tokens() -> None:
    """The tokens 5, 5 and 7 of an answer behind the prompt 5, 6."""
    sampling = Sampling(presence=0.5, frequency=0.25, bias=((6, 2.0), (7, -1.0)))
    found = with_penalties(np.zeros(9, np.float32), [5, 5, 7], sampling)
    assert found.tolist() == [0, 0, 0, 0, 0, -1.0, 2.0, -1.75, 0]


def test_tokens_behind_a_stop_have_no_probability(talker: Path) -> None:
    vocabulary = read_vocabulary(nacre.load(talker))
    order = read_order({"model": "m", "prompt": "a", "logprobs": 0, "stop": "th"}, "m", is_chat=False)
    job = Job([1, 262], 9, order.sampling, lambda _: None, alternatives=0)
    answer = Answer(0, order, vocabulary, job, "")
    parts = [answer.push(Sampled(TOKENS.index(letter), -1.0)) for letter in "oth"]
    assert parts[1] is None and parts[2] is not None and parts[2].reason == "stop"
    texts = "".join(part.text for part in parts if part is not None)
    scored = [token.text for part in parts if part is not None for token in part.scored]
    assert (texts, scored) == ("o", ["o"])
    assert answer.is_done and answer.push(Finished("length")) is not None
