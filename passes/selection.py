"""Which nodes of a graph somebody speaks of: by a pattern of paths, or by a class of operators."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

CLASSES: Mapping[str, frozenset[str]] = {
    "matmul": frozenset({"matmul", "einsum"}),
    "convolution": frozenset({f"conv{kind}{rank}d" for kind in ("", "_transpose") for rank in (1, 2, 3)}),
    "table": frozenset({"embedding", "gather"}),
}
"""The classes of operators that may be spoken of; the operators themselves may be named too."""


@dataclass(frozen=True, slots=True)
class Selector:
    """A `pattern` of paths, or the class or name of an `operator`; the other one is empty.

    In a pattern `*` stands for any characters, dots among them. A path names all that lies in it: `encoder` is
    `encoder.layer.0.query.weight` too. Paths are those of parameters, and of the block instances that compute.
    """

    pattern: str = ""
    operator: str = ""

    def matches(self, operator: str, paths: Iterable[str]) -> bool:
        if self.operator:
            return operator == self.operator or operator in CLASSES.get(self.operator, ())
        stem = re.escape(self.pattern).replace(r"\*", ".*")
        return any(re.fullmatch(rf"{stem}(\..*)?", path) for path in paths)

    def __str__(self) -> str:
        """As it is written in a policy, and among the options of a pass."""
        return self.operator or f'"{self.pattern}"'


EVERYTHING = Selector("*")


def read_selector(text: str) -> Selector:
    """What `str` makes of a selector."""
    return Selector(pattern=text[1:-1]) if text.startswith('"') else Selector(operator=text)


def is_selected(operator: str, paths: Sequence[str], only: Iterable[str], but: Iterable[str]) -> bool:
    """Does one of `only` speak of it, and none of `but`?"""
    return any(read_selector(text).matches(operator, paths) for text in only) and not any(
        read_selector(text).matches(operator, paths) for text in but
    )
