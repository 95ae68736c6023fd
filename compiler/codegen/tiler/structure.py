"""The tiler's model of a kernel: structured ops with their loops, index maps and bodies, and the memory of tensors.

The model is independent of graph operators and of the generated code. A kernel outside of the model is `Unsupported`.

The product of x [B, 16] and a weight w that is packed in panels of 32 columns, as in `linalg.generic`:

    loops     (B, 16, 32), parallel (yes, no, yes)     i, k, j: the sum runs over k
    reads     x at (i, k), view with strides (16, 1)
              w at (j floordiv 32, k, j mod 32), view with strides (512, 32, 1): the first and the last are a `Panel`
    map       (i, j)                                   the element of the result
    body      addf(start, mulf(read 0, read 1))        a tree of `Node`

The tiler derives everything else from steps in memory: along j, the reads of w move by 1 element and those of x by 0.
So lanes run along j, and one element of x serves all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import Any

from ....dialect.dims import Size, Symbol, add, multiply
from ....dialect.emitter import Index
from ....dialect.lazy_dataclass import dataclass
from ..structured.body_nodes import Node, combination_of, products_of
from ..structured.positions import Panel, coefficient_of, linear


class Unsupported(Exception):  # noqa: N818 (a reason, not an error)
    """The reason for leaving a kernel to the upstream passes."""


class Sequential(Unsupported):
    """A kernel of sequential loops and copies, which is written unchanged."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that the caller passes or that is on the stack; or a constant, with the text of its elements."""

    name: str
    element: str
    constant: str = ""
    size: int = 0
    """The elements of a constant."""


@dataclass(frozen=True, slots=True)
class View:
    """A tensor in memory: element `i` is at `offset + sum(i[axis] * strides[axis])`."""

    buffer: Buffer
    offset: Size
    strides: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """`number` for an index in pages of `width` elements: a page that a table names, as a node in the op's loops. The
    position in the page is a `Panel` beside it. The number depends on the loops `beside` too."""

    index: Index
    width: int
    number: Node
    beside: frozenset[int]


Position = Index | Panel | Page


@dataclass(eq=False, slots=True)
class Tensor:
    """A tensor value: a constant everywhere (`splat`), the result of `op`, or a tensor in memory.

    `view` is its home in memory; only tensors that are needed in memory are written to it. `axes` maps each axis of the
    op's result to an axis of this tensor, or to None for an axis of size 1 that a reshape removed. `axes` itself is
    None where the tensor can be read from its home only.
    """

    shape: tuple[Size, ...]
    element: str
    view: View | None = None
    splat: str | None = None
    op: Op | None = None
    axes: tuple[int | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """`size` elements of memory that one step of `loop` reads as one word of 32 bits: neighbours, or elements that are
    `stride` apart. The last group has only `rest` elements, unless `rest` is 0."""

    size: int
    loop: int
    rest: int
    stride: Size = 1


@dataclass(frozen=True, slots=True)
class Access:
    """An op's read or write and its index as a function of the op's loops: an element, or the group that begins with
    it."""

    tensor: Tensor
    index: tuple[Position, ...]
    group: Group | None = None

    @property
    def width(self) -> int:
        """The number of neighbouring elements that are read together."""
        return 1 if self.group is None or self.group.stride != 1 else self.group.size

    def loops(self) -> frozenset[int]:
        """Returns the loops that the access depends on."""
        beside = {loop for p in self.index if isinstance(p, Page) for loop in p.beside}
        return frozenset(loop for p in self.index for loop, _ in linear(p).coefficients) | beside

    def moved(self, elements: int) -> Access | None:
        """Returns the access to the element that is some elements of memory ahead; None for groups, and where the last
        axis is not contiguous."""
        *before, last = self.index
        view = self.tensor.view
        if self.group is not None or view is None or view.strides[-1] != 1 or not isinstance(last, Index):
            return None
        return replace(self, index=(*before, Index(last.coefficients, last.constant + elements)))

    @property
    def origin(self) -> Size | None:
        """The element of memory at index 0 of all loops; None where it is not a sum over the axes."""
        view = self.tensor.view
        if view is None or any(not isinstance(position, Index) for position in self.index):
            return None
        total = view.offset
        for position, stride in zip(self.index, view.strides, strict=True):
            total = add(total, multiply(linear(position).constant, stride))
        return total

    def step(self, loop: int) -> Size | None:
        """Returns the number of memory elements that one step of the loop moves; None if it differs between steps."""
        view = self.tensor.view
        if view is None:
            return 0 if loop not in self.loops() else None
        total: Size = 0
        for position, stride in zip(self.index, view.strides, strict=True):
            coefficient = coefficient_of(position, loop)
            if isinstance(position, Page) and loop in position.beside:
                return None
            if coefficient == 0:
                continue
            if not isinstance(position, Index):
                if coefficient != 1:
                    return None
                if isinstance(position, Page) or not position.within:
                    continue
            total = total + coefficient * stride
        return total


def extract_step(node: Node, loop: int) -> Size | None:
    """Returns the number of memory elements that one step of a loop moves an `extract`'s read: a row with a computed
    index is still contiguous. None if it differs between steps."""
    assert node.tensor is not None and node.tensor.view is not None, node
    total: Size = 0
    for index, stride in zip(node.operands, node.tensor.view.strides, strict=True):
        coefficient = _coefficient(index, loop)
        if coefficient is None:
            return None
        total = add(total, multiply(stride, coefficient))
    return total


def _coefficient(index: Node, loop: int) -> int | None:
    """Returns the step of a computed index with a loop: the loop's own index, also beside other terms."""
    while index.kind == "arith.index_cast":
        (index,) = index.operands
    if index.kind == "index":
        return int(index.number == loop)
    if index.kind == "arith.addi":
        parts = [_coefficient(part, loop) for part in index.operands]
        return None if None in parts else sum(part for part in parts if part is not None)
    return None if any(n.kind == "index" and n.number == loop for n in index.walk()) else 0


@dataclass(frozen=True, slots=True)
class Scaled:
    """A sum of products with one common factor, invariant in the `inner` loops of the sum, the last ones. The factor is
    None where each product includes it.

    Products are of floats, or of words of quantized values. For the latter, `quantized` is their sum in i32, which is
    converted after all products are added.
    """

    products: tuple[tuple[Node, Node], ...]
    factor: Node | None
    inner: frozenset[int]
    quantized: Node | None = None

    @property
    def type(self) -> str:
        """The type of the sums of products."""
        return "f32" if self.quantized is None else "i32"


@dataclass(frozen=True, slots=True)
class Carried:
    """A value that an op passes along its only sequential loop. The node `start` of the body stands for `first` at the
    first step, and for `next` of the previous step afterwards. `first` is the attribute of a constant."""

    next: Node
    first: str
    element: str


@dataclass(eq=False)
class Op:
    """`result[map] = body(reads, result[map])` over the loops; loops that are not parallel run in any order. In an op
    with a `carried` value, every step writes a separate element, `result[map] = body(reads, carried)`."""

    loops: tuple[Size, ...]
    parallel: tuple[bool, ...]
    reads: tuple[Access, ...]
    map: tuple[Index, ...]
    body: Node
    start: Tensor | None
    """The initial value of a reduction."""
    result: Tensor = field(init=False)
    location: Any = None
    carried: Carried | None = None
    is_sparse: bool = False
    """Whether a sum may leave out steps at which a factor is 0."""
    rounds_factors: bool = False
    """Whether the factors of a sum may be rounded to 16-bit integers with a scale for each block of steps."""
    until: tuple[int, int] | None = None
    """A parallel loop and a distance: the sum may leave out steps after the index of the loop plus the distance."""
    since: tuple[int, int] | None = None
    """The same for steps before the index plus the distance."""

    @cached_property
    def outer(self) -> tuple[int, ...]:
        return tuple(i for i, p in enumerate(self.parallel) if p)

    @cached_property
    def reduced(self) -> tuple[int, ...]:
        return tuple(i for i, p in enumerate(self.parallel) if not p)

    @cached_property
    def summed(self) -> tuple[int, ...]:
        """The reduced loops with more than one step, or the last one if none has more: the window of a 1x1 convolution
        has loops of one step."""
        return tuple(i for i in self.reduced if self.loops[i] != 1) or self.reduced[-1:]

    def loops_of(self, node: Node) -> frozenset[int]:
        """Returns the loops that a value of the body depends on."""
        return self.loops_read(node) | {n.number for n in node.walk() if n.kind == "index"}

    def loops_read(self, node: Node) -> frozenset[int]:
        """Returns the loops that move the reads of a value of the body."""
        return frozenset(loop for n in node.walk() if n.kind == "read" for loop in self.reads[n.number].loops())

    @property
    def written(self) -> Access:
        return Access(self.result, self.map)

    @property
    def started(self) -> tuple[Access, ...]:
        """The access to the initial values of a sum, if they are in memory."""
        return () if self.start is None or self.start.splat is not None else (Access(self.start, self.map),)

    @cached_property
    def product(self) -> tuple[Node, Node] | None:
        """The factors, where the body adds a product of floats to the accumulator."""
        kind, added = self.combination or ("", self.body)
        if not self.reduced or kind != "arith.addf" or added.kind != "arith.mulf":
            return None
        return added.operands[0], added.operands[1]

    @cached_property
    def factors(self) -> tuple[Node, Node] | None:
        """The factors, where the body adds a product of two elements that are read, in f32 or f64, or widened to
        f32."""
        if self.product is None or self.body.type not in ("f32", "f64"):
            return None
        reads = [f.operands[0] if f.kind == "arith.extf" else f for f in self.product]
        if any(read.kind != "read" for read in reads) or reads[0].number == reads[1].number:
            return None
        return self.product

    def factor(self, number: int) -> Node:
        """Returns the one of the `factors` that is the read with the index `number`, or widens it."""
        assert self.factors is not None, self.location
        return next(f for f in self.factors if any(n.kind == "read" and n.number == number for n in f.walk()))

    @cached_property
    def scaled(self) -> Scaled | None:
        """The products and their common factor, where the body adds one product, `x * c * s + total`, or several,
        `(x * c + y * d) * s + total`. The sum of quantized values is an integer."""
        for sum, factor, inner in self.factored():
            if products := products_of(sum):
                return Scaled(products, factor, inner)
            if sum.kind == "arith.sitofp" and sum.operands[0].kind == "quantized_sum":
                words = iter(sum.operands[0].operands)
                return Scaled(tuple(zip(words, words, strict=True)), factor, inner, sum.operands[0])
        return None

    def factored(self) -> Iterator[tuple[Node, Node, frozenset[int]]]:
        """Yields the ways to split the body's addend into a sum and a factor that is invariant in some loops of the
        reduction, the last ones."""
        kind, added = self.combination or ("", self.body)
        if kind != "arith.addf" or added.kind != "arith.mulf":
            return
        for sum, factor in (added.operands, added.operands[::-1]):
            read = self.loops_read(factor)
            inner = [loop for loop in self.reduced if loop not in read]
            outer = len(self.reduced) - len(inner)
            if inner and outer and self.reduced[outer:] == tuple(inner):
                yield sum, factor, frozenset(inner)

    @cached_property
    def composed(self) -> tuple[tuple[Node, Node], ...]:
        """The products that the body adds up, where each has a factor that is composed of its bits: of floats, or of
        pairs of bf16 in words."""
        if self.body.kind == "dot":
            words = tuple(_words_of(self.body))
            return words if len(words) > 1 else ()
        kind, added = self.combination or ("", self.body)
        products = products_of(added) if kind == "arith.addf" else ()
        return products if all(any(f.kind == COMPOSED for f in factors) for factors in products) else ()

    @cached_property
    def combination(self) -> tuple[str, Node] | None:
        """The operation that adds to the accumulator and its addend, where the body consists of just that operation."""
        return combination_of((self.body,))


COMPOSED = "arith.bitcast"
"""The kind of a float that is composed of its bits, as those of packed floats are."""


def _words_of(node: Node) -> Iterator[tuple[Node, Node]]:
    """Yields the words that groups in turn multiply, those of the first one first."""
    if node.kind == "dot":
        total, left, right = node.operands
        yield from _words_of(total)
        yield left, right


@dataclass(slots=True)
class Kernel:
    """A function as read. `signature` holds the names, MLIR types and attributes of its arguments."""

    name: str
    signature: tuple[tuple[str, str, str], ...]
    dims: Mapping[Symbol, str]
    ops: list[Op]
    written: list[Tensor]
    """The tensors that must be in their homes at the end."""
    results: frozenset[Buffer]
    """The memory of results, which are read outside of the kernel."""
