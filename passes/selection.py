"""Selectors of nodes: by a pattern of paths, or by a class of operators."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ..dialect.lazy_dataclass import dataclass
from ..dialect.ops import OPERATORS

CLASSES: Mapping[str, frozenset[str]] = {
    "matmul": frozenset({"matmul", "einsum"}),
    "convolution": frozenset(operator.name for operator in OPERATORS.values() if operator.has("convolution")),
    "table": frozenset({"embedding", "gather"}),
}
"""The operator classes that a selector may name, besides the operators themselves."""


@dataclass(frozen=True, slots=True)
class Selector:
    """A `pattern` of paths, or the class or name of an `operator`; the other one is empty.

    In a pattern, `*` matches any characters, including dots. A path selects everything inside it: `encoder` also
    matches `encoder.layer.0.query.weight`. Paths are those of parameters, and of the block instances that contain the
    nodes.
    """

    pattern: str = ""
    operator: str = ""

    def matches(self, operator: str, paths: Iterable[str]) -> bool:
        if self.operator:
            return operator == self.operator or operator in CLASSES.get(self.operator, ())
        stem = re.escape(self.pattern).replace(r"\*", ".*")
        return any(re.fullmatch(rf"{stem}(\..*)?", path) for path in paths)

    def __str__(self) -> str:
        """Returns the text of the selector in policies and in the options of a pass."""
        return self.operator or f'"{self.pattern}"'


EVERYTHING = Selector("*")


def read_selector(text: str) -> Selector:
    """Parses a selector from the result of `str`."""
    return Selector(pattern=text[1:-1]) if text.startswith('"') else Selector(operator=text)


def is_selected(operator: str, paths: Sequence[str], only: Iterable[str], but: Iterable[str]) -> bool:
    """Returns whether a selector of `only` matches, and none of `but`."""
    return any(read_selector(text).matches(operator, paths) for text in only) and not any(
        read_selector(text).matches(operator, paths) for text in but
    )
