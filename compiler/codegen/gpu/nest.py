"""A structured op on memory, in the form that schedules use: loops, index maps, and a body that is a function of its
own.

The op `z[i, j] = x[i, j] + y[j]` over memory, with the bias `y`:

    loops     parallel, parallel
    operands  x: memref<?x20xf32> at (d0, d1)    y: memref<20xf32> at (d1)    z: memref<?x20xf32> at (d0, d1)
    body      @k_body(%x: f32, %y: f32, %z: f32, %d0: index, %d1: index) -> f32

A schedule reads nothing else. It does not contain names of graph operators.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ....dialect.lazy_dataclass import dataclass
from ..structured.positions import Position, loops_of, plain


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor in memory, or a number that is the same in all iterations. `index` is its index in terms of the loops,
    a position for each axis. `used`: whether the body reads an element of it."""

    type: str
    element: str
    shape: tuple[int | None, ...]
    index: tuple[Position, ...]
    used: bool = True
    strides: tuple[int | None, ...] = ()
    padded: tuple[int, ...] = ()
    """The axes along which an index may lie outside of the tensor."""
    padding: str = ""
    """The text of the constant that is read there."""

    @property
    def is_zero_outside(self) -> bool:
        """Whether elements outside of the tensor, if they are read, are 0."""
        return not self.padded or re.match(r"0(\.0+e\+00)? ", self.padding) is not None

    @property
    def in_memory(self) -> bool:
        return self.type.startswith("memref")

    def plain_axes(self) -> tuple[int | None, ...]:
        """Returns the loop that each axis is the position of, or None for another expression, as that of an axis in
        padding."""
        return tuple(None if axis in self.padded else plain(position) for axis, position in enumerate(self.index))

    def loops(self) -> frozenset[int]:
        """Returns the loops that the index depends on."""
        return frozenset(loop for position in self.index for loop in loops_of(position))


@dataclass(frozen=True, slots=True)
class Beside:
    """An elementwise op on the result of a reduction: its prologue computes the first value of each element, its
    epilogue reads each one as soon as it is complete.

    `value` are the inputs of `nest` that are the sum. `axes` are the loops of `nest` by the axes of the sum.
    """

    nest: Nest
    value: frozenset[int]
    axes: tuple[int, ...]

    def takes(self, operand: int) -> bool:
        """Returns whether a schedule takes an operand: it does not take the memory of the sums for this op."""
        return operand not in self.value if self.value else operand < len(self.nest.inputs)


@dataclass(frozen=True, slots=True)
class Decoding:
    """The weights of a product that are computed from quantized values.

    `function` returns a weight for each of `activations`, the numbers of inputs, from the elements of the other inputs,
    the loops and the captured values. Activations and weights have the dtype `element`. If there is a `scale`, the sum
    of the products is multiplied by the f32 that this function returns from the same arguments; it depends on no step
    of the sum.
    """

    function: str
    element: str
    activations: tuple[int, ...]
    scale: str = ""


@dataclass(frozen=True, slots=True)
class Parts:
    """Memory for `most` totals of parts of a reduction, each of `least` elements at least. The launch that `joins` them
    does not compute them."""

    most: int
    least: int
    joins: bool = False


PARTS = "%parts"
"""The argument that points to the memory for totals."""


@dataclass(frozen=True, slots=True)
class Nest:
    """A structured op. `parallel` has a flag for each loop. `body` is the symbol of a function of the elements of all
    operands, the loops, and the captured values, whose types are `captures`. A result with a `start` begins with that
    value, an operand after the captured ones; another one begins with the content of its memory. `combines` names the
    operation by which each result combines its accumulator with a new value, if it is one operation. If it
    `is_product`, the new value is the product of the two inputs, widened exactly; `signs` marks the signed integers.
    If it `converts`, the new value is a product of floats, and one input or both are integers, which become floats.
    It `has_loops` if its body runs loops of its own, `reads_positions` if it reads those of loops, and `divides_f64` if
    it has divisions in f64. A `prologue` computes a value that is added to the only result; an `epilogue` computes the
    value that is stored from the result. A product with decoded weights has a `decoding`. Blocks may share a reduction
    that has memory for `parts`. With two results, `running` names the operation that combines the first one with a new
    value; the second may read it too."""

    name: str
    body: str
    inputs: tuple[Operand, ...]
    results: tuple[Operand, ...]
    parallel: tuple[bool, ...]
    captures: tuple[str, ...]
    started: tuple[bool, ...]
    combines: tuple[str | None, ...]
    is_product: bool = False
    converts: bool = False
    signs: tuple[bool, bool] = (False, False)
    has_loops: bool = False
    reads_positions: bool = False
    divides_f64: bool = False
    prologue: Beside | None = None
    epilogue: Beside | None = None
    decoding: Decoding | None = None
    parts: Parts | None = None
    running: str | None = None

    @property
    def beside(self) -> dict[str, Beside]:
        """The prologue and the epilogue, by the letter that their arguments begin with."""
        both = {"b": self.prologue, "e": self.epilogue}
        return {letter: beside for letter, beside in both.items() if beside is not None}

    @property
    def bodies(self) -> tuple[Nest, ...]:
        """The nests whose bodies are separate functions."""
        return (self, *(beside.nest for beside in self.beside.values()))

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (*self.inputs, *self.results)

    @property
    def reductions(self) -> tuple[int, ...]:
        return tuple(loop for loop, parallel in enumerate(self.parallel) if not parallel)

    @property
    def outer(self) -> tuple[int, ...]:
        """The parallel loops, in the order of the axes of the first result: neighbouring threads write neighbouring
        elements."""
        ordered = [loop for loop in self.results[0].plain_axes() if loop is not None]
        rest = [loop for loop, parallel in enumerate(self.parallel) if parallel and loop not in ordered]
        return (*rest, *dict.fromkeys(ordered))

    def is_independent(self) -> bool:
        """Returns whether different iterations of the parallel loops write different elements."""
        wanted = {loop for loop, parallel in enumerate(self.parallel) if parallel}
        return all(wanted <= set(result.plain_axes()) for result in self.results)

    def extent(self, loop: int) -> tuple[int, int]:
        """Returns an operand and the axis of it whose size is the number of iterations of a loop."""
        for number, operand in enumerate(self.operands):
            if operand.in_memory and loop in operand.plain_axes():
                return number, operand.plain_axes().index(loop)
        raise AssertionError(f"no operand has the size of loop {loop}")  # linalg takes each size from one

    def static_extent(self, loop: int) -> int | None:
        """Returns the number of iterations of a loop, if it is the same in every call."""
        operands = [operand for operand in self.operands if operand.in_memory]
        sizes = (
            operand.shape[operand.plain_axes().index(loop)] for operand in operands if loop in operand.plain_axes()
        )
        return next((size for size in sizes if size is not None), None)

    def static_count(self, loops: Iterable[int]) -> int | None:
        """Returns the number of iterations of loops together, if it is the same in every call."""
        count = 1
        for loop in loops:
            size = self.static_extent(loop)
            if size is None:
                return None
            count *= size
        return count


def arguments_of(nest: Nest) -> list[tuple[str, str]]:
    """Returns the arguments of a schedule's function, each a name and a type: operands, captured values, starts, then
    the operands of the prologue, `%bm0`, and its captured values, `%bc0`; those of the epilogue are `%em0` and
    `%ec0`. The last one is the memory for totals of parts."""
    named = [(f"%m{number}", operand.type) for number, operand in enumerate(nest.operands)]
    named += [(f"%c{number}", type) for number, type in enumerate(nest.captures)]
    starts = [(i, r.element) for i, (r, given) in enumerate(zip(nest.results, nest.started, strict=True)) if given]
    named += [(f"%s{number}", element) for number, element in starts]
    for letter, beside in nest.beside.items():
        named += arguments_beside(letter, beside)
    return named if nest.parts is None else [*named, (PARTS, f"memref<{nest.results[0].element}>")]


def arguments_beside(letter: str, beside: Beside) -> list[tuple[str, str]]:
    """Returns the arguments of a prologue or an epilogue: its operands, and its captured values."""
    operands = enumerate(beside.nest.operands)
    named = [(f"%{letter}m{number}", operand.type) for number, operand in operands if beside.takes(number)]
    return named + [(f"%{letter}c{number}", type) for number, type in enumerate(beside.nest.captures)]


def declare_body(nest: Nest) -> str:
    """Returns the declaration of the body, for a text that is parsed separately."""
    types = [*(o.element for o in nest.operands), *["index"] * len(nest.parallel), *nest.captures]
    results = ", ".join(result.element for result in nest.results)
    return f"func.func private @{nest.body}({', '.join(types)}) -> ({results})\n"


def declare_decoding(nest: Nest) -> str:
    """Returns the declarations of the functions that decode weights, for a text that is parsed separately; empty if
    there are none."""
    decoding = nest.decoding
    if decoding is None:
        return ""
    types = ", ".join([*_decoded_types(nest, decoding), *["index"] * len(nest.parallel), *nest.captures])
    results = ", ".join([decoding.element] * len(decoding.activations))
    scale = f"func.func private @{decoding.scale}({types}) -> f32\n" if decoding.scale else ""
    return f"func.func private @{decoding.function}({types}) -> ({results})\n{scale}"


def call_decoding(nest: Nest, elements: Sequence[str], loops: Sequence[str]) -> str:
    """Returns the call of the function that decodes weights."""
    assert nest.decoding is not None, nest.name
    results = [nest.decoding.element] * len(nest.decoding.activations)
    return _call_of_weights(nest, nest.decoding, nest.decoding.function, elements, loops, results)


def call_scale(nest: Nest, elements: Sequence[str], loops: Sequence[str]) -> str:
    """Returns the call of the function that returns the scale of a sum."""
    assert nest.decoding is not None, nest.name
    return _call_of_weights(nest, nest.decoding, nest.decoding.scale, elements, loops, ["f32"])


def _call_of_weights(
    nest: Nest, decoding: Decoding, symbol: str, elements: Sequence[str], loops: Sequence[str], results: Sequence[str]
) -> str:
    names = [*elements, *loops, *(f"%c{number}" for number in range(len(nest.captures)))]
    types = [*_decoded_types(nest, decoding), *["index"] * len(loops), *nest.captures]
    return f"func.call @{symbol}({', '.join(names)}) : ({', '.join(types)}) -> ({', '.join(results)})"


def _decoded_types(nest: Nest, decoding: Decoding) -> list[str]:
    return [o.element for number, o in enumerate(nest.inputs) if number not in decoding.activations]


def call_body(nest: Nest, elements: Sequence[str], loops: Sequence[str], captured: str = "%c") -> str:
    """Returns the call of the body, with the names of all operands' elements and of the positions of all loops."""
    names = [*elements, *loops, *(f"{captured}{number}" for number in range(len(nest.captures)))]
    types = [*(o.element for o in nest.operands), *["index"] * len(loops), *nest.captures]
    results = [r.element for r in nest.results]
    return f"func.call @{nest.body}({', '.join(names)}) : ({', '.join(types)}) -> ({', '.join(results)})"
