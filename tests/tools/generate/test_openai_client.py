"""The client of OpenAI reads the answers of `nacre serve`: texts, streams, probabilities, calls of tools, and errors.

One server and one client serve all tests, since the import of the package takes more time than they do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import nacre
import pytest

pytest.importorskip("llguidance", reason="the package llguidance is not installed")
pytest.importorskip("starlette", reason="the package starlette is not installed")
pytest.importorskip("uvicorn", reason="the package uvicorn is not installed")

from nacre.compiler.tools.generate.vocabulary import read_vocabulary
from running_server import Running, Scripted, expected
from talker import LONGEST, TOOL_TEMPLATE

MESSAGES = [{"role": "user", "content": "the?"}]
REPEATING = "o. o. o."
"""A prompt with a long answer."""
NOW = {"type": "function", "function": {"name": "now"}}


@pytest.fixture(scope="module")
def openai() -> Any:
    """The package has hundreds of classes, which Python makes when it is imported."""
    return pytest.importorskip("openai", reason="the package openai is not installed")


@pytest.fixture(scope="module")
def client(talker: Path, openai: Any) -> Iterator[Any]:
    started = Running(talker, "batches", LONGEST, template=TOOL_TEMPLATE)
    with openai.OpenAI(base_url=f"http://127.0.0.1:{started.port}/v1", api_key="none", max_retries=0) as made:
        yield made
    started.stop()


def test_texts_and_streams(client: Any, talker: Path) -> None:
    given = {"model": "talker", "max_tokens": 9, "temperature": 0}
    whole = client.completions.create(prompt="the moth", **given)
    assert whole.choices[0].text == expected(talker, "the moth", 9)
    streamed = client.completions.create(prompt="the moth", stream=True, **given)
    assert "".join(part.choices[0].text for part in streamed) == whole.choices[0].text
    answer = client.chat.completions.create(messages=MESSAGES, **given)
    parts = list(client.chat.completions.create(messages=MESSAGES, stream=True, **given))
    assert parts[0].choices[0].delta.role == "assistant"
    pieces = [part.choices[0].delta.content or "" for part in parts]
    assert "".join(pieces) == answer.choices[0].message.content and len(pieces) > 3
    assert [model.id for model in client.models.list()] == ["talker"]


def test_errors(client: Any, openai: Any) -> None:
    with pytest.raises(openai.NotFoundError):
        client.completions.create(prompt="a", model="other")
    with pytest.raises(openai.BadRequestError, match=f"a session holds {LONGEST}"):
        client.completions.create(prompt=[5] * LONGEST, model="talker")


def test_probabilities(client: Any) -> None:
    given = {"model": "talker", "temperature": 1, "seed": 2, "max_tokens": 4}
    made = client.completions.create(prompt=[REPEATING, "a"], n=2, logprobs=2, **given)
    assert [choice.index for choice in made.choices] == [0, 1, 2, 3]
    for choice in made.choices:
        assert "".join(choice.logprobs.tokens) == choice.text and all(choice.logprobs.top_logprobs)
    echo = client.completions.create(prompt=REPEATING, echo=True, logprobs=1, **given | {"max_tokens": 0}).choices[0]
    assert echo.text == REPEATING and echo.logprobs.token_logprobs[0] is None
    chat = client.chat.completions.create(messages=MESSAGES, n=2, logprobs=True, top_logprobs=3, **given)
    for choice in chat.choices:
        assert "".join(token.token for token in choice.logprobs.content) == choice.message.content
        assert {len(token.top_logprobs) for token in choice.logprobs.content} <= {3}


def test_calls_of_tools(client: Any, talker: Path, openai: Any) -> None:
    pydantic = pytest.importorskip("pydantic", reason="the package pydantic is not installed")
    place = pydantic.create_model("Place", name=(str, pydantic.Field(max_length=2)))
    tide = pydantic.create_model("tide", at=(place, ...))
    tools = [openai.pydantic_function_tool(tide), NOW]
    given: dict[str, Any] = {"model": "talker", "messages": MESSAGES, "tools": tools}
    parsed = client.chat.completions.parse(
        **given | {"tools": tools[:1]}, tool_choice="required", parallel_tool_calls=False, max_tokens=300, seed=1
    )
    (call,) = parsed.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, tide) and len(call.function.parsed_arguments.at.name) <= 2
    # The answer of a model that calls by itself, after a text.
    vocabulary = replace(read_vocabulary(nacre.load(talker)), template=TOOL_TEMPLATE)
    written = ('{"name": "now", "arguments": {}}', '{"name": "now", "arguments": {"at": 3}}')
    scripted = Scripted(vocabulary, "I look. " + "".join(f"<tool_call>{call}</tool_call>" for call in written))
    given["tools"] = [NOW]
    other = client.with_options(base_url=f"http://127.0.0.1:{scripted.port}/v1")
    message = other.chat.completions.create(**given).choices[0].message
    assert [call.function.name for call in message.tool_calls] == ["now", "now"]
    with other.chat.completions.stream(**given) as events:
        final = events.get_final_completion().choices[0]
    assert [call.function.arguments for call in final.message.tool_calls] == ["{}", '{"at": 3}']
    assert final.finish_reason == "tool_calls"
    results = [{"role": "tool", "tool_call_id": call.id, "content": "3"} for call in message.tool_calls]
    history = [*MESSAGES, message.model_dump(exclude_none=True), *results]
    again = other.chat.completions.create(**given | {"messages": history, "tool_choice": "none"})
    assert again.choices[0].finish_reason == "stop"
    scripted.stop()
