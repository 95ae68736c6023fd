"""What lowering leaves and code generation starts from: kernels, entries, and the placed weights."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...dialect.dims import Size, Symbol
from ...dialect.graph import Constant, Parameter
from ...dialect.types import TensorType
from ...passes.plan_memory import Plan
from ..artifact.spec import align
from .entry import Call, declare, write_entry
from .writer import NAME, Kernel

_DEFINITION = re.compile(rf"^func\.func {NAME}", re.MULTILINE)


@dataclass(frozen=True, slots=True, eq=False)
class LoweredWeight:
    """A tensor that generated code reads at `offset` bytes of the weights. `source` says where its data come from."""

    name: str
    type: TensorType
    offset: int
    source: Parameter | Constant


@dataclass(frozen=True, slots=True)
class LoweredKernel:
    """`text` is a function named `name`; `origins` says which nodes it computes."""

    name: str
    kernel: Kernel
    origins: tuple[str, ...]

    @property
    def text(self) -> str:
        return _DEFINITION.sub(f"func.func @{self.name}", self.kernel.text)


@dataclass(frozen=True, slots=True)
class LoweredEntry:
    """`symbol` is the C function of the function `name`; `dims` is the order in which it takes the dims."""

    name: str
    symbol: str
    dims: tuple[Symbol, ...]
    workspace: Size
    calls: tuple[Call, ...]
    plan: Plan

    @property
    def text(self) -> str:
        return write_entry(self.symbol, self.dims, self.calls)


@dataclass(frozen=True, slots=True)
class Lowered:
    """What code generation starts from."""

    name: str
    kernels: tuple[LoweredKernel, ...]
    entries: tuple[LoweredEntry, ...]
    weights: tuple[LoweredWeight, ...]

    @property
    def mlir(self) -> str:
        """The kernels, as MLIR."""
        return "\n".join(f"// {', '.join(k.origins)}\n{k.text}" for k in self.kernels)

    @property
    def entry_ir(self) -> str:
        """The entries, as a module of LLVM IR to be linked with the kernels."""
        calls = [call for entry in self.entries for call in entry.calls]
        return "\n".join([declare(calls), *(entry.text for entry in self.entries)])

    @property
    def weight_bytes(self) -> int:
        return align(max((w.offset + static_bytes(w.type) for w in self.weights), default=0))


def static_bytes(type: TensorType) -> int:
    size = type.bytes
    assert isinstance(size, int), type
    return size
