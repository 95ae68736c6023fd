"""Samples: the inputs on which a model is measured, read from files and grouped into calls.

A `.npz` or `.safetensors` file holds an array for each argument, by its name; a folder holds several such files, or a
`.npy` file for each argument. The first axis counts samples: it is the first axis of the arguments if that has the same
size for all of them, else an additional leading axis. The optional array `labels` holds the correct class of each
sample. Uncompressed arrays are memory-mapped and never read as a whole.

    x: f32[B, 3]   array [100, 3]      calls with 32, 32, 32 and 4 samples
                                       with B in 10..100: 4 calls with 25 samples each
    x: f32[3]      array [100, 3]      100 calls with one sample each
    x: f32[B, 3]   array [100, 8, 3]   100 calls with B = 8, each one sample
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ...dialect.dims import INFINITY
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops.support.conversion import cast_array
from ...dialect.types import DTYPES, Array, DType, dtype_of
from ...dialect.wrapping import counted
from ..weights import Checkpoint, open_tensors

LABELS = "labels"
"""The array that holds the correct class of each sample."""
MOST = 32
"""The default number of samples of one call: all named values of a call are in memory at once."""
_FILES = (".npz", ".safetensors")


@dataclass(frozen=True, slots=True)
class Batch:
    """The inputs of one call in the order of its arguments, and the number of samples in it."""

    inputs: tuple[Array, ...]
    count: int
    labels: Array | None


@dataclass(frozen=True, slots=True)
class _Argument:
    """An argument as described by an artifact: `lead` is its first size, a multiple of `multiple` from `least` to
    `most`."""

    name: str
    type: str
    dtype: DType
    rank: int
    lead: object
    least: int
    most: int
    multiple: int


@dataclass(frozen=True, slots=True)
class _Cut:
    """The split of a file's arrays into calls: along an additional leading axis, or along the first axis of the
    arguments into pieces of `size`; or the arrays form a single call. Pieces that are `even` differ by at most one
    `unit`."""

    samples: int
    size: int
    in_front: bool = False
    whole: bool = False
    even: bool = False
    unit: int = 1

    @property
    def calls(self) -> int:
        return -(-self.samples // self.size)

    def pieces(self) -> Iterator[tuple[int, int]]:
        """Yields the first sample and the number of samples of each call."""
        units = self.samples // self.unit
        for call in range(self.calls):
            if self.even:
                start, end = (units * number // self.calls * self.unit for number in (call, call + 1))
            else:
                start, end = call * self.size, min((call + 1) * self.size, self.samples)
            yield start, end - start


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of `path`, for an entry. Each iteration reads them from the beginning, in the same order."""

    path: Path
    files: tuple[Mapping[str, Checkpoint], ...]
    arguments: tuple[_Argument, ...]
    cuts: tuple[_Cut, ...]

    @property
    def count(self) -> int:
        return sum(cut.samples for cut in self.cuts)

    @property
    def calls(self) -> int:
        return sum(cut.calls for cut in self.cuts)

    @property
    def labelled(self) -> bool:
        return all(LABELS in file for file in self.files)

    def __iter__(self) -> Iterator[Batch]:
        for file, cut in zip(self.files, self.cuts, strict=True):
            arrays = [file[a.name].read(a.name) for a in self.arguments]
            labels = file[LABELS].read(LABELS) if self.labelled else None
            for start, count in cut.pieces():
                inputs = tuple(
                    _convert(self.path, a, _piece(array, a, cut, start, count))
                    for a, array in zip(self.arguments, arrays, strict=True)
                )
                right = labels if labels is None or cut.whole else labels[start : start + count]
                yield Batch(inputs, count, None if right is None else right.reshape(-1))


def open_samples(path: Path, entry: Mapping[str, Any], most: int = MOST) -> Samples:
    """Opens the samples of a file or folder for an entry described by its artifact, with at most `most` samples in a
    call, unless the range of the dim requires more. Reads only headers. Raises DiagnosticError if the array of an
    argument is missing or does not fit, or if the samples cannot be divided into calls that the dim allows."""
    arguments = tuple(_read_argument(a, entry["dims"]) for a in entry["arguments"])
    if not arguments:
        raise _error("no-arguments", f"`{entry['name']}` takes no arguments: there is nothing to sample")
    files = tuple(_open_files(path, arguments))
    return Samples(path, files, arguments, tuple(_plan(path, file, arguments, most) for file in files))


def _read_argument(described: Mapping[str, Any], dims: Sequence[Mapping[str, Any]]) -> _Argument:
    shape = described["shape"]
    lead = shape[0] if shape else None
    dim = next((d for d in dims if d["name"] == lead), None)
    least, most, multiple = (lead, lead, 1) if isinstance(lead, int) else (0, INFINITY, 1)
    if dim is not None:
        least, multiple = dim["low"], dim["multiple"]
        most = INFINITY if dim["high"] is None else dim["high"]
    dtype = DTYPES[described["dtype"]]
    return _Argument(described["name"], described["type"], dtype, len(shape), lead, least, most, multiple)


def _open_files(path: Path, arguments: Sequence[_Argument]) -> Iterator[Mapping[str, Checkpoint]]:
    if not path.is_dir():
        yield _by_name(path, [open_tensors(path)], arguments)
        return
    several = sorted(p for p in path.iterdir() if p.suffix in _FILES)
    single = sorted(path.glob("*.npy"))
    if bool(several) == bool(single):
        what = "both, arrays in `.npy` files and files of several" if single else "no `.npz` and no `.npy` file"
        raise _error("sample-folder", f"the folder `{path}` holds {what}")
    if single:
        yield _by_name(path, [open_tensors(p) for p in single], arguments)
    for file in several:
        yield _by_name(file, [open_tensors(file)], arguments)


def _by_name(path: Path, files: Sequence[Checkpoint], arguments: Sequence[_Argument]) -> Mapping[str, Checkpoint]:
    found = {name: file for file in files for name in file.names()}
    missing = [a for a in arguments if a.name not in found]
    if missing:
        wanted = ", ".join(f"`{a.name}` ({a.type})" for a in missing)
        holds = ", ".join(f"`{name}`" for name in found) or "nothing"
        raise _error(
            "sample-missing",
            f"`{path}` has no array for {wanted}",
            f"it holds {holds}; arrays are named as the arguments of the model",
        )
    return found


def _plan(path: Path, file: Mapping[str, Checkpoint], arguments: Sequence[_Argument], most: int) -> _Cut:
    shapes = {a.name: file[a.name].info(a.name)[1] for a in arguments}
    in_front = all(len(shapes[a.name]) == a.rank + 1 for a in arguments)
    wrong = [a for a in arguments if not in_front and len(shapes[a.name]) != a.rank]
    if wrong:
        a = wrong[0]
        raise _error(
            "sample-shape",
            f"`{a.name}` of `{path}` has the shape {list(shapes[a.name])}, which is no {a.type}",
            "arrays have the rank of their arguments, or all have one additional leading axis that counts samples",
        )
    leading = [a for a in arguments if in_front or a.rank > 0]
    firsts = {shapes[a.name][0] for a in leading}
    lead = leading[0].lead if leading else None
    # A first size of the arguments that is an expression, such as 2*B, cannot be split.
    cuttable = isinstance(lead, int) or (isinstance(lead, str) and lead.isidentifier())
    if not in_front and (len({a.lead for a in leading}) != 1 or len(firsts) != 1 or not cuttable):
        return _Cut(1, 1, whole=True)
    if len(firsts) != 1:
        sizes = ", ".join(f"{shapes[a.name][0]} of `{a.name}`" for a in leading)
        raise _error("sample-shape", f"the arrays of `{path}` have different numbers of samples: {sizes}")
    (samples,) = firsts
    if samples == 0:
        raise _error("sample-shape", f"the arrays of `{path}` hold no sample")
    cut = _Cut(samples, 1, in_front=True) if in_front else _divided(path, samples, leading[0], most)
    _check_labels(path, file, cut)
    return cut


def _divided(path: Path, samples: int, argument: _Argument, most: int) -> _Cut:
    """Divides samples into calls that the first size of the argument allows: full calls and a smaller last one, or, if
    that would be too small, calls of nearly the same size."""
    unit, least = argument.multiple, max(-(-argument.least // argument.multiple), 1)
    size = max(min(most, argument.most) // unit, least) * unit
    cut, rest = _Cut(samples, size), samples % size
    if samples % unit == 0 and (rest == 0 or rest >= least * unit):
        return cut
    units = samples // unit
    calls = min(cut.calls, units // least)
    if samples % unit or calls == 0 or -(-units // calls) * unit > argument.most:
        raise _error(
            "sample-shape",
            f"{counted(samples, 'sample')} of `{path}` cannot be divided into calls of `{argument.name}`, a "
            f"{argument.type}",
            f"its first size is {_range(argument)}",
        )
    return _Cut(samples, -(-units // calls) * unit, even=True, unit=unit)


def _range(argument: _Argument) -> str:
    if argument.least == argument.most:
        return str(argument.least)
    above = f"at least {argument.least}"
    numbers = above if argument.most >= INFINITY else f"{argument.least} to {argument.most}"
    return numbers if argument.multiple == 1 else f"{numbers}, a multiple of {argument.multiple}"


def _check_labels(path: Path, file: Mapping[str, Checkpoint], cut: _Cut) -> None:
    if LABELS not in file:
        return
    dtype, shape = file[LABELS].info(LABELS)
    if dtype is None or not dtype.is_integer or shape[:1] != (cut.samples,):
        raise _error(
            "sample-labels",
            f"`{LABELS}` of `{path}` is {dtype}{list(shape)}",
            f"its first axis has one or more integers for each of the {cut.samples} samples",
        )


def _piece(array: Array, argument: _Argument, cut: _Cut, start: int, count: int) -> Array:
    if cut.in_front:
        return np.asarray(array[start])
    return array if cut.whole or argument.rank == 0 else array[start : start + count]


def _convert(path: Path, argument: _Argument, array: Array) -> Array:
    """Converts the array to the argument's dtype: floats may be rounded, integers must fit."""
    given, wanted = dtype_of(array), argument.dtype
    if given != wanted:
        if given.is_float and not wanted.is_float:
            raise _unfit(path, argument, given, "floats are not converted to integers")
        converted = cast_array(array, wanted)
        if not given.is_float and not np.array_equal(converted.astype(array.dtype), array):
            raise _unfit(path, argument, given, "some of its values do not fit this dtype")
        array = converted
    return np.ascontiguousarray(array).reshape(array.shape)


def _unfit(path: Path, argument: _Argument, given: DType, why: str) -> DiagnosticError:
    return _error("sample-dtype", f"`{argument.name}` of `{path}` is {given} and cannot be {argument.dtype}: {why}")


def _error(code: str, message: str, help: str = "") -> DiagnosticError:
    return DiagnosticError([Diagnostic(code, message, help=help)])
