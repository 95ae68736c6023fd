"""Reads safetensors files and their sharded form, an index that names a file for each tensor.

The rules are those of https://huggingface.co/docs/safetensors, each with its own message: a length, a JSON header, and
data that the tensors cover without overlap or gap. This module parses headers itself because the safetensors package
provides neither offsets for mapping nor a rejection reason for each tensor.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ...dialect.types import DTYPES, DType
from .checkpoint import Checkpoint, StoredTensor, broken, checkpoint_error

_MOST_HEADER_BYTES = 100_000_000
"""The limit of the format's reference reader; a longer header indicates a damaged length."""


def name_of(dtype: DType) -> str:
    """Returns the format's name of a dtype."""
    return dtype.name.upper().replace("F8E", "F8_E")


_DTYPES = {name_of(dtype): dtype for dtype in DTYPES.values()}
_BITS = {name: dtype.bytes * 8 for name, dtype in _DTYPES.items()} | {
    "F8_E8M0": 8,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F4": 4,
    "C64": 64,
}


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result: dict[str, object] = {}
    for name, value in pairs:
        if name in result:
            raise ValueError(f"`{name}` occurs twice")
        result[name] = value
    return result


def load_json(path: Path, data: bytes, what: str) -> dict[str, object]:
    """Parses a JSON object. Raises DiagnosticError for any other value."""
    try:
        value: object = json.loads(data.decode("utf-8"), object_pairs_hook=_no_duplicates)
    except UnicodeDecodeError:
        raise broken(path, f"{what} is not UTF-8") from None
    except RecursionError:
        raise broken(path, f"{what} is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise broken(path, f"{what} is not JSON: {error.msg} at character {error.pos}") from None
    except ValueError as error:
        raise broken(path, f"{what}: {error}") from None
    if not isinstance(value, dict):
        raise broken(path, f"{what} is not a JSON object")
    return value


def _sizes(value: object) -> tuple[int, ...] | None:
    """Returns the sizes if the value is a list of non-negative integers, else None."""
    if not isinstance(value, list) or not all(type(x) is int and x >= 0 for x in value):
        return None
    return tuple(value)


def _read_tensor(path: Path, name: str, value: object, data: int, size: int) -> tuple[StoredTensor, int, int]:
    """Reads one tensor of the header, and returns it with its begin and end in the data."""
    if not isinstance(value, dict):
        raise broken(path, f"tensor `{name}` is not described by an object")
    stored_as, shape, offsets = value.get("dtype"), _sizes(value.get("shape")), _sizes(value.get("data_offsets"))
    if not isinstance(stored_as, str):
        raise broken(path, f"tensor `{name}` has no dtype")
    if shape is None:
        raise broken(path, f"the shape of tensor `{name}` is not a list of sizes")
    if offsets is None or len(offsets) != 2:
        raise broken(path, f"the data_offsets of tensor `{name}` are not two offsets")
    start, end = offsets
    if start > end or end > size:
        raise broken(path, f"tensor `{name}` has the offsets {start}..{end}, outside the data of {size} bytes")
    bits = _BITS.get(stored_as)
    if bits is not None:
        for n in shape:
            bits *= n
        if bits != 8 * (end - start):
            type_text = f"{stored_as} {list(shape)}"
            raise broken(path, f"tensor `{name}` is {type_text}, {bits / 8:g} bytes, but takes up {end - start}")
    return StoredTensor(path, _DTYPES.get(stored_as), stored_as, shape, data + start), start, end


def read_safetensors(path: Path) -> Checkpoint:
    size = path.stat().st_size
    with path.open("rb") as file:
        if size < 8:
            raise broken(path, f"it has {size} bytes, fewer than the length of a header")
        length = int.from_bytes(file.read(8), "little")
        if length > min(size - 8, _MOST_HEADER_BYTES):
            raise broken(path, f"its header is said to have {length} bytes, the file has {size}")
        header = load_json(path, file.read(length), "the header")
    header.pop("__metadata__", None)
    data, tensors = 8 + length, {}
    extents: list[tuple[int, int, str]] = []
    for name, value in header.items():
        tensors[name], start, end = _read_tensor(path, name, value, data, size - data)
        extents.append((start, end, name))
    position, previous = 0, "the header"
    for start, end, name in sorted(extents):
        if start < position:
            raise broken(path, f"tensor `{name}` overlaps {previous}")
        if start > position:
            raise broken(path, f"{start - position} bytes before tensor `{name}` belong to no tensor")
        position, previous = end, f"tensor `{name}`"
    if position != size - data:
        raise broken(path, f"the tensors end at {position} of {size - data} bytes of data")
    return Checkpoint(path, {name: t for name, t in tensors.items() if not name.startswith("nacre.padding.")})


def _shard_files(path: Path) -> Mapping[str, str]:
    index = load_json(path, path.read_bytes(), "the index")
    files = index.get("weight_map")
    if not isinstance(files, dict):
        raise broken(path, "it has no `weight_map`")
    for name, file in files.items():
        if not isinstance(file, str):
            raise broken(path, f"the weight_map of `{name}` is not a file name")
        if PurePosixPath(file).name != file:
            raise broken(path, f"the shard `{file}` of `{name}` is not a file of the same folder")
    return files


def read_sharded(path: Path, read: Callable[[Path], Checkpoint] = read_safetensors) -> Checkpoint:
    """Opens the tensors of all files that an index names; `read` opens one file."""
    files = _shard_files(path)
    names = dict.fromkeys(files.values())
    missing = [name for name in names if not (path.parent / name).is_file()]
    if missing:
        errors = [Diagnostic("checkpoint-missing", f"the shard `{path.parent / name}` is missing") for name in missing]
        raise DiagnosticError(errors)
    shards = {name: read(path.parent / name) for name in names}
    tensors: dict[str, StoredTensor] = {}
    for name, file in files.items():
        if name not in shards[file]:
            raise checkpoint_error(
                "checkpoint-broken", f"`{path}` says that tensor `{name}` is in `{file}`, which does not contain it"
            )
        tensors[name] = shards[file].tensors[name]
    return Checkpoint(path, tensors)
