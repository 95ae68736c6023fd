"""Opens files of `torch.save`, `.pt`, `.pth`, `.ckpt` and `.bin`, without PyTorch and without running code of the file.

There are two containers of one pickle, and both keep storages as plain bytes that can be mapped:

    zip archive    NAME/data.pkl, NAME/byteorder, NAME/data/KEY for each storage; nothing is compressed
    before 1.6     pickles of a magic number, a version, facts of the machine, the object, and the storages' keys;
                   then each storage: its number of elements in 8 bytes, and its bytes

The pickle may hold dicts, lists, numbers and tensors. Tensors in nested dicts have names with dots. A dict `state_dict`
in the file, as Lightning writes it beside the optimiser, is the checkpoint. A tensor is a view of a storage, which
several tensors may share. Quantized and sparse tensors, modules, and any other class are refused by their names.
"""

from __future__ import annotations

import mmap
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import (
    BF16,
    BOOL,
    F8E4M3,
    F8E5M2,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Array,
    DType,
    dtype_of,
)
from .checkpoint import Checkpoint, StoredTensor, broken, checkpoint_error
from .pickle_machine import Global, PickleError, RefusedGlobalError, unpickle
from .pickled_numpy import NUMPY_GLOBALS, PickledArray
from .safetensors_file import read_sharded
from .zip_members import data_offset

MOST_PICKLE_BYTES = 1 << 26
_MOST_TENSORS, _MOST_DEPTH, _MOST_AXES, _MOST_NAME = 1 << 20, 32, 64, 4096
_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001


@dataclass(frozen=True, slots=True)
class _Kind:
    """A dtype of PyTorch: its name, its bytes, and its equivalent, if there is one."""

    name: str
    bytes: int
    dtype: DType | None = None


_KINDS = {
    kind.name: kind
    for kind in (
        *(_Kind(f"float{d.bits}", d.bytes, d) for d in (F16, F32, F64)),
        *(_Kind(f"int{d.bits}", d.bytes, d) for d in (I8, I16, I32, I64)),
        *(_Kind(f"uint{d.bits}", d.bytes, d) for d in (U8, U16, U32, U64)),
        _Kind("bfloat16", 2, BF16),
        _Kind("bool", 1, BOOL),
        _Kind("float8_e4m3fn", 1, F8E4M3),
        _Kind("float8_e5m2", 1, F8E5M2),
        *(_Kind(name, 1) for name in ("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")),
        *(_Kind(f"complex{bits}", bits // 8) for bits in (32, 64, 128)),
    )
}
_UNTYPED = _Kind("bytes", 1)
_STORAGES = {
    **{f"torch.{name}Storage": _KINDS[dtype] for name, dtype in {
        "Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64",
        "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool",
        "ComplexFloat": "complex64", "ComplexDouble": "complex128",
    }.items()},
    "torch.storage.UntypedStorage": _UNTYPED,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Storage:
    key: str
    kind: _Kind
    count: int


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A view of a storage; `offset` and `strides` count elements."""

    storage: _Storage
    kind: _Kind
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _sizes(value: Any, what: str) -> tuple[int, ...]:
    if not isinstance(value, tuple | list) or not all(type(n) is int and 0 <= n < 1 << 62 for n in value):
        raise PickleError(f"the {what} of a tensor is not a tuple of sizes")
    if len(value) > _MOST_AXES:
        raise PickleError(f"the {what} of a tensor has {len(value)} axes")
    return tuple(value)


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> _Tensor:
    if not isinstance(storage, _Storage):
        raise PickleError("a tensor has no storage")
    return _view(storage, storage.kind, offset, shape, strides)


def _tensor_of_dtype(
    storage: Any, offset: Any, shape: Any, strides: Any, gradient: Any, hooks: Any, dtype: Any, *rest: Any
) -> _Tensor:
    kind = _KINDS.get(dtype.name.removeprefix("torch.")) if isinstance(dtype, Global) else None
    if not isinstance(storage, _Storage) or kind is None:
        raise PickleError("a tensor has no storage or no dtype")
    return _view(storage, kind, offset, shape, strides)


def _view(storage: _Storage, kind: _Kind, offset: Any, shape: Any, strides: Any) -> _Tensor:
    shape, strides = _sizes(shape, "shape"), _sizes(strides, "strides")
    if type(offset) is not int or offset < 0 or len(shape) != len(strides):
        raise PickleError("the offset or the strides of a tensor are wrong")
    # No element is stored twice: each axis steps over all elements of the axes with smaller strides.
    end = 1
    if 0 not in shape:
        for stride, size in sorted((stride, size) for size, stride in zip(shape, strides, strict=True) if size > 1):
            if stride < end:
                shown = f"shape {list(shape)}, strides {list(strides)}"
                raise PickleError(f"elements of a tensor overlap: {shown}; call `contiguous` before `torch.save`")
            end += (size - 1) * stride
        if (offset + end) * kind.bytes > storage.count * storage.kind.bytes:
            held = storage.count * storage.kind.bytes
            raise PickleError(f"a tensor ends at byte {(offset + end) * kind.bytes} of a storage of {held} bytes")
    return _Tensor(storage, kind, offset, shape, strides)


def _parameter(data: Any, *rest: Any) -> _Tensor:
    if not isinstance(data, _Tensor):
        raise PickleError("a parameter is not a tensor")
    return data


def _entries(*pairs: Any) -> dict[Any, Any]:
    if pairs:
        raise PickleError("an ordered dict has arguments")
    return {}


_GLOBALS: Mapping[str, Global] = {
    found.name: found
    for found in (
        *(Global(name) for name in _STORAGES),
        *(Global(f"torch.{name}") for name in _KINDS),
        *NUMPY_GLOBALS,
        Global("collections.OrderedDict", _entries),
        Global("lightning_fabric.utilities.data.AttributeDict", _entries),
        Global("lightning.fabric.utilities.data.AttributeDict", _entries),
        Global("pytorch_lightning.utilities.parsing.AttributeDict", _entries),
        Global("torch.Size", lambda sizes: _sizes(sizes, "size")),
        Global("torch.device", lambda *device: None),
        Global("torch._utils._rebuild_tensor", _tensor),
        Global("torch._utils._rebuild_tensor_v2", _tensor),
        Global("torch._utils._rebuild_tensor_v3", _tensor_of_dtype),
        Global("torch._utils._rebuild_parameter", _parameter),
        Global("torch._utils._rebuild_parameter_with_state", _parameter),
    )
}
"""The names that have a meaning. Classes of Lightning are dicts whose keys are also attributes."""


@dataclass(slots=True)
class _Storages:
    """The storages that a pickle names, by their keys."""

    found: dict[str, _Storage]

    def load(self, identifier: Any) -> _Storage:
        """Returns the storage of `("storage", class, key, device, number of elements)`."""
        if not isinstance(identifier, tuple) or len(identifier) < 5 or identifier[0] != "storage":
            raise PickleError("an object outside of the pickle is not a storage")
        _, kind, key, _, count, *view = identifier
        if not isinstance(kind, Global) or kind.name not in _STORAGES or not isinstance(key, str):
            raise PickleError("a storage has no dtype or no key")
        if type(count) is not int or not 0 <= count < 1 << 62:
            raise PickleError(f"the storage `{key}` has a wrong number of elements")
        if view not in ([], [None]):
            raise PickleError(f"the storage `{key}` is a view of another one")
        storage = _Storage(key, _STORAGES[kind.name], count)
        known = self.found.setdefault(key, storage)
        if known.count * known.kind.bytes != count * storage.kind.bytes:
            raise PickleError(f"the storage `{key}` has two sizes")
        return storage


def read_torch(path: Path) -> Checkpoint:
    """Opens the tensors of a file of `torch.save`. Raises DiagnosticError."""
    with path.open("rb") as file:
        start = file.read(4)
    try:
        if start == b"PK\x03\x04":
            return _read_archive(path)
        if not start:
            raise PickleError("it is empty")
        return _read_stream(path)
    except RefusedGlobalError as error:
        message = f"`{path}` names the global `{error.name}`, which is no part of a tensor, so it is not read"
        help_text = "save tensors alone, `torch.save(model.state_dict(), path)`, or convert them to safetensors"
        raise checkpoint_error("refused-pickle", message, help_text) from None
    except (zipfile.BadZipFile, EOFError, OSError, RuntimeError, ValueError, zlib.error) as error:
        raise broken(path, str(error)) from error  # OSError: a seek to a position that a damaged archive names


def read_sharded_torch(path: Path) -> Checkpoint:
    """Opens the tensors of all files of `torch.save` that an index names. Raises DiagnosticError."""
    return read_sharded(path, read=read_torch)


def _read_archive(path: Path) -> Checkpoint:
    with zipfile.ZipFile(path) as archive:
        members = {member.filename: member for member in archive.infolist()}
        if len(members) < len(archive.infolist()):
            raise PickleError("two members of the archive have one name")
        pickles = [name for name in members if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise PickleError(f"it holds {len(pickles)} pickles `data.pkl`, and `torch.save` writes one")
        folder = pickles[0].removesuffix("data.pkl")
        order = _member(archive, members.get(f"{folder}byteorder"), 16) or b"little"
        if order not in (b"little", b"big"):
            raise PickleError("its byte order is neither little nor big")
        storages = _Storages({})
        value, _ = unpickle(_member(archive, members[pickles[0]], MOST_PICKLE_BYTES), 0, _GLOBALS, storages.load)
    offsets: dict[str, int] = {}
    extents: list[tuple[int, int, str]] = []
    for key, storage in storages.found.items():
        member, size = members.get(f"{folder}data/{key}"), storage.count * storage.kind.bytes
        if member is None:
            raise PickleError(f"it lacks the storage `{key}`")
        if member.compress_type != zipfile.ZIP_STORED:
            raise PickleError(f"the storage `{key}` is compressed, which `torch.save` never does")
        if member.file_size != size:
            raise PickleError(f"the storage `{key}` has {member.file_size} bytes, and {size} are expected")
        offsets[key] = data_offset(path, member)
        extents.append((offsets[key], offsets[key] + size, key))
    _check_extents(extents, path.stat().st_size)
    return _checkpoint(path, value, offsets, order == b"big")


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo | None, most: int) -> bytes:
    if member is None:
        return b""
    if member.file_size > most or member.compress_type != zipfile.ZIP_STORED:
        raise PickleError(f"its member `{member.filename}` is compressed or has more than {most} bytes")
    return archive.read(member)


def _read_stream(path: Path) -> Checkpoint:
    size = path.stat().st_size
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        position, storages = 0, _Storages({})
        head: list[Any] = []
        for _ in range(3):
            value, position = unpickle(data, position, {}, storages.load)
            head.append(value)
        if head[0] != _MAGIC or head[1] != _VERSION or not isinstance(head[2], dict):
            raise PickleError("it does not begin as a file of `torch.save`")
        value, position = unpickle(data, position, _GLOBALS, storages.load)
        keys, position = unpickle(data, position, {}, storages.load)
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise PickleError("it has no list of storages")
        offsets: dict[str, int] = {}
        order = "little" if head[2].get("little_endian", True) else "big"
        for key in keys:
            storage = storages.found.get(key)
            if storage is None or key in offsets:
                raise PickleError(f"the storage `{key}` is listed twice, or no tensor has it")
            count = int.from_bytes(data[position : position + 8], "little")
            if count != storage.count:
                raise PickleError(f"the storage `{key}` has {count} elements, and {storage.count} are expected")
            offsets[key] = position + 8
            position += 8 + count * storage.kind.bytes
            if position > size:
                raise PickleError(f"the storage `{key}` ends at byte {position} of {size}")
    missing = [key for key in storages.found if key not in offsets]
    if missing:
        raise PickleError(f"it lacks the storage `{missing[0]}`")
    return _checkpoint(path, value, offsets, order == "big")


def _check_extents(extents: list[tuple[int, int, str]], size: int) -> None:
    position, previous = 0, ""
    for start, end, key in sorted(extents):
        if start < position:
            raise PickleError(f"the storages `{previous}` and `{key}` overlap")
        if end > size:
            raise PickleError(f"the storage `{key}` ends at byte {end} of {size}")
        position, previous = max(position, end), key


def _checkpoint(path: Path, value: Any, offsets: Mapping[str, int], is_big: bool) -> Checkpoint:
    if isinstance(value, dict) and isinstance(value.get("state_dict"), dict):
        value = value["state_dict"]
    tensors: dict[str, StoredTensor] = {}
    for count, (name, tensor) in enumerate(_walk(value, "", [])):
        if count == _MOST_TENSORS:
            raise PickleError(f"it has more than {_MOST_TENSORS} tensors and numbers")
        if tensor is None:
            continue
        if name in tensors:
            raise PickleError(f"two tensors have the name `{name}`")
        tensors[name] = (
            _held(path, tensor) if isinstance(tensor, PickledArray) else _stored(path, tensor, offsets, is_big)
        )
    if not tensors:
        raise PickleError("it holds no tensors")
    return Checkpoint(path, tensors)


def _walk(value: Any, name: str, outer: list[int]) -> Iterator[tuple[str, _Tensor | PickledArray | None]]:
    """Yields the tensors in dicts and lists by their names, and None for each other value."""
    if not isinstance(value, dict | list | tuple):
        yield (name or "tensor", value) if isinstance(value, _Tensor | PickledArray) else (name, None)
        return
    if id(value) in outer:
        raise PickleError(f"`{name}` contains itself")
    if len(outer) == _MOST_DEPTH or len(name) > _MOST_NAME:
        raise PickleError(f"`{name[:40]}` is nested too deeply, or its name is too long")
    yield name, None
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        inner_name = str(key)[: _MOST_NAME + 1]
        yield from _walk(inner, f"{name}.{inner_name}" if name else inner_name, [*outer, id(value)])


def _held(path: Path, pickled: PickledArray) -> StoredTensor:
    array, dtype = pickled.array, pickled.array.dtype.newbyteorder("=")

    def load() -> Array:
        return array.astype(dtype, order="C")

    return StoredTensor(path, dtype_of(np.empty(0, dtype)), dtype.name, array.shape, load=load)


def _stored(path: Path, tensor: _Tensor, offsets: Mapping[str, int], is_big: bool) -> StoredTensor:
    kind, start = tensor.kind, offsets[tensor.storage.key]
    if kind.dtype is None:
        return StoredTensor(path, None, kind.name, tensor.shape)
    storage, swapped = kind.dtype.numpy, None
    if is_big and kind.bytes > 1:
        # Dtypes from outside of NumPy, such as bf16, are read in the byte order of the machine, whatever they state.
        is_own = storage.isbuiltin == 1
        storage, swapped = (storage.newbyteorder(">"), None) if is_own else (np.dtype(f">u{kind.bytes}"), storage)
    offset = start + tensor.offset * kind.bytes
    plain, step = [], 1
    for size in reversed(tensor.shape):
        plain.append(step)
        step *= size
    axes = zip(tensor.shape, tensor.strides, reversed(plain), strict=True)
    is_dense = 0 in tensor.shape or all(size == 1 or stride == expected for size, stride, expected in axes)
    if is_dense and swapped is None:
        return StoredTensor(path, kind.dtype, kind.name, tensor.shape, offset, storage=storage)
    load = _load_view(path, tensor, storage, offset, swapped)
    return StoredTensor(path, kind.dtype, kind.name, tensor.shape, load=load)


def _load_view(
    path: Path, tensor: _Tensor, storage: np.dtype[np.generic], offset: int, swapped: np.dtype[np.generic] | None
) -> Callable[[], Array]:
    """`swapped` is the dtype of elements that are stored as integers in the other byte order; None for others."""

    def load() -> Array:
        if 0 in tensor.shape:
            return np.empty(tensor.shape, swapped or storage)
        strides = tuple(stride * storage.itemsize for stride in tensor.strides)
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, strides, strict=True))
        mapped = np.memmap(path, np.uint8, "r", offset, (last + storage.itemsize,))
        array: Array = np.ascontiguousarray(np.ndarray(tensor.shape, storage, mapped, strides=strides))
        array = array.reshape(tensor.shape)
        return array if swapped is None else array.astype(storage.newbyteorder("=")).view(swapped)

    return load
