"""Matches the weights that two artifacts store: the same parameter, independent of its packing.

Contractions read weights in panels, whose order is undone here. A weight that passes folded from parameters
(`w.folded`) corresponds to the parameter if it is only transposed, or if both builds have the same options; otherwise
it corresponds to no weight of the other build, and is reported, not compared.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ....dialect.types import DTYPES, Array, dtype_of
from ....runtime.loader import Model
from ...comparison.capture import Point
from ...lower.packing import read_packing
from ...weights import open_checkpoint

_SECTION = b".nacre.weights"
FOLDED = ".folded"
"""The suffix of a parameter's name if passes have folded it into another weight."""
_CHANGES = ("level", "passes", "strict", "precision")
"""The options that determine the folded weights."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A weight with its panels undone: its axes are in the order of the parameter. On each axis in `filled`, the last
    elements may be padding of a panel, fewer than the number that `filled` gives."""

    name: str
    array: Array
    filled: Mapping[int, int] = field(default_factory=dict)

    @property
    def folded(self) -> bool:
        return FOLDED in self.name

    @property
    def parameter(self) -> str:
        return self.name.removesuffix(FOLDED)


class Pair(NamedTuple):
    """A parameter that both builds store, and the admissible error of its elements relative to the largest one."""

    a: Point
    b: Point
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class Weights:
    """The parameters of two builds that can be compared, and descriptions of the others."""

    pairs: tuple[Pair, ...] = ()
    apart: tuple[str, ...] = ()


def pair_weights(paths: tuple[Path, Path], models: tuple[Model, Model]) -> Weights:
    """Matches the parameters of two artifacts. Raises NacreError and DiagnosticError if a file cannot be read."""
    sides = [{w.parameter: w for w in read_weights(p, m)} for p, m in zip(paths, models, strict=True)]
    options = [m.describe()["options"] for m in models]
    alike = all(options[0].get(name) == options[1].get(name) for name in _CHANGES)
    pairs: list[Pair] = []
    apart: list[str] = []
    for name, a in sides[0].items():
        b = sides[1].get(name)
        pair = None if b is None else _pair(a, b, alike)
        if pair is not None:
            pairs.append(pair)
        else:
            apart.append(f"{name} ({'only in A' if b is None else _why(a, b)})")
    apart += [f"{name} (only in B)" for name in sides[1] if name not in sides[0]]
    return Weights(tuple(pairs), tuple(apart))


def read_weights(path: Path, model: Model) -> Iterator[Stored]:
    """Yields the weights of an artifact. Raises DiagnosticError if its weights are in a file that does not exist."""
    reported = model.describe()["weights"]
    tensors = reported["tensors"]
    if reported["placement"] == "external":
        checkpoint = open_checkpoint(Path(f"{path.resolve()}.safetensors"))
        arrays = {t["name"]: checkpoint.read(t["name"]) for t in tensors}
    elif tensors:
        blob = np.memmap(path, np.uint8, "r", _find_section(path), (reported["bytes"],))
        arrays = {t["name"]: _view(blob, t) for t in tensors}
    for tensor in tensors:
        name, packing = read_packing(tensor["name"])
        array = arrays[tensor["name"]]
        if packing is None:
            yield Stored(name, array)
        else:
            filled = {packing.lane: packing.width, packing.summed[-1]: packing.group}
            yield Stored(name, packing.unpacked(array), filled)


def _view(blob: Array, tensor: Mapping[str, object]) -> Array:
    dtype, shape, offset = DTYPES[str(tensor["dtype"])].numpy, tensor["shape"], tensor["offset"]
    assert isinstance(shape, list) and isinstance(offset, int), tensor
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return blob[offset : offset + size].view(dtype).reshape(shape)


def _find_section(path: Path) -> int:
    """Returns the file offset of the embedded weights of an artifact, which is a 64-bit ELF file."""
    with path.open("rb") as file:
        head = file.read(64)
        table: int = struct.unpack_from("=Q", head, 40)[0]
        size, count, names = struct.unpack_from("=HHH", head, 58)
        file.seek(table)
        sections: list[tuple[int, ...]] = [struct.unpack_from("=IIQQQQ", file.read(size)) for _ in range(count)]
        *_, start, length = sections[names]
        file.seek(start)
        words = file.read(length)
    return next(s[4] for s in sections if words[s[0] :].startswith(_SECTION + b"\0"))


def _pair(a: Stored, b: Stored, alike: bool) -> Pair | None:
    types = [dtype_of(side.array) for side in (a, b)]
    if types[0] != types[1] and not all(dtype.is_float for dtype in types):
        return None
    # A weight in lower precision is rounded to the nearest value.
    share = max(dtype.epsilon for dtype in types) if types[0] != types[1] or a.folded or b.folded else 0.0
    for axes in _orders(a.array.ndim, moved=a.folded != b.folded):
        x, y = _trimmed(a, b, axes)
        if x.shape != y.shape:
            continue
        if a.folded != b.folded or (a.folded and not alike):
            far = np.abs(x.astype(np.float64) - y.astype(np.float64)) if all(t.is_float for t in types) else x != y
            if np.any(far > share * np.max(np.abs(x.astype(np.float64)), initial=0)):
                continue
        wide = np.promote_types(x.dtype, y.dtype) if types[0] != types[1] else x.dtype
        name = f"parameter {a.parameter}"
        return Pair(Point(name, x.astype(wide)), Point(name, y.astype(wide)), share)
    return None


def _orders(rank: int, *, moved: bool) -> Iterator[tuple[int, ...]]:
    return permutations(range(rank)) if moved else iter([tuple(range(rank))])


def _trimmed(a: Stored, b: Stored, axes: Sequence[int]) -> tuple[Array, Array]:
    """Returns both in A's axis order, without panel padding; `axes` are the corresponding axes of B."""
    if b.array.ndim != len(axes):
        return a.array, b.array
    x, y = a.array, b.array.transpose(axes)
    filled = [*a.filled.items(), *((axes.index(axis), size) for axis, size in b.filled.items())]
    kept = {
        axis: min(x.shape[axis], y.shape[axis]) for axis, size in filled if abs(x.shape[axis] - y.shape[axis]) < size
    }
    chosen = tuple(slice(kept.get(axis)) for axis in range(x.ndim))
    return x[chosen], y[chosen]


def _why(a: Stored, b: Stored) -> str:
    types = [dtype_of(side.array) for side in (a, b)]
    if types[0] != types[1]:
        return f"{types[0]} and {types[1]}"
    return "computed from others" if a.folded or b.folded else f"{list(a.array.shape)} and {list(b.array.shape)}"
