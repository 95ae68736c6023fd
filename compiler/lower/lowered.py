"""The output of lowering and input of code generation: kernels, the calls of each function, and the placed weights.

Memory is not planned yet: the scratch size of a kernel depends on its generated code.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import field, replace
from itertools import count

import numpy as np

from ...dialect.diagnostics import Span
from ...dialect.dims import Size, Symbol, static_size
from ...dialect.graph import Constant, Parameter, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import Array, TensorType
from ..artifact.spec import align
from .nodes import Computed
from .packing import Packing
from .schedule import Item, calls_in, map_items
from .state_values import LoweredState, StateValue
from .storage import Input, Output, Sliced, Weight
from .writer import NAME, Kernel

_DEFINITION = re.compile(rf"^func\.func {NAME}", re.MULTILINE)
_DIGEST = 16


class PackingError(Exception):
    """A weight that cannot be packed as its kernel reads it."""

    def __init__(self, weight: str, reason: str) -> None:
        super().__init__(f"`{weight}` cannot be packed: {reason}")
        self.weight = weight


@dataclass(frozen=True, slots=True, eq=False)
class LoweredWeight:
    """A tensor that generated code reads at `offset` bytes of the weights. `source` is the origin of its data.
    `packing` is the layout of the stored data: it applies to the source viewed with the type `seen`."""

    name: str
    type: TensorType
    offset: int
    source: Parameter | Constant
    seen: TensorType
    packing: Packing | None = None

    def store(self, data: Array) -> Array:
        """Returns the data of the source in their storage order."""
        if self.packing is None:
            return data
        try:
            packed = np.asarray(self.packing(data.reshape(tuple(static_size(size) for size in self.seen.shape))))
        except Exception as error:
            raise PackingError(self.name, f"{type(error).__name__}: {error}") from error
        if packed.shape != self.type.shape or packed.dtype != data.dtype:
            raise PackingError(self.name, f"it gives {packed.dtype}{list(packed.shape)}, where {self.type} is read")
        return packed


@dataclass(frozen=True, slots=True)
class LoweredKernel:
    """A kernel and the symbol of its function; `origins` are the nodes that it computes."""

    symbol: str
    kernel: Kernel
    origins: tuple[str, ...]

    def text(self, suffix: str = "") -> str:
        """Returns the function's text, with the suffix at its symbol."""
        return _DEFINITION.sub(f"func.func @{self.symbol}{suffix}", self.kernel.text)

    def identity(self, suffix: str = "") -> str:
        """Returns the text without source locations, which do not affect the object."""
        return _DEFINITION.sub(f"func.func @{self.symbol}{suffix}", self.kernel.shape_of_text)


Tensor = Input | Weight | Computed | Sliced["Tensor"]
"""A tensor of a call."""


@dataclass(frozen=True, slots=True)
class LoweredCall:
    """A call of a kernel: the sources of its inputs, the tensors that it writes, and a description of the computation
    with its source location `span`.

    check: for a kernel that checks indices, the description of the check for messages; such a call writes a record.
    deferred: the check is skipped unless an earlier call has set the alarm.
    copied: for a call that only copies, the name of the copied value.
    is_move: the memory plan may omit the copy, see `schedule`.
    over: for a call that overwrites only parts of its output, the tensor with the rest of the content. It has the same
        memory, or is copied there before the call.
    """

    symbol: str
    kernel: Kernel
    inputs: tuple[Tensor, ...]
    outputs: tuple[str, ...]
    comment: str
    span: Span | None = None
    check: str = ""
    deferred: bool = False
    copied: Value | None = None
    is_move: bool = False
    over: Input | Computed | None = None


@dataclass(frozen=True, slots=True)
class LoweredFunction:
    """The calls of a function in order, with the loops and branches around them.

    dims: the dim arguments of the entry, in order.
    sizes: the bytes of the intermediate tensors, to which the memory plan assigns memory.
    outputs: the results, which are in memory of the caller.
    slices: tensors that are slices of other tensors.
    states: the states that the function changes.
    """

    name: str
    symbol: str
    dims: tuple[Symbol, ...]
    items: tuple[Item[LoweredCall, Tensor], ...]
    sizes: Mapping[str, Size]
    outputs: Mapping[str, Output]
    span: Span | None = None
    slices: Mapping[str, Sliced[Computed]] = field(default_factory=dict)
    states: tuple[StateValue, ...] = ()

    @property
    def calls(self) -> tuple[LoweredCall, ...]:
        """The calls in the order of the text, those in loops and branches included."""
        return tuple(calls_in(self.items))

    def without(self, positions: Collection[int]) -> LoweredFunction:
        """Returns the function without the calls at these positions."""
        numbers = count()
        items = map_items(self.items, lambda call: () if next(numbers) in positions else (call,), lambda tensor: tensor)
        return replace(self, items=items)


@dataclass(frozen=True, slots=True)
class Lowered:
    """The input of code generation."""

    name: str
    kernels: tuple[LoweredKernel, ...]
    functions: tuple[LoweredFunction, ...]
    weights: tuple[LoweredWeight, ...]
    states: tuple[LoweredState, ...] = ()

    @property
    def mlir(self) -> str:
        """The kernels, as MLIR."""
        return "\n".join(f"// {', '.join(k.origins)}\n{k.text()}" for k in self.kernels)

    @property
    def weight_bytes(self) -> int:
        return align(max((w.offset + static_bytes(w.type) for w in self.weights), default=0))


def name_kernel(stem: str, kernel: Kernel) -> str:
    """Returns the symbol of a kernel: equal kernels have the same symbol in every model, other kernels never do."""
    return f"{stem}_{hashlib.sha256(kernel.shape_of_text.encode()).hexdigest()[:_DIGEST]}"


def static_bytes(type: TensorType) -> int:
    size = type.bytes
    assert isinstance(size, int), type
    return size
