"""The contents of an artifact: entries, their arguments, dims and workspace, and the weights with their offsets.

Code generation creates these records; the assembler converts them to tables, the header and the loaders. This module
writes no file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Literal

from ...dialect.diagnostics import Span
from ...dialect.dims import (
    Size,
    Symbol,
    add,
    ceil_divide,
    format_size,
    multiply,
)
from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import Array, DType, TensorType

WEIGHT_ALIGNMENT = 64
"""The alignment of every weight in bytes, in the artifact and in the external file."""

Relation = Literal["==", ">=", "multiple-of", "fits"]
JsonValue = str | int | float | bool | None | Sequence["JsonValue"] | Mapping[str, "JsonValue"]


@dataclass(frozen=True, slots=True)
class ArgumentSpec:
    """An argument or a result of an entry."""

    name: str
    type: TensorType


@dataclass(frozen=True, slots=True)
class StateSpec:
    """A state: its initial value is `initial_bytes` of the weights from `initial` on, or zeros."""

    name: str
    type: TensorType
    initial: int = 0
    initial_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Constraint:
    """A relation between sizes that every call must satisfy; it is checked when the dims are bound. `fits` requires
    that both fit in 64 bits."""

    left: Size
    relation: Relation
    right: Size
    cause: str = ""
    """The operator that needs it, and its source location."""

    def __str__(self) -> str:
        if self.relation == "fits":
            return f"{format_size(self.left)} to be below 2^63"
        relation = self.relation.replace("-", " ")
        return f"{format_size(self.left)} {relation} {format_size(self.right)}{self.cause and f' for {self.cause}'}"


@dataclass(frozen=True, slots=True)
class OperationSpec:
    """An operator that a kernel computes, its block instance and source location, its arithmetic operations, and, for a
    contraction, the dtype of its factors, the wider one, or the one that code may round them to."""

    op: str
    scope: str
    span: Span | None
    flops: Size
    factors: DType | None = None


@dataclass(frozen=True, slots=True)
class NamedValueSpec:
    """A value of the model, by the name that every build of the model gives it. Transposing a tensor by `axes`, if
    there are any, restores the axis order of the model."""

    name: str
    axes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ValueSpec:
    """A tensor that a kernel writes: into an output of the call, else at an offset of the workspace. `operation` is the
    index of the operation that computes it, if there is one; `named` is the value of the model that it holds, if any.
    """

    name: str
    type: TensorType
    operation: int | None = None
    output: int | None = None
    offset: Size = 0
    named: NamedValueSpec | None = None


@dataclass(frozen=True, slots=True)
class CallSpec:
    """One call of a kernel by an entry, with the bytes that it reads and writes."""

    kernel: str
    kind: str
    operations: tuple[OperationSpec, ...]
    bytes: Size
    values: tuple[ValueSpec, ...]

    @property
    def flops(self) -> Size:
        total: Size = 0
        for operation in self.operations:
            total = add(total, operation.flops)
        return total


@dataclass(frozen=True, slots=True)
class EntrySpec:
    """A callable of the artifact. `symbol` is the function that code generation exports for it, `observed` its copy for
    observed calls, if there is one (see ABI.md), and `calls` are the kernel calls of that copy. `checks` names the
    operators whose indices are checked, in the order of the checks. `states` are the positions of its states among
    those of the artifact, and `session_dims` those of its dims that a session binds."""

    name: str
    symbol: str
    arguments: tuple[ArgumentSpec, ...]
    results: tuple[ArgumentSpec, ...]
    dims: tuple[Symbol, ...] = ()
    workspace: Size = 0
    constraints: tuple[Constraint, ...] = ()
    doc: str = ""
    observed: str = ""
    calls: tuple[CallSpec, ...] = ()
    checks: tuple[str, ...] = ()
    states: tuple[int, ...] = ()
    session_dims: tuple[Symbol, ...] = ()


@dataclass(frozen=True, slots=True)
class LevelSpec:
    """Machine code for one CPU variant: the suffix of the entries' symbols, and the required features, by LLVM's names
    of those that `runtime/cpu.h` lists. `cpu` is the CPU name given to the code generator. `untiled` are the kernels
    that were compiled to plain loops, each with the reason. `loops` are lines on the loops of entries: whether each is
    one function, and else the reason."""

    name: str = "any"
    suffix: str = ""
    features: tuple[str, ...] = ()
    cpu: str = ""
    untiled: tuple[tuple[str, str], ...] = ()
    loops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class WeightSpec:
    """A tensor of the weight blob at `offset` bytes. `read` returns its data; it is called once, during writing."""

    name: str
    type: TensorType
    offset: int
    read: Callable[[], Array]

    @property
    def nbytes(self) -> int:
        size = self.type.bytes
        assert isinstance(size, int), (self.name, self.type)
        return size


@dataclass(frozen=True, slots=True)
class DeviceLevelSpec:
    """Code for one architecture of devices: the suffix of its symbols, its compute capability, times ten, and whether
    it runs on that architecture alone. `assembler` is the version of ptxas that made its machine code; empty if it is
    PTX alone. `untiled` are the kernels that a single thread computes, with the reasons."""

    name: str
    suffix: str
    capability: int
    exact: bool
    assembler: str = ""
    untiled: tuple[tuple[str, str], ...] = ()

    @property
    def release(self) -> int:
        """The major version of the assembler, 0 without one. Older drivers do not load its code."""
        return int(self.assembler.partition(".")[0] or 0)


@dataclass(frozen=True, slots=True)
class DeviceEntrySpec:
    """An entry as a device computes it: its symbol and that of its copy for observed calls, both without the suffix of
    a level, and the calls of its kernels."""

    symbol: str
    observed: str
    workspace: Size
    checks: tuple[str, ...] = ()
    calls: tuple[CallSpec, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSpec:
    """The part of an artifact that runs on a device, for each of the `levels`, the most demanding first. `runtime` are
    the C sources that reach the device. Without `weights` of its own, it reads those of the artifact."""

    levels: tuple[DeviceLevelSpec, ...]
    entries: tuple[DeviceEntrySpec, ...]
    runtime: tuple[str, ...]
    weights: tuple[WeightSpec, ...] | None = None

    @property
    def weight_bytes(self) -> int:
        """The size of its own weight blob, a multiple of the alignment."""
        return blob_bytes(self.weights or ())


DEVICE_PREFIX = "device:"
"""The beginning of the names of a device's own weights in an external file."""


def blob_bytes(weights: Iterable[WeightSpec]) -> int:
    return align(max((w.offset + w.nbytes for w in weights), default=0))


@dataclass(frozen=True, slots=True, eq=False)
class ArtifactSpec:
    """The contents of an artifact except machine code, which exists for each of the `levels`, the most demanding
    first. An artifact for a `device` alone has none of them."""

    name: str
    entries: tuple[EntrySpec, ...]
    weights: tuple[WeightSpec, ...] = ()
    triple: str = ""
    compiler_version: str = ""
    source_hash: str = ""
    options: Mapping[str, JsonValue] = field(default_factory=dict)
    levels: tuple[LevelSpec, ...] = (LevelSpec(),)
    states: tuple[StateSpec, ...] = ()
    device: DeviceSpec | None = None
    graphs: tuple[str, ...] = ()
    """The text of the graph as written, and that of the graph of kernels; empty if the artifact carries neither."""

    @property
    def session_dims(self) -> tuple[Symbol, ...]:
        """The dims that a session binds, by name."""
        found = {symbol for state in self.states for symbol in state.type.symbols()}
        return tuple(sorted(found, key=lambda symbol: symbol.name))

    @property
    def session_bytes(self) -> Size:
        """The memory of a session's states."""
        total: Size = 0
        for state in self.states:
            total = add(total, multiply(WEIGHT_ALIGNMENT, ceil_divide(state.type.bytes, WEIGHT_ALIGNMENT)))
        return total

    @property
    def weight_bytes(self) -> int:
        """The size of the weight blob, a multiple of the alignment."""
        return blob_bytes(self.weights)

    @property
    def file_weights(self) -> tuple[WeightSpec, ...]:
        """The contents of an external file: the weights, and after them a device's own."""
        own = () if self.device is None else self.device.weights or ()
        moved = (replace(w, name=DEVICE_PREFIX + w.name, offset=self.weight_bytes + w.offset) for w in own)
        return (*self.weights, *moved)


def align(offset: int, alignment: int = WEIGHT_ALIGNMENT) -> int:
    return -(-offset // alignment) * alignment


def place_weights(tensors: Iterable[tuple[str, TensorType, Array]]) -> tuple[WeightSpec, ...]:
    """Assigns each tensor its offset in the blob, in the order given."""
    placed: list[WeightSpec] = []
    end = 0
    for name, type, data in tensors:
        placed.append(WeightSpec(name, type, align(end), partial(_itself, data)))
        end = placed[-1].offset + placed[-1].nbytes
    return tuple(placed)


def _itself(data: Array) -> Array:
    return data


def c_identifier(name: str) -> str:
    """Returns the name as a C identifier: `embed.one` becomes `embed_one`."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    return text if text and not text[0].isdigit() else f"_{text}"
