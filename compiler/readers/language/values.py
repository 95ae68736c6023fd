"""Values of expressions during elaboration.

Tensors are values of the graph; everything else is known at compile time: numbers, sizes, text, dtypes, tuples, records
of a configuration, blocks and their instances. A part with a reported error is `ERROR`, which its users pass on without
a second report. Nothing here computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from pathlib import Path
from typing import Final, Literal, TypeAlias

from ....dialect.diagnostics import Span
from ....dialect.dims import Poly, Size, format_size
from ....dialect.graph import Value
from ....dialect.lazy_dataclass import dataclass
from ....dialect.types import DType
from . import syntax


class Poison(Enum):
    ERROR = "error"


ERROR: Final[Literal[Poison.ERROR]] = Poison.ERROR


@dataclass(frozen=True, slots=True)
class Record:
    """An object of a configuration file; `label` is its spelling in the source."""

    label: str
    fields: Mapping[str, AnyValue]


@dataclass(frozen=True, slots=True)
class BlockValue:
    """A block, with the file that defines it."""

    block: syntax.Block
    file: FileScope

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BlockValue) and self.block is other.block

    def __hash__(self) -> int:
        return id(self.block)

    @property
    def name(self) -> str:
        return self.block.name.name


@dataclass(frozen=True, slots=True)
class ModuleValue:
    """The name `m` of `import "x.nacre" as m`."""

    file: FileScope


@dataclass(frozen=True, slots=True)
class Hyper:
    """The value of a hyper-parameter, with its source location and spelling."""

    value: AnyValue
    span: Span
    text: str
    by_default: bool = False


@dataclass(frozen=True, slots=True)
class InstancePath:
    """The path of an instance, with `{}` and a count for each array that contains it, and the index in each."""

    pattern: str = ""
    counts: tuple[int, ...] = ()
    indices: tuple[Size, ...] = ()

    def child(self, name: str) -> InstancePath:
        return InstancePath(f"{self.pattern}.{name}" if self.pattern else name, self.counts, self.indices)

    def element(self, count: int, index: Size) -> InstancePath:
        return InstancePath(f"{self.pattern}.{{}}", (*self.counts, count), (*self.indices, index))

    @property
    def scope(self) -> str:
        """The path with known indices in place of their braces; the braces of loops stay."""
        first, *rest = self.pattern.split("{}")
        known = (str(index) if isinstance(index, int) else "{}" for index in self.indices)
        return first + "".join(index + part for index, part in zip(known, rest, strict=True))


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance created by `use`. `path` is None for a block called without `use`, which cannot have parameters."""

    block: BlockValue
    hypers: Mapping[str, Hyper]
    path: InstancePath | None
    span: Span


@dataclass(frozen=True, slots=True)
class InstanceArray:
    """The array of `use layer[n] = ...`: `element` has no index yet. If the hyper-parameters of its elements differ,
    `varying` has those of each, and an element is selected by a number alone."""

    element: Instance
    count: int
    varying: tuple[Mapping[str, Hyper], ...] = ()


Static: TypeAlias = "int | float | bool | str | Poly | DType | Record | BlockValue | ModuleValue | None"
AnyValue: TypeAlias = "Value | Static | Instance | InstanceArray | Poison | tuple[AnyValue, ...]"


class Kind(Enum):
    """The kind of a name, for messages."""

    def __str__(self) -> str:
        return f"{'an' if self.value[0] in 'aio' else 'a'} {self.value}"

    ARGUMENT = "argument"
    HYPER = "hyper-parameter"
    SIZE = "size of an argument"
    PARAMETER = "parameter"
    STATE = "state"
    INSTANCE = "instance"
    LOCAL = "value"
    LOOP = "loop variable"
    DIM = "dim"
    CONSTANT = "constant"
    CONFIG = "config"
    BLOCK = "block"
    MODEL = "model"
    IMPORT = "import"


FIXED = frozenset({Kind.HYPER, Kind.INSTANCE, Kind.LOOP, Kind.DIM, Kind.CONFIG, Kind.BLOCK, Kind.MODEL, Kind.IMPORT})
"""The kinds of names that cannot be assigned another value."""


@dataclass(frozen=True, slots=True)
class Binding:
    value: AnyValue
    kind: Kind
    span: Span


@dataclass(frozen=True, slots=True)
class Given:
    """An evaluated argument of a call."""

    value: AnyValue
    span: Span
    name: syntax.Name | None = None
    parts: tuple[Span, ...] = ()
    """The spans of the elements of a list literal."""


@dataclass(slots=True)
class FileScope:
    """A source file: its tree and the names of its items. `folder` is None if no other file may be read. Names are
    missing without a separate error if the file `lacks_blocks` of a file that cannot be read."""

    name: str
    folder: Path | None
    tree: syntax.File
    names: dict[str, Binding] = field(default_factory=dict)
    lacks_blocks: bool = False


@dataclass(slots=True)
class Frame:
    """The names in scope at a point of the code. `gone` holds names whose loop has ended, for a more specific
    message."""

    file: FileScope
    names: dict[str, Binding] = field(default_factory=dict)
    block: syntax.Block | None = None
    path: InstancePath | None = None
    hypers: Mapping[str, Hyper] = field(default_factory=dict)
    caller: Frame | None = None
    call: Span | None = None
    dots: tuple[Size, ...] | None = None
    gone: dict[str, Span] = field(default_factory=dict)

    def lookup(self, name: str) -> Binding | None:
        return self.names.get(name) or self.file.names.get(name)

    @property
    def scope(self) -> str:
        return self.path.scope if self.path is not None else self.caller.scope if self.caller is not None else ""


def is_number(value: AnyValue) -> bool:
    """Returns whether the value is an int or a float, but not a bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_size(value: AnyValue) -> bool:
    return isinstance(value, (int, Poly)) and not isinstance(value, bool)


def contains_error(value: AnyValue) -> bool:
    return value is ERROR or (isinstance(value, tuple) and any(map(contains_error, value)))


def contains_tensor(value: AnyValue) -> bool:
    return isinstance(value, Value) or (isinstance(value, tuple) and any(map(contains_tensor, value)))


def show(value: AnyValue) -> str:
    """Returns a compile-time value in source notation."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = value if len(value) <= 40 else value[:37] + "..."
        return '"' + text.replace("\n", "\\n") + '"'
    if isinstance(value, tuple):
        shown = [show(v) for v in value[:8]] + (["..."] if len(value) > 8 else [])
        return "(" + ", ".join(shown) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, Poly):
        return format_size(value)
    if isinstance(value, (int, float, DType)) or value is None:
        return str(value)
    return describe(value)


def describe(value: AnyValue) -> str:
    """Describes a value and its kind, for a message."""
    if isinstance(value, Value):
        return f"a tensor {value.type}"
    if isinstance(value, bool):
        return show(value)
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, Poly):
        return f"the size {format_size(value)}"
    if isinstance(value, str):
        return f"the text {show(value)}"
    if isinstance(value, DType):
        return f"the dtype {value}"
    if isinstance(value, tuple):
        return f"{len(value)} values" if contains_tensor(value) else f"the tuple {show(value)}"
    if isinstance(value, Record):
        return f"the record `{value.label}`"
    if isinstance(value, BlockValue):
        return f"the {'model' if isinstance(value.block, syntax.Model) else 'block'} `{value.name}`"
    if isinstance(value, ModuleValue):
        return "an imported file"
    if isinstance(value, Instance):
        return f"an instance of `{value.block.name}`"
    if isinstance(value, InstanceArray):
        return f"an array of {value.count} instances of `{value.element.block.name}`"
    return "None" if value is None else "an error"
