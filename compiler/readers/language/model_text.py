"""The parts of model text: names, sizes, attributes and constants of a graph.

The language reads every expression and name from here back as the same value. `model_writer.py` writes nodes and loops.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from ....dialect.diagnostics import Diagnostic, DiagnosticError, Span
from ....dialect.dims import Poly, Size, Style, format_size
from ....dialect.graph import Attribute, Constant
from ....dialect.printer import format_element, format_float
from ....dialect.types import DTYPES, Array, DType, TensorType
from .operators import LITERAL_ELEMENTS
from .statics import CONSTANTS
from .tokens import HARD_WORDS
from .unknown import FUNCTIONS

KEYWORDS = frozenset({*(word.lower() for word in HARD_WORDS), "None"})
RESERVED = KEYWORDS | FUNCTIONS | CONSTANTS.keys() | DTYPES.keys()
"""The names that a generated name must not hide."""


def not_expressible(message: str, span: Span | None = None) -> DiagnosticError:
    """Returns the error for a part of the graph that the language cannot express."""
    help_text = "the text of the graph (`.graph`) has no such limit"
    return DiagnosticError([Diagnostic("not-expressible", message, span, help=help_text)])


def flattened(text: str, default: str = "v") -> str:
    """Converts `encoder.layer.{}.weight` to a name: `encoder_layer_weight`."""
    word = re.sub(r"\W+|_+(?=\W)", "_", text, flags=re.ASCII).strip("_")
    return word if word and not word[0].isdigit() else f"{default}{word}"


@dataclass(slots=True)
class Names:
    """A source of unique names. `taken` are the names of the enclosing scopes."""

    taken: set[str] = field(default_factory=set)

    def give(self, wanted: str, reserved: Iterable[str] = RESERVED) -> str:
        """Returns the wanted name, or, if it is not free, the name and a number."""
        name, count = wanted, 1
        while name in self.taken or name in reserved:
            count += 1
            name = f"{wanted}_{count}"
        self.taken.add(name)
        return name

    def inside(self) -> Names:
        """Returns the names for a nested scope."""
        return Names(set(self.taken))


@dataclass(frozen=True, slots=True)
class Words:
    """Writes values that may hold sizes; `dim` returns the name of a graph's dim in the text."""

    dim: Callable[[str], str]

    def size(self, size: Size) -> str:
        style = Style(lambda a, b: f"{a} // {b}", lambda kind, a, b: f"{kind}({a}, {b})", symbol=self.dim)
        return format_size(size, style)

    def type(self, type: TensorType) -> str:
        return f"{type.dtype}[{', '.join(map(self.size, type.shape))}]" if type.shape else str(type.dtype)

    def attribute(self, value: Attribute) -> str:
        if isinstance(value, tuple):
            return f"({', '.join(map(self.attribute, value))}{',' * (len(value) == 1)})"
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, float):
            return format_float(value)
        if isinstance(value, str):
            return json.dumps(value, ensure_ascii=False)
        if isinstance(value, (int, Poly)):
            return self.size(value)
        assert value is None or isinstance(value, DType), value
        return str(value)


@dataclass(frozen=True, slots=True)
class Expression:
    """The text of a use of a value. A known scalar has a `literal`, which takes the dtype of the other operand; the
    literal of a size may have any dtype."""

    expression: str
    literal: str = ""
    size: str = ""


def write_element(constant: Constant) -> str:
    """Returns a constant of rank 0 as a plain number, or as one that is converted."""
    if _exceeds_literals(constant.data):
        return f"cast({write_constant(Constant(constant.data.view(np.int64)))}, {constant.type.dtype})"
    return format_element(constant.data, constant.type.dtype)


def _exceeds_literals(array: Array) -> bool:
    """Returns whether an array has integers from 2**63 on. No literal can express them, so the text has the i64 of the
    same bits."""
    return array.dtype == np.uint64 and bool((array.view(np.int64) < 0).any())


def write_constant(constant: Constant) -> str:
    """Returns a constant as a call that creates a tensor. Raises DiagnosticError if it is too large, or was not
    kept."""
    if constant.array is None:
        raise not_expressible(f"the data of a constant {constant.type} was not kept")
    array, dtype = constant.array, constant.type.dtype
    if _exceeds_literals(array):
        return f"cast({write_constant(Constant(array.view(np.int64)))}, {dtype})"
    if array.ndim == 0:
        return f"cast({write_element(constant)}, {dtype})"
    flat = array.reshape(-1)
    if array.size == 0 or (flat.size > 1 and (flat.view(_bits(dtype)) == flat.view(_bits(dtype))[0]).all()):
        first = flat[:1] if flat.size else np.zeros(1, dtype.numpy)
        element = format_element(first.reshape(()), dtype)
        return f"full(({', '.join(map(str, array.shape))}{',' * (array.ndim == 1)}), {element}, {dtype})"
    if array.size > LITERAL_ELEMENTS:
        raise not_expressible(f"a constant {constant.type} is too large to be written as text")
    return f"tensor({_rows(array, dtype)}, {dtype})"


def _bits(dtype: DType) -> np.dtype[np.generic]:
    """Returns the dtype for comparing elements by their bits: -0.0 and 0.0 are different constants."""
    return np.dtype(f"u{dtype.bytes}")


def _rows(array: Array, dtype: DType) -> str:
    if array.ndim == 0:
        return format_element(array, dtype)
    return f"[{', '.join(_rows(np.asarray(part), dtype) for part in array)}]"
