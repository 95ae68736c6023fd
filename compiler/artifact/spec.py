"""The contents of an artifact: entries, their arguments, dims and workspace, and the weights with their offsets.

Code generation creates these records; the assembler converts them to tables, the header and the loaders.
`check_artifact` rejects artifacts that cannot be called, such as one with a dim that no argument determines. This
module writes no file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import gcd
from typing import Literal

from ...dialect.diagnostics import Diagnostic, Span
from ...dialect.dims import (
    Monomial,
    Poly,
    Size,
    Symbol,
    add,
    bounds,
    ceil_divide,
    divide_exactly,
    format_size,
    multiply,
    symbols,
)
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

    def __str__(self) -> str:
        if self.relation == "fits":
            return f"{format_size(self.left)} to be below 2^63"
        relation = self.relation.replace("-", " ")
        return f"{format_size(self.left)} {relation} {format_size(self.right)}"


@dataclass(frozen=True, slots=True)
class OperationSpec:
    """An operator that a kernel computes, its block instance and source location, its arithmetic operations, and, for a
    contraction, the dtype of its factors, the wider one."""

    op: str
    scope: str
    span: Span | None
    flops: Size
    factors: DType | None = None


@dataclass(frozen=True, slots=True)
class PointSpec:
    """A value of the model, by the name that every build of the model gives it. Transposing a tensor by `axes`, if
    there are any, restores the axis order of the model."""

    name: str
    axes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ValueSpec:
    """A tensor that a kernel writes: into an output of the call, else at an offset of the workspace. `operation` is the
    index of the operation that computes it, if there is one; `point` is the value of the model that it holds, if any.
    """

    name: str
    type: TensorType
    operation: int | None = None
    output: int | None = None
    offset: Size = 0
    point: PointSpec | None = None


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
    it runs on that architecture alone."""

    name: str
    suffix: str
    capability: int
    exact: bool


@dataclass(frozen=True, slots=True)
class DeviceEntrySpec:
    """An entry as a device computes it: its symbol, without the suffix of a level, and the calls of its kernels."""

    symbol: str
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


@dataclass(frozen=True, slots=True)
class Binding:
    """The formula of a dim in a call: `dim == (axis - rest) / divisor * factor` for one axis of one argument.

    For `x: f32[B, 2*T + 1]` the bindings are B == axis 0 and T == (axis 1 - 1) / 2.
    """

    dim: Symbol
    argument: int
    axis: int
    rest: Size
    divisor: Size
    factor: int


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


def _split(size: Size, symbol: Symbol) -> tuple[Size, Size] | None:
    """Returns (coefficient, rest) with `size == coefficient * unit of symbol + rest`, or None if it is not linear."""
    coefficient: Size = 0
    rest: Size = 0
    terms: tuple[tuple[Monomial, int], ...] = size.terms if isinstance(size, Poly) else (((), size),)
    for monomial, factor in terms:
        others = tuple((a, p) for a, p in monomial if a != symbol)
        part: Size = Poly(((others, factor),)) if others else factor
        if symbol in symbols(part) or ((symbol, 1) not in monomial and len(others) != len(monomial)):
            return None
        if len(others) == len(monomial):
            rest = add(rest, part)
        else:
            coefficient = add(coefficient, part)
    return (coefficient, rest) if coefficient != 0 else None


def _bind(size: Size, symbol: Symbol, argument: int, axis: int, known: set[Symbol]) -> Binding | None:
    split = _split(size, symbol)
    if split is None:
        return None
    coefficient, rest = split
    if not symbols(coefficient) | symbols(rest) <= known or bounds(coefficient)[0] <= 0:
        return None
    divisor = divide_exactly(coefficient, symbol.multiple)
    if divisor is not None:
        return Binding(symbol, argument, axis, rest, divisor, 1)
    common = gcd(coefficient, symbol.multiple) if isinstance(coefficient, int) else 1
    reduced = coefficient // common if isinstance(coefficient, int) else coefficient
    return Binding(symbol, argument, axis, rest, reduced, symbol.multiple // common)


def bind_dims(entry: EntrySpec) -> tuple[tuple[Binding, ...], tuple[Symbol, ...]]:
    """Returns the bindings of the dims to argument shapes, in a solvable order, and the dims without a binding. A
    session binds its dims before.

    An axis that is the dim itself is preferred to an expression of it.
    """
    axes = [(a, x, size) for a, argument in enumerate(entry.arguments) for x, size in enumerate(argument.type.shape)]
    found: dict[Symbol, Binding] = {}
    given = set(entry.session_dims)
    for direct in (True, False):
        progress = True
        while progress:
            progress = False
            for symbol in entry.dims:
                if symbol in found or symbol in given:
                    continue
                for argument, axis, size in axes:
                    if direct and size != symbol.size:
                        continue
                    binding = _bind(size, symbol, argument, axis, set(found) | given)
                    if binding is not None:
                        found[symbol] = binding
                        progress = True
                        break
    return tuple(found.values()), tuple(s for s in entry.dims if s not in found and s not in given)


def _duplicates(names: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    twice: dict[str, None] = {}
    for name in names:
        if name in seen:
            twice[name] = None
        seen.add(name)
    return list(twice)


def check_entry(entry: EntrySpec) -> tuple[Diagnostic, ...]:
    """Returns the errors that would make the entry impossible to call."""
    errors: list[Diagnostic] = []
    for symbol in bind_dims(entry)[1]:
        places = [
            f"{a.name}: {a.type}" for a in entry.arguments if any(symbol in symbols(size) for size in a.type.shape)
        ]
        if places:
            message = f"entry `{entry.name}`: no argument determines dim `{symbol.name}`: {', '.join(places)}"
            help_text = f"make one axis `{symbol.name}`, or a multiple of it plus what other axes determine"
        else:
            message = f"entry `{entry.name}`: dim `{symbol.name}` occurs in the shape of no argument"
            help_text = f"give an argument an axis `{symbol.name}`, or make it an integer"
        errors.append(Diagnostic("unbound-dim", message, help=help_text))
    return tuple(errors)


def check_artifact(spec: ArtifactSpec) -> tuple[Diagnostic, ...]:
    """Returns the errors that a user can cause; compiler errors are asserted."""
    errors = [error for entry in spec.entries for error in check_entry(entry)]
    for name in _duplicates(entry.name for entry in spec.entries):
        errors.append(Diagnostic("duplicate-name", f"two entries are named `{name}`"))
    for entry in spec.entries:
        for name in _duplicates(a.name for a in (*entry.arguments, *entry.results)):
            message = f"entry `{entry.name}`: two arguments or results are named `{name}`"
            errors.append(Diagnostic("duplicate-name", message))
        sizes = [s for a in (*entry.arguments, *entry.results) for s in a.type.shape]
        sizes += [entry.workspace, *(s for c in entry.constraints for s in (c.left, c.right))]
        unknown = set().union(*map(symbols, sizes)) - set(entry.dims)
        assert not unknown, (entry.name, unknown)
    assert spec.entries, spec.name
    end = 0
    for weight in sorted(spec.weights, key=lambda w: (w.offset, w.nbytes)):
        assert weight.offset >= end and weight.offset % WEIGHT_ALIGNMENT == 0, (weight.name, weight.offset, end)
        end = weight.offset + weight.nbytes
    return tuple(errors)
