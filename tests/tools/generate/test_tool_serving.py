"""Requests with tools and with suffixes to a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nacre
import pytest

pytest.importorskip("starlette", reason="the package starlette is not installed")
pytest.importorskip("uvicorn", reason="the package uvicorn is not installed")

from dataclasses import replace

from nacre.compiler.tools.generate.tokens import Generator, Sampling
from nacre.compiler.tools.generate.vocabulary import read_vocabulary
from running_server import Running, Scripted
from talker import CONTEXT, LONGEST, TOKENS, TOOL_TEMPLATE

FILL = (3, 4, 0)
TIDE = {
    "type": "function",
    "function": {
        "name": "tide",
        "description": "The height of the tide.",
        "parameters": {
            "type": "object",
            "properties": {"at": {"enum": ["sea", "moth"]}, "day": {"type": "integer", "minimum": 0, "maximum": 99}},
            "required": ["at", "day"],
            "additionalProperties": False,
        },
    },
}
NOW = {"type": "function", "function": {"name": "now"}}
MESSAGES = [{"role": "user", "content": "the?"}]
ASKED = {"model": "talker", "messages": MESSAGES, "tools": [TIDE, NOW], "max_tokens": 200, "temperature": 1.5}
NAMED = {"type": "function", "function": {"name": "tide"}}


@pytest.fixture(scope="module", params=["turns", "batches"])
def calling(talker: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    started = Running(talker, request.param, LONGEST, template=TOOL_TEMPLATE, fill=FILL)
    yield started
    started.stop()


def ask(server: Running | Scripted, **given: Any) -> dict[str, Any]:
    status, text = Running.call(server, "/v1/chat/completions", ASKED | given)  # type: ignore[arg-type]  # reads a port
    assert status == 200, text
    found: dict[str, Any] = json.loads(text)
    return found["choices"][0]


def stream(server: Running | Scripted, **given: Any) -> list[dict[str, Any]]:
    """The choices of the events of a stream."""
    _, text = Running.call(server, "/v1/chat/completions", ASKED | given | {"stream": True})  # type: ignore[arg-type]  # as above
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert events.pop() == "[DONE]", text
    return [json.loads(event)["choices"][0] for event in events]


def test_a_request_demands_a_call(calling: Running) -> None:
    """Of one function or of any, whole or as a stream; the same seed gives the same call."""
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    for seed, choice in ((1, "required"), (2, NAMED)):
        found = ask(calling, tool_choice=choice, seed=seed, parallel_tool_calls=False)
        assert found["finish_reason"] == "tool_calls" and found["message"]["content"] is None
        (call,) = found["message"]["tool_calls"]
        arguments = json.loads(call["function"]["arguments"])
        if call["function"]["name"] == "tide":
            assert arguments.keys() == {"at", "day"} and arguments["at"] in ("sea", "moth")
        else:
            assert choice == "required" and call["function"]["name"] == "now" and arguments == {}
        parts = stream(calling, tool_choice=choice, seed=seed, parallel_tool_calls=False)
        assert parts[0]["delta"] == {"content": "", "role": "assistant"}
        assert (parts[-1]["finish_reason"], parts[-1]["delta"]) == ("tool_calls", {})
        deltas = [part["delta"]["tool_calls"][0] for part in parts[1:-1]]
        head = deltas[0]
        assert (head["index"], head["type"], head["function"]["name"]) == (0, "function", call["function"]["name"])
        assert all(delta.keys() == {"index", "function"} for delta in deltas[1:])
        assert "".join(delta["function"]["arguments"] for delta in deltas) == call["function"]["arguments"]
        assert len(head["id"]) == 9 and len(deltas) > 2


def test_a_call_that_is_too_long(calling: Running) -> None:
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    found = ask(calling, tool_choice=NAMED, max_tokens=45)
    assert found["finish_reason"] == "length"
    arguments = found["message"]["tool_calls"][0]["function"]["arguments"]
    assert arguments.startswith("{") and not arguments.endswith("}")


def test_a_conversation_with_results(calling: Running) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "now", "arguments": '{"b": 1}'}}
    history = [
        *MESSAGES,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "3"},
    ]
    found = ask(calling, messages=history, tool_choice="none", temperature=0, max_tokens=4)
    read = [
        *MESSAGES,
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "now", "arguments": {"b": 1}}}]},
    ]
    text = calling.vocabulary.converse([*read, {"role": "tool", "content": "3"}])
    assert '<tool_call>{"name": "now", "arguments": {"b": 1}}' in text and "tide" not in text
    assert found["message"].keys() == {"role", "content"}
    plain = calling.complete(text, max_tokens=4)["choices"][0]["text"]
    assert found["message"]["content"].strip() == plain.strip()


def test_a_schema_that_no_grammar_has(calling: Running) -> None:
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    function = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "foo"}}}}
    body = ASKED | {"tools": [{"type": "function", "function": function}], "tool_choice": "required"}
    status, text = calling.call("/v1/chat/completions", body)
    assert status == 400 and json.loads(text)["error"]["param"] == "tools"
    assert "the grammar of `tools` is not valid: " in text and "foo" in text


CALLS = (
    '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\n<tool_call>{"name": "tide", "arguments": {"at": 3}}'
)


@pytest.fixture(scope="module")
def scripted(talker: Path) -> Iterator[Scripted]:
    vocabulary = replace(read_vocabulary(nacre.load(talker)), template=TOOL_TEMPLATE)
    started = Scripted(vocabulary, f"I look. {CALLS}")
    yield started
    started.stop()


def test_an_answer_that_calls_by_itself(scripted: Scripted) -> None:
    found = ask(scripted)
    message = found["message"]
    assert (found["finish_reason"], message["content"].strip()) == ("tool_calls", "I look.")
    functions = [call["function"] for call in message["tool_calls"]]
    assert functions == [{"name": "now", "arguments": "{}"}, {"name": "tide", "arguments": '{"at": 3}'}]
    parts = stream(scripted)
    assert "".join(part["delta"].get("content") or "" for part in parts).strip() == "I look."
    assert [delta["index"] for part in parts for delta in part["delta"].get("tool_calls", []) if "id" in delta] == [
        0,
        1,
    ]
    assert len(ask(scripted, parallel_tool_calls=False)["message"]["tool_calls"]) == 1
    plain = ask(scripted, tool_choice="none")
    assert plain["finish_reason"] == "stop" and plain["message"]["content"].strip() == f"I look. {CALLS}"
    # Text before a stop sequence may hold a call.
    stopped = ask(scripted, stop=["\n<tool"])
    assert stopped["finish_reason"] == "tool_calls" and len(stopped["message"]["tool_calls"]) == 1


def test_a_suffix(calling: Running, talker: Path) -> None:
    """The prompt is divided by the tokens for filling in the middle; the suffix begins inside a word."""
    encode = calling.vocabulary.encode
    ids = [1, 3, *encode("the ")[1:], 4, *map(TOKENS.index, ("m", "o", "th")), 0]
    generator = Generator(nacre.load(talker), CONTEXT)
    drawn = list(generator.generate(ids, 8, Sampling(temperature=0), calling.vocabulary.end))
    text = "".join(calling.vocabulary.stream(ids, drawn))
    for prompt in ("the ", encode("the ")):
        found = calling.complete(prompt, suffix="moth", max_tokens=8)
        assert found["choices"][0]["text"] == text and found["usage"]["prompt_tokens"] == len(ids)
    assert calling.complete("the ", suffix="", max_tokens=8)["choices"][0]["text"] != text
