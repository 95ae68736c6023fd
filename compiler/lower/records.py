"""A recorded kernel: operations on tensors, in order, before their results are assigned to memory.

Bodies stay functions: they are called once when recorded, to collect their reads, and again when they are written,
perhaps inside another operation's body. So a body must write the same statements each time it is called.

The record of x @ w, as the operator's lowering writes it with the emitter:

    Argument    slot 0                                              x
    Argument    slot 1                                              w
    Full        0                                                   the initial sums
    Structured  loops (B, 16, 32), the second one is a sum          operands: both arguments, and the zeros
                body(s, (x, w), (total,)) -> total + x * w          `starts` is (2,): operand 2 is overwritten
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from ...dialect import emitter as protocol
from ...dialect.diagnostics import Span
from ...dialect.dims import Size
from ...dialect.emitter import Index, IndexMap
from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import TensorType


@dataclass(eq=False, slots=True)
class Ref:
    """A tensor: the result `number` of an operation."""

    type: TensorType
    op: Op
    number: int = 0


@dataclass(eq=False, slots=True)
class Local:
    """A tensor inside the body of a sequential loop, identified by its name in the text."""

    type: TensorType
    name: str


@dataclass(eq=False, slots=True, kw_only=True)
class Op:
    """An operation. `operands` are the tensors read; `loads` are the tensors with single elements that a body reads."""

    types: tuple[TensorType, ...]
    operands: list[Ref] = field(default_factory=list)
    loads: tuple[Ref, ...] = ()
    span: Span | None = None

    @property
    def overwritten(self) -> range:
        """The operands with memory that is reused for a result."""
        return range(0)

    def result(self, number: int = 0) -> Ref:
        return Ref(self.types[number], self, number)


@dataclass(eq=False, slots=True, kw_only=True)
class Argument(Op):
    """An input of the kernel; a `weight` may be stored in another order."""

    slot: int
    weight: bool = False


@dataclass(eq=False, slots=True, kw_only=True)
class Resident(Op):
    """The content of the memory of a result, or of scratch, before the kernel runs."""


@dataclass(eq=False, slots=True, kw_only=True)
class Dense(Op):
    """A small constant."""

    values: tuple[float | int | bool, ...]


@dataclass(eq=False, slots=True, kw_only=True)
class Full(Op):
    """A tensor of one repeated value."""

    value: float | int | bool


Scalars = Sequence[protocol.Scalar]
StructuredBody = Callable[[Any, Scalars, Scalars], Scalars]
"""`body(s, elements, accumulators) -> new accumulators`, where s is the protocol's BodyEmitter."""


@dataclass(eq=False, slots=True, kw_only=True)
class Structured(Op):
    """Loops over elements. The operands are the inputs, then the initial values of results."""

    loops: tuple[protocol.Loop, ...]
    input_maps: tuple[IndexMap, ...]
    result_maps: tuple[IndexMap, ...]
    starts: tuple[int | None, ...]
    """Per result, the operand with its initial value; None for a result that every iteration writes."""
    body: StructuredBody
    elementwise: bool = False
    """True for one parallel loop per axis of the only result, without an initial value."""
    moves: bool = False
    """True for an elementwise operation that moves an input's elements without computing."""

    @property
    def generates(self) -> bool:
        """Whether an element depends on its indices only, and on nothing in memory."""
        return self.elementwise and not self.operands and not self.loads

    @property
    def overwritten(self) -> range:
        return range(len(self.input_maps), len(self.operands))


@dataclass(eq=False, slots=True, kw_only=True)
class Reshape(Op):
    """The same memory under another shape."""


@dataclass(eq=False, slots=True, kw_only=True)
class Slice(Op):
    """A part of the same memory."""

    starts: tuple[Size, ...]
    steps: tuple[int, ...]


@dataclass(eq=False, slots=True, kw_only=True)
class Insert(Op):
    """A write into a part of a tensor. The operands are the source and the target."""

    starts: tuple[Size, ...]
    steps: tuple[int, ...]

    @property
    def overwritten(self) -> range:
        return range(1, 2)


@dataclass(eq=False, slots=True, kw_only=True)
class Scan(Op):
    """Sequential loops that carry the operands; the iterations of the first one may be work items."""

    sizes: tuple[Size, ...]
    body: Callable[..., Sequence[protocol.Tensor]]
    work_items: bool = False

    @property
    def overwritten(self) -> range:
        return range(len(self.operands))


def as_ref(x: protocol.Tensor) -> Ref:
    assert isinstance(x, Ref), x
    return x


def single_value(ref: Ref) -> float | int | bool | None:
    """Returns the value that every element has, where it is known."""
    if isinstance(ref.op, Full):
        return ref.op.value
    if isinstance(ref.op, Dense) and len(ref.op.values) == 1:
        return ref.op.values[0]
    return None


def copy_of(x: Ref, span: Span | None) -> Structured:
    """Returns an operation that copies the elements of `x` into separate memory."""
    return Structured(
        types=(x.type,),
        operands=[x],
        span=span,
        loops=tuple(protocol.Loop(size) for size in x.type.shape),
        input_maps=(protocol.identity(x.type.rank),),
        result_maps=(protocol.identity(x.type.rank),),
        starts=(None,),
        body=lambda s, elements, accumulators: elements,
        elementwise=True,
        moves=True,
    )


def compose(index: Index, access: IndexMap) -> Index:
    """Returns the linear form over other loops: loop `i` of `index` is `access[i]`."""
    if index.constant == 0 and len(index.coefficients) == 1:
        ((loop, coefficient),) = index.coefficients
        return access[loop] * coefficient
    total = Index((), index.constant)
    for loop, coefficient in index.coefficients:
        total = total + access[loop] * coefficient
    return total
