"""Types that a file declares: dims that are numbers, names or unknown, as sizes of the graph."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ....dialect.dims import INFINITY, Size, Symbol, minimum, substitute, symbols
from ....dialect.types import U8, TensorType
from .writing.narrow import ELEMENTS
from .writing.records import NodeRecord, ValueRecord, ValueType

_MOST_BYTES = 1 << 47
"""The maximum number of bytes of a tensor: the address space of a process."""


@dataclass(slots=True)
class Dims:
    """The symbolic sizes of a model, by their names in the file. A size without a name becomes a separate dim.

    same: maps a dim to the dim that it must equal, because an operator requires equal sizes.
    stated: the sizes that the caller of the reader states, by name.
    most: the upper bounds of dims that operators require.
    """

    stated: Mapping[str, int] = field(default_factory=dict)
    most: Mapping[str, int] = field(default_factory=dict)
    symbols: dict[str, Symbol] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    unnamed: dict[str, Symbol] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)

    def named(self, name: str) -> Size:
        if name in self.stated:
            return self.stated[name]
        if name not in self.symbols:
            self.symbols[name] = self._new(name)
        return self.symbols[name].size

    def of_axis(self, argument: str, axis: int) -> Size:
        """Returns the size of an axis that has no name."""
        symbol = self._new(f"{argument}_{axis}")
        self.unnamed[symbol.name] = symbol
        name = symbol.name
        while name in self.same:
            name = self.same[name]
        return self.unnamed.get(name, symbol).size

    def of_bytes(self, argument: str) -> Size:
        """Returns the number of bytes of each string of an argument."""
        name = byte_dim(argument)
        return self.stated[name] if name in self.stated else self._new(name).size

    def find_equal(self, types: Sequence[TensorType]) -> tuple[str, str] | None:
        """Returns two unnamed sizes of the same axis of the types, counted from the last; None if there are none."""
        sizes = {symbol.size: name for name, symbol in self.unnamed.items()}
        for axis in range(1, 1 + max((type.rank for type in types), default=0)):
            found = dict.fromkeys(type.shape[-axis] for type in types if type.rank >= axis)
            names = sorted(sizes[size] for size in found if size in sizes)
            if len(names) > 1:
                order = list(self.unnamed)
                first, second = sorted(names, key=order.index)[:2]
                return first, second
        return None

    def find_bound(self, types: Sequence[TensorType]) -> tuple[str, int] | None:
        """Returns a dim and an upper bound with which two sizes of the types become equal, or None.

        If an axis has the sizes T and min(T, 512) in two of the types, both are equal for T <= 512: an example is the
        sum of T embeddings and the first T rows of a table of 512 positions. Axes are counted from the last.
        """
        for axis in range(1, 1 + max((type.rank for type in types), default=0)):
            found = {type.shape[-axis] for type in types if type.rank >= axis}
            for size in found:
                for symbol in symbols(size):
                    for other in found - {size, symbol.size}:
                        limit = _limit(other, symbol)
                        if limit is not None and size == symbol.size:
                            return symbol.name, limit
        return None

    def _new(self, wanted: str) -> Symbol:
        word = re.sub(r"\W+", "_", wanted, flags=re.ASCII).strip("_") or "N"
        word = f"N{word}" if word[0].isdigit() else word
        name, number = word, 1
        while name in self.taken:
            number += 1
            name = f"{word}_{number}"
        self.taken.add(name)
        return Symbol(name, 1, self.most.get(name, INFINITY))


def _limit(size: Size, symbol: Symbol) -> int | None:
    """Returns the number n if a size is min(n, symbol)."""
    whole = substitute(size, {symbol.name: symbol.high})
    return whole if isinstance(whole, int) and minimum(symbol.size, whole) == size else None


def byte_dim(argument: str) -> str:
    """Returns the name of the dim that is the number of bytes of each string of an argument."""
    return f"{argument}_bytes"


def dim_names(records: Sequence[ValueRecord]) -> set[str]:
    """Returns the names of sizes in the types of arguments."""
    found: set[str] = set()
    for record in records:
        type = record.type
        while type is not None:
            found |= {size for size in type.shape or () if isinstance(size, str)}
            if type.kind == "tensor" and type.element == "STRING":
                found.add(byte_dim(record.name))
            type = type.inner
    return found


def _error(code: str, message: str, help: str = "") -> DiagnosticError:
    return DiagnosticError([Diagnostic(code, message, help=help)])


def tensor_type(record: ValueRecord, dims: Dims) -> TensorType:
    """Returns the type of an input; strings have an axis of bytes. Raises DiagnosticError if it is not supported."""
    type = record.type
    if type is None:
        raise _error("missing-type", f"the input `{record.name}` has no type")
    if type.kind != "tensor":
        message = f"the input `{record.name}` is of type {type.kind}; an entry takes tensors"
        raise _error("unsupported-type", message, "state its content as a setting of the model")
    dtype = U8 if type.element == "STRING" else ELEMENTS.get(type.element)
    if dtype is None:
        raise _error("unsupported-dtype", f"the input `{record.name}` is {type.element}, which is not supported")
    if type.shape is None:
        raise _error("missing-type", f"the input `{record.name}` has no declared rank")
    shape = sizes_of(record.name, type.shape, dims)
    if type.element == "STRING":
        shape.append(dims.of_bytes(record.name))
    total = dtype.bytes
    for part in shape:
        total *= max(part, 1) if isinstance(part, int) else 1
    if total > _MOST_BYTES:
        raise _error("too-large", f"the input `{record.name}` is declared with {list(type.shape)}, {total} bytes")
    return TensorType(dtype, tuple(shape))


def sizes_of(argument: str, declared: Sequence[int | str | None], dims: Dims) -> list[Size]:
    """Returns the sizes of a declared shape."""
    shape: list[Size] = []
    for axis, size in enumerate(declared):
        if isinstance(size, int):
            shape.append(size)
        else:
            shape.append(dims.of_axis(argument, axis) if size is None else dims.named(size))
    return shape


def declared_type(type: ValueType | None) -> TensorType | None:
    """Returns a declared type of constant shape; None if there is no declaration, or sizes are unknown."""
    if type is None or type.kind != "tensor" or type.shape is None or type.element not in ELEMENTS:
        return None
    sizes = [size for size in type.shape if isinstance(size, int)]
    return TensorType(ELEMENTS[type.element], tuple(sizes)) if len(sizes) == len(type.shape) else None


_SAME_SHAPE = frozenset(
    {
        "Abs", "Add", "Cast", "CastLike", "Ceil", "Clip", "Cos", "Div", "Exp", "Floor", "Identity", "Log", "Mul", "Neg",
        "Reciprocal", "Relu", "Sigmoid", "Sin", "Sqrt", "Sub", "Tanh", "Where",
    }
)  # fmt: skip
"""Operators whose operands usually have the shape of their result."""


def with_deduced(nodes: Sequence[NodeRecord], types: Mapping[str, ValueType]) -> Mapping[str, ValueType]:
    """Returns the declared types, and for other values the shape that an elementwise use suggests. The reader uses such
    a shape where the actual one depends on data, and the call checks it."""
    found = dict(types)
    for node in reversed(nodes):
        type = found.get(node.outputs[0]) if node.outputs else None
        if type is not None and type.kind == "tensor" and node.op in _SAME_SHAPE and not node.domain:
            for name in node.inputs:
                if name:
                    found.setdefault(name, type)
    return found
