"""The tokenizer of an artifact: encodes texts, decodes tokens incrementally, and formats a conversation by its
template.

Needs the package `tokenizers`, and `jinja2` for chat templates.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ....runtime.loader import Model

ENTRY = "tokenizer"
_UNFINISHED = "\ufffd"
"""The replacement character, with which a decoded text ends if its last character is incomplete."""
_MARK = "\u263a"
"""A character that tokenizers do not join with the text behind it."""
_LEAST_SEEN, _MOST_SEEN = 8, 64
"""The number of ids that are decoded with the next one: after more than the second number, fewer are kept."""


def error(code: str, message: str, help: str = "") -> DiagnosticError:
    return DiagnosticError([Diagnostic(code, message, help=help)])


def load_package(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        message = f"this needs the Python package `{package.split('.')[0]}`, which is not installed"
        raise error("missing-package", message, "pip install 'nacre[chat]'") from None


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer with its special tokens. `begin` precedes every text (BOS), `behind` follows a complete text, and a
    token of `end` ends an answer (EOS). `template` is the chat template, empty if there is none; `tool_template` is
    that for conversations with tools, empty if it is the same. `fill` are the tokens before a prefix, before a suffix
    and before the text between them, empty if the model does not fill in the middle."""

    tokenizer: Any
    begin: tuple[int, ...]
    end: frozenset[int]
    template: str
    names: Mapping[str, str]
    behind: tuple[int, ...] = ()
    tool_template: str = ""
    fill: tuple[int, ...] = ()

    def encode_whole(self, text: str) -> list[int]:
        """Returns the ids of a complete text, with the special tokens before and after it."""
        return [*self.encode(text), *self.behind]

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text that more tokens will follow, with the special tokens before it. Raises
        DiagnosticError if the text is not Unicode."""
        try:
            text.encode()
        except UnicodeEncodeError as problem:
            found = f"U+{ord(text[problem.start]):04X}"
            raise error("bad-text", f"character {problem.start} of the text is {found}, half of a character") from None
        return [*self.begin, *self._plain(text)]

    def _plain(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def fill_in(self, prefix: Sequence[int], suffix: str) -> list[int]:
        """Returns the ids of a prompt whose answer is the text between a prefix, as ids, and a suffix. Raises
        DiagnosticError if the model has no tokens for it."""
        if not self.fill:
            raise error("no-fill", "the model has no tokens for filling in the middle, so `suffix` is not supported")
        before, behind, middle = self.fill
        # A tokenizer may put a space before a text, and the suffix begins inside one.
        mark = self._plain(_MARK)
        marked = self._plain(_MARK + suffix)
        ids = marked[len(mark) :] if marked[: len(mark)] == mark else self._plain(suffix)
        count = len(self.begin) if tuple(prefix[: len(self.begin)]) == self.begin else 0
        return [*self.begin, before, *prefix[count:], behind, *ids, middle]

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def stream(self, prompt: Sequence[int], ids: Iterable[int]) -> Iterator[str]:
        """Yields the text of `ids`, which follow a prompt, as soon as its characters are complete."""
        pieces = Pieces(self, prompt)
        for number in ids:
            piece = pieces.push(number)
            if piece:
                yield piece
        rest = pieces.rest()
        if rest:
            yield rest

    def converse(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """Returns the text of a conversation up to the next answer, formatted by the chat template. `tools` are the
        functions that the answer may call. Raises DiagnosticError."""
        source = self.template_for_tools if tools else self.template
        if not source:
            raise error(
                "no-template", "the model has no template for conversations", "`nacre generate` continues a text"
            )
        given = {"messages": list(messages), "tools": list(tools) or None, "add_generation_prompt": True}
        templates = _templates()
        try:
            return str(templates.render(source, {**given, **self.names}))
        except Exception as problem:  # an expression of the template may raise any
            raise error("bad-template", f"the template of the model fails: {problem}") from None

    @property
    def template_for_tools(self) -> str:
        """The template for conversations with tools, which is that of others unless the file has two."""
        return self.tool_template or self.template

    def check_tools(self) -> None:
        """Raises DiagnosticError if the template does not describe tools."""
        templates = _templates()
        try:
            reads_tools = templates.reads_tools(self.template_for_tools)
        except Exception as problem:
            raise error("bad-template", f"the template of the model fails: {problem}") from None
        if not reads_tools:
            raise error("no-tools", "the template of the model does not describe tools, so `tools` is not supported")


def _templates() -> Any:
    """Returns the module `chat_templates`, which imports `jinja2`."""
    load_package("jinja2")
    return import_module(".chat_templates", __package__)


class Pieces:
    """An incremental decoder of the ids that follow a prompt. A token may end inside a character. `shown` are special
    tokens with the texts that they are decoded to; others have none."""

    def __init__(self, vocabulary: Vocabulary, prompt: Sequence[int], shown: Mapping[int, str] | None = None) -> None:
        self._vocabulary, self._shown = vocabulary, shown or {}
        self._seen, self._before = self._end(prompt)

    def push(self, number: int) -> str:
        """Adds an id, and returns the text that it completes."""
        if number in self._shown:
            piece = self.rest() + self._shown[number]
            self._seen, self._before = [], 0
            return piece
        self._seen.append(number)
        text = self._vocabulary.decode(self._seen)
        if text.endswith(_UNFINISHED):
            return ""
        piece, self._before = text[self._before :], len(text)
        if len(self._seen) > _MOST_SEEN:
            self._seen, self._before = self._end(self._seen)
        return piece

    def peek(self, number: int) -> str:
        """Returns the text of the next id, with that of the incomplete character before it. If its last character is
        incomplete, the text ends with U+FFFD."""
        return self._vocabulary.decode([*self._seen, number])[self._before :]

    def _end(self, ids: Sequence[int]) -> tuple[list[int], int]:
        """Returns the last ids, and the length of their text. They begin with a whole character: bytes that follow a
        part of one have no text of their own."""
        size = _LEAST_SEEN
        while size < len(ids) and _UNFINISHED in self._vocabulary.decode(ids[-size:]):
            size *= 2
        seen = list(ids[-size:])
        return seen, len(self._vocabulary.decode(seen))

    def rest(self) -> str:
        """Returns the remaining text, which ends with an incomplete character."""
        return self._vocabulary.decode(self._seen)[self._before :]


def read_vocabulary(model: Model) -> Vocabulary:
    """Returns the tokenizer of a compiled model. Raises DiagnosticError if it has none."""
    if ENTRY not in model.entries:
        message = f"model `{model.name}` has no entry `{ENTRY}`"
        raise error(
            "no-tokenizer",
            message,
            "models that are compiled from GGUF files, and from folders with a `tokenizer.json`, carry their tokenizer",
        )
    document = json.loads(bytes(model.entries[ENTRY]()))
    package = load_package("tokenizers")
    try:
        tokenizer = package.Tokenizer.from_str(json.dumps(document["tokenizer"]))
    except Exception as problem:  # the package raises no other class
        message = f"the tokenizer of model `{model.name}` is not valid: {problem}"
        raise error("bad-tokenizer", message, "the model was compiled from a damaged file") from None
    return Vocabulary(
        tokenizer,
        tuple(document["begin"]),
        frozenset(document["end"]),
        document.get("template", ""),
        document.get("names", {}),
        tuple(document.get("behind", ())),
        document.get("tool_template", ""),
        tuple(document.get("fill", ())),
    )
