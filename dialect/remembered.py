"""Results that are remembered: of functions of one object, by its identity, the data of parameters, and of nodes.

Graphs are large and immutable: comparing two of them takes as long as most computations on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TypeVar

from .graph import Node, Parameter
from .lazy_dataclass import dataclass
from .types import Array, DType

_SMALL = 64
"""The most bytes of an operand that is recognized by its content."""

Object = TypeVar("Object")
Result = TypeVar("Result")


def by_identity(compute: Callable[[Object], Result], most: int = 256) -> Callable[[Object], Result]:
    """Returns a function that computes the same, once for each object. It drops all results when it has `most`."""
    # The object is kept beside its result: another one cannot take its identity.
    found: dict[int, tuple[Object, Result]] = {}

    def remembered(subject: Object) -> Result:
        known = found.get(id(subject))
        if known is None:
            if len(found) >= most:
                found.clear()
            known = found[id(subject)] = subject, compute(subject)
        return known[1]

    return remembered


@dataclass
class KeptParameters:
    """The data of parameters, for interpreters that read them from one source. Parameters of one name that differ, such
    as one before and after a pass gave it a formula, are kept apart. Data beyond `most` bytes are not kept."""

    most: int = 1 << 26
    _arrays: dict[tuple[str, DType | None], list[tuple[Parameter, Array]]] = field(default_factory=dict)
    _bytes: int = 0

    def get(self, parameter: Parameter, precision: DType | None) -> Array | None:
        known = self._arrays.get((parameter.name, precision), ())
        return next((array for other, array in known if other == parameter), None)

    def add(self, parameter: Parameter, precision: DType | None, array: Array) -> None:
        if self._bytes + array.nbytes <= self.most:
            self._arrays.setdefault((parameter.name, precision), []).append((parameter, array))
            self._bytes += array.nbytes


@dataclass(slots=True)
class _Kept:
    # The operands stay alive: no other array takes the address of one that a key names.
    inputs: Sequence[Array]
    results: Sequence[Array]


@dataclass
class KeptResults:
    """The results of nodes, for interpreters that run one graph after each of several passes with the same arguments.

    A node that is equal to an earlier one and has the same operands is not computed again. Small operands are the
    same if their bytes are; others if they are one array, which a chain of equal nodes gives. Results that a graph does
    not use are forgotten with the next one, and so are those beyond `most` bytes:

        graph 1    a = relu(x)    b = add(a, y)      computed: a, b
        graph 2    a = relu(x)    b = subtract(a, y) computed: b
    """

    most: int = 1 << 28
    _before: dict[object, _Kept] = field(default_factory=dict)
    _now: dict[object, _Kept] = field(default_factory=dict)
    _bytes: int = 0

    def next_graph(self) -> None:
        """Forgets all results that the last graph did not use."""
        self._before, self._now, self._bytes = self._now, {}, 0

    def key(
        self, node: Node, inputs: Sequence[Array], dims: Mapping[str, int], precision: DType | None
    ) -> tuple[object, ...]:
        """Returns what determines the results of a node without regions."""
        dtypes = tuple(value.type.dtype for value in node.outputs)
        operands = tuple(map(_array_key, inputs))
        return node.op, _exact(node.attributes), operands, dtypes, precision, *sorted(dims.items())

    def get(self, key: object) -> Sequence[Array] | None:
        kept = self._now.get(key)
        if kept is None and (kept := self._before.get(key)) is not None:
            self._keep(key, kept)
        return None if kept is None else kept.results

    def add(self, key: object, inputs: Sequence[Array], results: Sequence[Array]) -> None:
        self._keep(key, _Kept(inputs, results))

    def _keep(self, key: object, kept: _Kept) -> None:
        size = sum(array.nbytes for array in kept.results)
        if self._bytes + size <= self.most:
            self._now[key] = kept
            self._bytes += size


def _array_key(array: Array) -> tuple[object, ...]:
    if array.nbytes <= _SMALL:
        return array.dtype.str, array.shape, array.tobytes()
    return array.dtype.str, array.shape, array.strides, array.ctypes.data


def _exact(value: object) -> object:
    """Returns a key that distinguishes 0.0 from -0.0, and 1, 1.0 and True from each other, although they are equal."""
    if isinstance(value, tuple):
        return tuple(map(_exact, value))
    return (type(value), value.hex() if isinstance(value, float) else value)
