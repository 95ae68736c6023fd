"""What lowering leaves and code generation starts from: kernels, the calls of each function, and the placed weights.

No memory is planned yet: how much a kernel needs besides its tensors is told by the code that is made of it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ...dialect.diagnostics import Span
from ...dialect.dims import Size, Symbol
from ...dialect.graph import Constant, Parameter
from ...dialect.types import Array, TensorType
from ..artifact.spec import align
from .entry import Input, Output, Weight
from .nodes import Computed
from .packing import Packing
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
    """A tensor that generated code reads at `offset` bytes of the weights. `source` says where its data come from, and
    `packing` in which order they are stored, those of the type `seen`: the source itself, or a view of it."""

    name: str
    type: TensorType
    offset: int
    source: Parameter | Constant
    seen: TensorType
    packing: Packing | None = None

    def store(self, data: Array) -> Array:
        """The data of the source as they are stored."""
        if self.packing is None:
            return data
        try:
            packed = self.packing(data.reshape(tuple(int(str(size)) for size in self.seen.shape)))
        except Exception as error:
            raise PackingError(self.name, f"{type(error).__name__}: {error}") from error
        if packed.shape != self.type.shape:
            raise PackingError(self.name, f"it gives {list(packed.shape)}, where {self.type} is read")
        return packed


@dataclass(frozen=True, slots=True)
class LoweredKernel:
    """A kernel and the symbol of its function; `origins` says which nodes it computes."""

    symbol: str
    kernel: Kernel
    origins: tuple[str, ...]

    def text(self, suffix: str = "") -> str:
        """The function, with the suffix at its symbol."""
        return _DEFINITION.sub(f"func.func @{self.symbol}{suffix}", self.kernel.text)

    def identity(self, suffix: str = "") -> str:
        """The text without what makes no difference: where it was written."""
        return _DEFINITION.sub(f"func.func @{self.symbol}{suffix}", self.kernel.shape_of_text)


@dataclass(frozen=True, slots=True)
class LoweredCall:
    """A call of a kernel: where it reads, the names of the tensors that it writes, and in words what it computes;
    `span` is where that is written. A call with a `check` writes the record of `check_indices` for what that names."""

    symbol: str
    kernel: Kernel
    inputs: tuple[Input | Weight | Computed, ...]
    outputs: tuple[str, ...]
    comment: str
    span: Span | None = None
    check: str = ""


@dataclass(frozen=True, slots=True)
class LoweredFunction:
    """The calls of a function in order. `sizes` are the bytes of the tensors in between, which need memory; `outputs`
    are those that the caller wants, and has memory for. `dims` is the order in which the entry takes the dims."""

    name: str
    symbol: str
    dims: tuple[Symbol, ...]
    calls: tuple[LoweredCall, ...]
    sizes: Mapping[str, Size]
    outputs: Mapping[str, Output]
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Lowered:
    """What code generation starts from."""

    name: str
    kernels: tuple[LoweredKernel, ...]
    functions: tuple[LoweredFunction, ...]
    weights: tuple[LoweredWeight, ...]

    @property
    def mlir(self) -> str:
        """The kernels, as MLIR."""
        return "\n".join(f"// {', '.join(k.origins)}\n{k.text()}" for k in self.kernels)

    @property
    def weight_bytes(self) -> int:
        return align(max((w.offset + static_bytes(w.type) for w in self.weights), default=0))


def name_kernel(stem: str, kernel: Kernel) -> str:
    """The symbol of a kernel: equal kernels have the same one in every model, others never do."""
    return f"{stem}_{hashlib.sha256(kernel.shape_of_text.encode()).hexdigest()[:_DIGEST]}"


def static_bytes(type: TensorType) -> int:
    size = type.bytes
    assert isinstance(size, int), type
    return size
