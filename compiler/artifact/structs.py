"""The structs of `tables.h` and `cuda/code.h` that an artifact's tables consist of, and their layout in memory.

A struct is a tuple of named fields, in the order of the header. Addresses take as many bytes as the machine has; every
field is aligned to its size, as in C on all machines that artifacts are made for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from ...dialect.lazy_dataclass import dataclass

Cell = int | str | None
"""The value of a field: a number, or the symbol whose address it is. None is the null address."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number of so many bytes, or an address, whose `bytes` are 0."""

    bytes: int

    def width(self, address: int) -> int:
        return self.bytes or address

    def alignment(self, address: int) -> int:
        return self.bytes or address

    def cells(self, value: object, address: int) -> Iterator[tuple[int, Cell]]:
        """Yields the bytes and the value of each number and address of a value of this type."""
        assert isinstance(value, (str, type(None)) if self.bytes == 0 else int), (self, value)
        yield self.width(address), value


I32, I64, ADDRESS = Scalar(4), Scalar(8), Scalar(0)


@dataclass(frozen=True, slots=True, eq=False)
class Struct:
    """A struct, by its name in C. A value is the mapping of all its fields."""

    name: str
    fields: Mapping[str, Kind]

    def alignment(self, address: int) -> int:
        return _lay_out(self, address)[2]

    def width(self, address: int) -> int:
        return _lay_out(self, address)[1]

    def offsets(self, address: int) -> tuple[int, ...]:
        """Returns the offset of each field; an address takes `address` bytes."""
        return _lay_out(self, address)[0]

    def cells(self, value: object, address: int) -> Iterator[tuple[int, Cell]]:
        assert isinstance(value, Mapping) and value.keys() == self.fields.keys(), (self.name, value)
        end = 0
        for (name, kind), offset in zip(self.fields.items(), self.offsets(address), strict=True):
            if offset > end:
                yield offset - end, 0
            yield from kind.cells(value[name], address)
            end = offset + kind.width(address)
        if self.width(address) > end:
            yield self.width(address) - end, 0


Kind = Scalar | Struct
Row = Mapping[str, object]
"""The value of a struct."""


@cache
def _lay_out(struct: Struct, address: int) -> tuple[tuple[int, ...], int, int]:
    """Returns the offsets of the fields, the size and the alignment."""
    offsets, end, alignment = [], 0, 1
    for kind in struct.fields.values():
        offsets.append(_align(end, kind.alignment(address)))
        end = offsets[-1] + kind.width(address)
        alignment = max(alignment, kind.alignment(address))
    return tuple(offsets), _align(end, alignment), alignment


def _align(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


SIZE = Struct("nacre_size", {"constant": I64, "formula": ADDRESS, "text": ADDRESS})
ARGUMENT = Struct("nacre_argument", {"name": ADDRESS, "type": ADDRESS, "shape": ADDRESS, "dtype": I32, "rank": I32})
DIM = Struct("nacre_dim", {"name": ADDRESS, "low": I64, "high": I64, "multiple": I64})
BINDING = Struct(
    "nacre_binding",
    {"dim": I32, "argument": I32, "axis": I32, "rest": SIZE, "divisor": SIZE, "factor": I64},
)
CONSTRAINT = Struct("nacre_constraint", {"left": SIZE, "right": SIZE, "text": ADDRESS, "relation": I32})
LEVEL = Struct("nacre_level", {"name": ADDRESS, "features": I64})
STATE = Struct("nacre_state", {"tensor": ARGUMENT, "initial": I64, "initial_bytes": I64})
ENTRY = Struct(
    "nacre_entry",
    {
        "name": ADDRESS,
        "kernels": ADDRESS,
        "observed_kernels": ADDRESS,
        "arguments": ADDRESS,
        "results": ADDRESS,
        "dims": ADDRESS,
        "bindings": ADDRESS,
        "constraints": ADDRESS,
        "checks": ADDRESS,
        "workspace": SIZE,
        "argument_count": I32,
        "result_count": I32,
        "dim_count": I32,
        "constraint_count": I32,
        "states": ADDRESS,
        "state_count": I32,
        "first_check": I32,
    },
)
ARTIFACT = Struct(
    "nacre_artifact",
    {
        "description": ADDRESS,
        "calls": ADDRESS,
        "levels": ADDRESS,
        "entries": ADDRESS,
        "level_count": I32,
        "entry_count": I32,
        "weights": ADDRESS,
        "weight_bytes": I64,
        "header_bytes": I64,
        "header_hash": I64,
        "file_bytes": I64,
        "states": ADDRESS,
        "session_dims": ADDRESS,
        "state_count": I32,
        "session_dim_count": I32,
        "check_count": I32,
        "known_count": I32,
        "known_levels": ADDRESS,
    },
)
DEVICE_LEVEL = Struct(
    "nacre_device_level", {"name": ADDRESS, "capability": I32, "exact": I32, "images": ADDRESS, "release": I32}
)
DEVICE_ENTRY = Struct(
    "nacre_device_entry", {"kernels": ADDRESS, "observed_kernels": ADDRESS, "checks": ADDRESS, "workspace": SIZE}
)
DEVICE_CODE = Struct(
    "nacre_device_code",
    {
        "levels": ADDRESS,
        "entries": ADDRESS,
        "level_count": I32,
        "weights": ADDRESS,
        "weight_bytes": I64,
        "weight_offset": I64,
    },
)
STRUCTS = (
    *(SIZE, ARGUMENT, DIM, BINDING, CONSTRAINT, LEVEL, STATE, ENTRY, ARTIFACT),
    *(DEVICE_LEVEL, DEVICE_ENTRY, DEVICE_CODE),
)
