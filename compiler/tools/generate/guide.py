"""Constrained decoding: a JSON schema, a grammar or a regular expression restricts the tokens of an answer.

    form            {"type": "object", "properties": {"year": {"type": "integer"}}, "required": ["year"]}
    answer so far   {"year": 19
    allowed         tokens of digits, and tokens that begin with `}`

Before each choice, a guide computes a mask of the allowed tokens, which the entry `sample` takes. A token that ends the
answer is allowed only where the form is complete. An answer ends at such a token, or when the form permits no further
token.

The package `llguidance` parses forms and computes the masks.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from .vocabulary import Vocabulary, error, load_package

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]

JSON_SCHEMA, GRAMMAR, REGEX = "JSON schema", "grammar", "regular expression"
CALLS = "grammar of `tools`"
"""The kind of a grammar that was made for the functions of a request."""
JSON_SEPARATORS = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""The only white space that JSON may contain. If any were allowed, a model could generate white space without end."""


@dataclass(frozen=True, slots=True)
class Form:
    """The required form of an answer. `kind` is JSON_SCHEMA, GRAMMAR or CALLS (in the syntax of Lark), or REGEX."""

    kind: str
    text: str


class Forms:
    """Compiles forms for one vocabulary. `size` is the number of logits, which may exceed the number of tokens."""

    def __init__(self, vocabulary: Vocabulary, size: int) -> None:
        self._library, self._size = load_package("llguidance"), size
        if not vocabulary.end:
            message = "the model has no token that ends an answer, so a form cannot decide where it ends"
            raise error("no-end", message)
        text = vocabulary.tokenizer.to_str()
        try:
            self._tokenizer = self._library.LLTokenizer(text, n_vocab=size, eos_token=sorted(vocabulary.end))
        except ValueError as problem:
            raise error("bad-tokenizer", f"the tokenizer of the model does not permit forms: {problem}") from None

    def guide(self, form: Form) -> Guide:
        """Returns a guide at the beginning of an answer. Raises DiagnosticError if the form is not valid."""
        matchers = self._library.LLMatcher
        try:
            if form.kind == JSON_SCHEMA:
                _check_json(form.text)
                grammar = matchers.grammar_from_json_schema(form.text, defaults=JSON_SEPARATORS)
            elif form.kind in (GRAMMAR, CALLS):
                grammar = matchers.grammar_from_lark(form.text)
            else:
                grammar = matchers.grammar_from_regex(form.text)
        except ValueError as problem:
            raise _bad_form(form, str(problem)) from None
        matcher = matchers(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise _bad_form(form, matcher.get_error())
        return Guide(form, matcher, self._size)


class Guide:
    """The state of one answer in its form: the mask of the tokens that may come next."""

    def __init__(self, form: Form, matcher: Any, size: int) -> None:
        self._form, self._matcher = form, matcher
        self._words = np.zeros(-(-size // 32), np.uint32)
        self._size = size

    @property
    def is_done(self) -> bool:
        """Whether the form is complete and no token can follow."""
        return bool(self._matcher.is_stopped())

    @property
    def is_complete(self) -> bool:
        """Whether the answer has its form, so that it may end here."""
        return self.is_done or bool(self._matcher.is_accepting())

    def allowed(self) -> Mask:
        """Returns bool[tokens], true for those that may come next; not to be called after the end."""
        self._matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)
        if self._matcher.is_error():
            raise _bad_form(self._form, self._matcher.get_error())
        marks: Mask = np.unpackbits(self._words.view(np.uint8), count=self._size, bitorder="little").view(np.bool_)
        return marks

    def accept(self, token: int) -> None:
        """Appends an allowed token to the answer."""
        if not self._matcher.consume_token(token):
            raise _bad_form(self._form, self._matcher.get_error() or f"token {token} is not allowed")


def _check_json(text: str) -> None:
    """Raises ValueError if a text is not the JSON of an object."""
    try:
        schema = json.loads(text)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
    if not isinstance(schema, dict):
        raise ValueError("it is not a JSON object")


def _bad_form(form: Form, message: str) -> Exception:
    """Messages of several lines contain a picture of the source location; the line with the cause begins with `error:
    `."""
    lines = [line.strip() for line in message.splitlines() if line.strip()] or ["it cannot be parsed"]
    cause = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), lines[0])
    return error("bad-form", f"the {form.kind} is not valid: {cause}")
