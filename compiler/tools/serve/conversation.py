"""Conversations in requests: messages, the tools that an answer may call, and the calls of earlier answers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .fields import RequestError, flag

Message = Mapping[str, Any]
"""A message with the keys that templates read: `role` and `content`; `tool_calls` of an answer; `tool_call_id` and
`name` of the result of a call."""
_FUNCTIONS = 128
"""The maximum number of functions of a request."""
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Function:
    """A function that an answer may call. `parameters` is the JSON schema of its arguments, an object; `strict`:
    whether arguments must have this schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    strict: bool

    def described(self) -> Mapping[str, Any]:
        """Returns the description that templates read."""
        found = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": found}


@dataclass(frozen=True, slots=True)
class Tools:
    """The functions of a request. `named` is the function that an answer has to call, empty if there is none;
    `is_required`: whether an answer consists of calls; `parallel`: whether it may have several."""

    functions: tuple[Function, ...]
    named: str
    is_required: bool
    parallel: bool


def read_tools(body: Mapping[str, Any]) -> Tools | None:
    """Returns the tools of a request, None if it has none or forbids calls. Raises RequestError."""
    given = body.get("tools")
    tools = [] if given is None else given
    if not isinstance(tools, list) or len(tools) > _FUNCTIONS:
        raise RequestError(400, f"`tools` is not a list of up to {_FUNCTIONS} functions", param="tools")
    functions = tuple(_function(number, tool) for number, tool in enumerate(tools))
    names = {function.name for function in functions}
    if len(names) < len(functions):
        raise RequestError(400, "`tools` has two functions of one name", param="tools")
    parallel = body.get("parallel_tool_calls") is None or flag(body, "parallel_tool_calls")
    choice = body.get("tool_choice")
    if choice == "none" or (not functions and choice in (None, "auto")):
        return None
    if choice in (None, "auto", "required"):
        if not functions:
            raise RequestError(400, "`tool_choice` needs `tools`", param="tool_choice")
        return Tools(functions, "", choice == "required", parallel)
    named = choice.get("function") if isinstance(choice, dict) and choice.get("type") == "function" else None
    name = named.get("name") if isinstance(named, dict) else None
    if not isinstance(name, str):
        message = "`tool_choice` is neither `none`, `auto` or `required`, nor names a function"
        raise RequestError(400, message, param="tool_choice")
    if name not in names:
        raise RequestError(400, f"`tool_choice` names `{name}`, which is not in `tools`", param="tool_choice")
    return Tools(functions, name, True, False)


def _function(number: int, tool: Any) -> Function:
    def refuse(message: str) -> RequestError:
        return RequestError(400, f"`tools[{number}]` {message}", param="tools")

    found = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
    if not isinstance(found, dict):
        raise refuse("does not have the type `function` and a `function`")
    name, description = found.get("name"), found.get("description")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise refuse("has no `name` of 1 to 64 letters, digits, `_` and `-`")
    if not isinstance(description, (str, type(None))):
        raise refuse("has a `description` that is not a text")
    parameters = found.get("parameters")
    if parameters is None:
        parameters = {"type": "object", "properties": {}, "additionalProperties": False}
    if not isinstance(parameters, dict) or parameters.get("type", "object") != "object":
        raise refuse("has `parameters` that are not the JSON schema of an object")
    whole = {"type": "object", "properties": {}, **parameters}
    return Function(name, description or "", whole, flag(found, "strict"))


def read_messages(body: Mapping[str, Any]) -> Sequence[Message]:
    """Returns the messages of a request. Raises RequestError."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError(400, "`messages` is not a list of messages", param="messages")
    names: dict[str, str] = {}
    return [_message(number, message, names) for number, message in enumerate(messages)]


def _message(number: int, message: Any, names: dict[str, str]) -> Message:
    """Returns a message. `names` are the functions of earlier calls, by the ids of these."""

    def refuse(message: str) -> RequestError:
        return RequestError(400, f"`messages[{number}]` {message}", param="messages")

    given = message if isinstance(message, dict) else {}
    role, content = given.get("role"), given.get("content")
    calls = given.get("tool_calls") if role == "assistant" else None
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else None for part in content]
        content = "".join(parts) if all(isinstance(part, str) for part in parts) else 0  # type: ignore[arg-type]  # all are texts
    if content is None and calls:
        content = ""
    if not isinstance(content, str) or not isinstance(role, str):
        raise refuse("does not have a `role` and a text as `content`")
    found: dict[str, Any] = {"role": role, "content": content}
    if calls:
        read = [_call(call) for call in calls] if isinstance(calls, list) else [None]
        if None in read:
            raise refuse("has `tool_calls` without an `id`, a `name`, or `arguments` that are the JSON of an object")
        found["tool_calls"] = read
        names |= {call["id"]: call["function"]["name"] for call in read if call is not None}
    if role == "tool":
        answered = given.get("tool_call_id")
        if not isinstance(answered, str) or answered not in names:
            raise refuse("does not have the id of an earlier call as `tool_call_id`")
        found |= {"tool_call_id": answered, "name": names[answered]}
    return found


def _call(call: Any) -> Mapping[str, Any] | None:
    """Returns an earlier call with its arguments as an object, as templates expect it; None if it is not valid."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not all(isinstance(t, str) for t in (call.get("id"), function.get("name"))):
        return None
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    if not isinstance(arguments, dict):
        return None
    return {"id": call["id"], "type": "function", "function": {"name": function["name"], "arguments": arguments}}
