"""Calls of tools in the text of an answer: the notation of a model, a grammar of it, and the scanner that finds calls.

    text of the model   It rains. <tool_call>
                        {"name": "weather", "arguments": {"city": "Nice"}}
                        </tool_call>
    content             It rains.
    call                weather, {"city": "Nice"}

A model writes calls as the template of its conversations describes them. Text that may become a call is held back.
The arguments of a call are passed on as they come, once its beginning names a function of the request.
"""

from __future__ import annotations

import json
import re
import secrets
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..generate.guide import CALLS, JSON_SEPARATORS, Form
from ..generate.vocabulary import Vocabulary, error
from .conversation import Function, Tools

_WHITE = " \t\r\n"
_HEAD = re.compile(
    r'\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*"([^"\\]*)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)'
)
"""The beginning of a call, up to its arguments."""
_ID = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class Notation:
    """A notation of calls: `begin` and `end` enclose one call, or a list of calls. Without `begin`, an answer that
    starts with a call consists of calls. `key` is the name of the arguments; `between` are characters between calls."""

    begin: str
    end: str
    key: str
    is_list: bool
    between: str

    def special_tokens(self, vocabulary: Vocabulary) -> Mapping[int, str]:
        """Returns the special tokens of a vocabulary that enclose calls, with their texts."""
        added = vocabulary.tokenizer.get_added_tokens_decoder().items()
        return {n: token.content for n, token in added if token.special and token.content in (self.begin, self.end)}


_TAGGED = Notation("<tool_call>", "</tool_call>", "arguments", False, _WHITE)
_LISTED = Notation("[TOOL_CALLS]", "", "arguments", True, _WHITE + "[],")
_MARKED = Notation("<|tool_call|>", "<|/tool_call|>", "arguments", True, _WHITE + "[],")
_PLAIN = Notation("", "", "parameters", False, _WHITE + ";,")
_OTHERS = ("<function=", "<arg_key>", "[ARGS]", "functools[")
"""Parts of templates that describe calls in notations that are not supported."""


def find_notation(vocabulary: Vocabulary) -> Notation:
    """Returns the notation that the template for tools describes: that of Qwen and Hermes, of Mistral, of Granite and
    Phi, or of Llama 3. Raises DiagnosticError if it has none of them."""
    vocabulary.check_tools()
    template = vocabulary.template_for_tools
    if not any(other in template for other in _OTHERS):
        for notation in (_TAGGED, _LISTED, _MARKED):
            if notation.begin in template:
                return notation
        if re.search(r'\\?"parameters\\?"\s*:', template):
            return _PLAIN
    raise error("unknown-notation", "the template of the model describes calls of tools in an unsupported notation")


@dataclass(frozen=True, slots=True)
class CallPart:
    """A part of the call with a number: its id and its function first, then pieces of its arguments."""

    index: int
    arguments: str
    id: str = ""
    name: str = ""


class Scanner:
    """Divides the text of an answer into content and calls of functions. `is_done`: the answer has as many calls as the
    request permits."""

    def __init__(self, notation: Notation, tools: Tools) -> None:
        self._notation, self._names = notation, {function.name for function in tools.functions}
        self._most = 0 if tools.parallel else 1
        self._step = self._scan_text if notation.begin else self._scan_between
        self._held = ""
        """Text that is neither content nor arguments yet."""
        self._before = ""
        """The text between a marker and `_held`, which becomes content if no call follows."""
        self._object = _Object()
        self.calls = 0
        self.is_done = False
        self._parts: list[CallPart] = []

    def push(self, piece: str, *, last: bool = False) -> tuple[str, tuple[CallPart, ...]]:
        """Returns the content and the parts of calls that more text completes, all of them if it is the `last`."""
        self._held += piece
        content, self._parts = "", []
        size = None
        while not self.is_done and size != (len(self._held), self._step):
            size = len(self._held), self._step
            content += self._step(last)
        if self.is_done:
            self._held = self._before = ""
        if last:
            content, self._held, self._before = content + self._before + self._held, "", ""
        return content, tuple(self._parts)

    def _scan_text(self, last: bool) -> str:
        """White space before a call is no content."""
        begin = self._notation.begin
        at = self._held.find(begin) if begin else -1
        if at >= 0:
            content, self._before = self._held[:at].rstrip(), begin
            self._held = self._held[at + len(begin) :]
            self._step = self._scan_between
            return content
        kept = 0 if last or not begin else _common_end(self._held, begin)
        end = len(self._held) - kept if last or not begin else len(self._held[: len(self._held) - kept].rstrip(_WHITE))
        content, self._held = self._held[:end], self._held[end:]
        return content

    def _scan_between(self, last: bool) -> str:
        """Expects a call, or the end of calls."""
        begin, end = self._notation.begin, self._notation.end
        rest = self._held.lstrip(self._notation.between)
        if rest.startswith("{"):
            self._before += self._held[: len(self._held) - len(rest)]
            self._held, self._object, self._step = rest, _Object(), self._scan_object
        elif self._follows_call and end and rest.startswith(end):
            self._held, self._step = rest[len(end) :].lstrip(_WHITE), self._scan_text
        elif not rest or (not last and any(marker.startswith(rest) for marker in (begin, end))):
            self._held = rest if self._follows_call else self._held
        else:
            self._held = rest if self._follows_call else self._held
            content, self._before, self._step = self._before, "", self._scan_text
            return content
        return ""

    @property
    def _follows_call(self) -> bool:
        return self.calls > 0 and not self._before

    def _scan_object(self, last: bool) -> str:
        found = self._object
        if not found.name:
            head = _HEAD.match(self._held)
            if head is not None and head[1] in self._names:
                found.name, found.sent = head[1], head.end()
                self._call(found.name)
        found.scan(self._held)
        if found.name:
            end = found.closed or len(self._held)
            self._argue(self._held[found.sent : end])
            found.sent = max(found.sent, end)
        if not found.end:
            if last and found.name:
                self._held = self._before = ""
            return ""
        text, self._held = self._held[: found.end], self._held[found.end :]
        call = None if found.name else _read_call(text, self._names)
        if call is not None:
            self._call(call[0])
            self._argue(call[1])
        if not found.name and call is None:
            content, self._before, self._step = self._before + text, "", self._scan_text
            return content
        self._before, self._step = "", self._scan_between
        self.is_done = self.calls == self._most
        return ""

    def _call(self, name: str) -> None:
        self.calls += 1
        self._parts.append(CallPart(self.calls - 1, "", make_id(), name))

    def _argue(self, text: str) -> None:
        """Adds a piece of the arguments of the last call."""
        if self._parts and self._parts[-1].index == self.calls - 1:
            self._parts[-1] = replace(self._parts[-1], arguments=self._parts[-1].arguments + text)
        elif text:
            self._parts.append(CallPart(self.calls - 1, text))


class _Object:
    """The position in the text of a JSON object: `name` and `sent` are its function and the end of the arguments that
    were passed on, `closed` and `end` the ends of the arguments and of the object, 0 as long as they are open."""

    def __init__(self) -> None:
        self.name = ""
        self.sent = self.closed = self.end = 0
        self._seen = self._depth = 0
        self._in_string = self._escaped = False

    def scan(self, text: str) -> None:
        for at in range(self._seen, len(text)):
            found = text[at]
            if self._in_string:
                self._in_string = self._escaped or found != '"'
                self._escaped = found == "\\" and not self._escaped
            elif found == '"':
                self._in_string = True
            elif found in "{[":
                self._depth += 1
            elif found in "]}":
                self._depth -= 1
                if self._depth == 1 and self.name and not self.closed and at >= self.sent:
                    self.closed = at + 1
                if self._depth <= 0:
                    self.end = at + 1
                    return
        self._seen = len(text)


def _common_end(text: str, begin: str) -> int:
    """Returns the length of the longest end of a text that begins a marker."""
    return max((n for n in range(1, len(begin)) if text.endswith(begin[:n])), default=0)


def _read_call(text: str, names: set[str]) -> tuple[str, str] | None:
    """Returns the function and the arguments of a whole call, whose keys may have any order."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    arguments = found.get("arguments", found.get("parameters", {}))
    if not isinstance(found.get("name"), str) or found["name"] not in names or not isinstance(arguments, dict):
        return None
    return found["name"], json.dumps(arguments, ensure_ascii=False)


def make_id() -> str:
    """Returns an id of a call: 9 letters and digits, the only ids that templates of Mistral accept."""
    return "".join(secrets.choice(_ID) for _ in range(9))


def calls_form(notation: Notation, tools: Tools, vocabulary: Vocabulary, answer: Form | None) -> Form | None:
    """Returns the form of answers of a request, None if they have any. It is that of calls if the request demands some;
    if it does not, but has a function with `strict` or an answer with a form, that of such calls or another text."""
    if not tools.is_required and answer is None and not any(function.strict for function in tools.functions):
        return None
    functions = [f for f in tools.functions if tools.named in (f.name, "")]
    added = {token.content: number for number, token in vocabulary.tokenizer.get_added_tokens_decoder().items()}

    def marker(text: str) -> str:
        return f"<[{added[text]}]>" if text in added else json.dumps(text)

    begin, end = (marker(text) if text else "" for text in (notation.begin, notation.end))
    call = " | ".join(f"call_{number}" for number in range(len(functions)))
    rules = [line for number, f in enumerate(functions) for line in _call_rules(number, f, notation.key)]
    rules.append(f"call: {call}")
    gap = r'"\n"' if notation.begin and not notation.is_list else '" "?'
    calls = f'{gap} "[" call (", " call)* "]"' if notation.is_list else f"{gap} call {gap}" if begin else "call"
    text = r"/(.|\n)*/"
    if tools.is_required:
        once = f"{begin} {calls} {end}"
        start = f'{once} ("\\n" {once})*' if begin and not notation.is_list else once
    elif answer is not None:
        rules.append(f"answer: %json {_schema(json.loads(answer.text))}")
        start = f"answer | {begin} {calls} {end}"
    elif not begin:
        rules.append(r"TEXT: /\s*([^\s{](.|\n)*)?/")
        start = "TEXT | call"
    else:
        spelled = re.sub(r"([\[\]|/])", r"\\\1", notation.begin)
        rules.append(rf"TEXT: {text} & ~/(.|\n)*{spelled}(.|\n)*/")
        if notation.begin in added:
            start = f"TEXT ({begin} {calls} {end} TEXT)*"
        else:
            rules.append(f"before[suffix={begin}]: {text}")
            start = f"(before {calls} {end})* TEXT"
    return Form(CALLS, "\n".join([f"start: {start}", *rules]) + "\n")


def _call_rules(number: int, function: Function, key: str) -> Sequence[str]:
    # The lexemes are those of a JSON schema, beside which a call may be an alternative.
    head = " ".join(json.dumps(part) for part in ("{", '"name"', ": ", f'"{function.name}"', ", ", f'"{key}"', ": "))
    return (
        f'call_{number}: {head} arguments_{number} "}}"',
        f"arguments_{number}: %json {_schema(function.parameters)}",
    )


def _schema(schema: Mapping[str, Any]) -> str:
    return json.dumps({**schema, "x-guidance": JSON_SEPARATORS})
