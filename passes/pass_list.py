"""The text of a list of passes: `fold-constants,cse,unroll-repeat{limit=8},decompose{keep=softmax|gelu}`.

An unknown pass or option, or an invalid value of an option, is a diagnostic that proposes the nearest name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, fields
from functools import lru_cache
from typing import Any

from ..dialect.diagnostics import DiagnosticError
from ..dialect.graph import Module
from ..dialect.parser import parse_text
from ..dialect.printer import print_module
from ..dialect.reader import Reader
from ..dialect.types import Array
from ..dialect.verifier import verify
from .manager import Pass, PassManager, Watch
from .registry import PASSES, RENAMED

_WORD = re.compile(r"[A-Za-z][\w-]*", re.ASCII)
_OPTION_VALUE = re.compile(r"(?:[^,{}=\s\[]|\[[^\]{}]*\])*")


def _integer(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise ValueError("a number")
    return int(text)


def _integer_or_none(text: str) -> int | None:
    if text == "none":
        return None
    try:
        return _integer(text)
    except ValueError:
        raise ValueError("a number or none") from None


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text == "true"


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split("|") if word)


_READ: Mapping[str, Callable[[str], object]] = {
    "int": _integer,
    "int | None": _integer_or_none,
    "bool": _boolean,
    "str": str,
    "tuple[str, ...]": _words,
}
"""The reader of each option, by the annotation of its field. Its error describes the accepted values."""


class _PipelineReader(Reader):
    syntax_code = "pipeline-syntax"

    def word(self, pattern: re.Pattern[str], what: str) -> tuple[str, int]:
        """Reads a word. Returns the match, and its start."""
        match = self.take(pattern)
        return (match.group(), match.start()) if match else self.fail(f"expected {what}")

    def at_end(self) -> bool:
        self.skip()
        return self.position == len(self.text)

    def passes(self) -> tuple[Pass, ...]:
        found: list[Pass] = []
        while not self.at_end():
            found.append(self.step())
            if not self.accept(",") and not self.at_end():
                self.fail("expected `,` between passes")
        return tuple(found)

    def step(self) -> Pass:
        name, start = self.word(_WORD, "the name of a pass")
        if name not in PASSES:
            help = f"it is named `{RENAMED[name]}` now" if name in RENAMED else _nearest(name, PASSES)
            self.fail(f"there is no pass `{name}`", start, code="unknown-pass", help=help)
        kind = PASSES[name]
        known: dict[str, Field[Any]] = {_option_name(f): f for f in fields(kind)}  # type: ignore[arg-type]  # a dataclass
        options: dict[str, object] = {}

        def option() -> None:
            option, start = self.word(_WORD, "the name of an option, or `}`")
            if option not in known:
                help = _nearest(option, known)
                self.fail(f"`{name}` has no option `{option}`", start, code="unknown-option", help=help)
            self.expect("=")
            value, start = self.word(_OPTION_VALUE, "a value")
            try:
                options[known[option].name] = _READ[str(known[option].type)](value)
            except ValueError as error:
                message = f"`{option}` of `{name}` is `{value}`, expected {error}"
                self.fail(message, start, code="bad-option")

        if self.accept("{"):
            self.list(option, "}")
        try:
            return kind(**options)
        except ValueError as error:
            self.fail(f"an option of `{name}` has an invalid value, expected {error}", start, code="bad-option")


def _option_name(field: Field[Any]) -> str:
    return field.name.replace("_", "-")


def _nearest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(name, names, 1)
    if near:
        return f"did you mean `{near[0]}`?"
    return f"there are {', '.join(names)}" if names else "it has no options"


@lru_cache(maxsize=64)
def parse_pipeline(text: str, file: str = "<passes>") -> tuple[Pass, ...]:
    """Returns the passes that the text lists, in order. Raises DiagnosticError. A build asks for its own list in many
    places."""
    return _PipelineReader(text, file).passes()


def format_option(value: object) -> str:
    """Returns the text of an option's value."""
    if isinstance(value, tuple):
        return "|".join(value)
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def format_pass(step: Pass) -> str:
    """Returns the text of a pass, with its non-default options."""
    options = [
        f"{_option_name(f)}={format_option(getattr(step, f.name))}"
        for f in fields(step)  # type: ignore[arg-type]  # every pass is a dataclass
        if getattr(step, f.name) != f.default
    ]
    return step.name + (f"{{{','.join(options)}}}" if options else "")


def format_pipeline(passes: Sequence[Pass]) -> str:
    return ",".join(map(format_pass, passes))


def read_graph(text: str, file: str, constants: Mapping[str, Array] | None = None) -> Module:
    """Returns the valid graph that a text describes. Raises DiagnosticError."""
    parsed = parse_text(text, file, constants)
    try:
        verify(parsed.module, parsed.locate)
    except DiagnosticError as error:
        raise DiagnosticError(error.diagnostics, {file: text}) from None
    return parsed.module


def run_pipeline_text(
    text: str,
    passes: str | Sequence[Pass],
    *,
    file: str = "<graph>",
    watch: Watch | None = None,
    rewrite_limit: int | None = None,
    constants: Mapping[str, Array] | None = None,
) -> str:
    """Graph text through passes to graph text. Raises DiagnosticError for an error in the text or the list.

    `watch` is called with the graph after each pass; `constants` gives the data of constants whose text is only a hash.
    """
    steps = parse_pipeline(passes) if isinstance(passes, str) else tuple(passes)
    module = read_graph(text, file, constants)
    return print_module(PassManager(steps, watch=watch, rewrite_limit=rewrite_limit).run(module))
