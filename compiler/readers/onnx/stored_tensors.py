"""Tensors of an ONNX file as arrays: inline data, and external data in files beside the model.

The size of the data is compared with the declared shape before anything is allocated. An external file lies in the
folder of the model or below it: absolute paths, `..` and links that lead outside are refused.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ....dialect.types import Array
from .mapped_data import Data
from .onnx_package import load_onnx
from .writing.records import StoredArray

_BITS = {
    "FLOAT": 32, "UINT8": 8, "INT8": 8, "UINT16": 16, "INT16": 16, "INT32": 32, "INT64": 64, "BOOL": 8, "FLOAT16": 16,
    "DOUBLE": 64, "UINT32": 32, "UINT64": 64, "COMPLEX64": 64, "COMPLEX128": 128, "BFLOAT16": 16, "FLOAT8E4M3FN": 8,
    "FLOAT8E4M3FNUZ": 8, "FLOAT8E5M2": 8, "FLOAT8E5M2FNUZ": 8, "FLOAT8E8M0": 8, "UINT4": 4, "INT4": 4,
    "FLOAT4E2M1": 4, "UINT2": 2, "INT2": 2,
}  # fmt: skip
_NARROW = {"INT4": np.int8, "INT2": np.int8, "UINT4": np.uint8, "UINT2": np.uint8}


def file_error(code: str, message: str, help: str = "") -> DiagnosticError:
    return DiagnosticError([Diagnostic(code, message, help=help)])


def element_name(number: int) -> str:
    """Returns the ONNX name of an element type. Raises DiagnosticError for an unknown number."""
    types = load_onnx().TensorProto.DataType
    if number not in types.values() or number == 0:
        raise file_error("bad-onnx", f"{number} is not the number of an ONNX element type")
    return str(types.Name(number))


def read_stored(tensor: Any, folder: Path | None, mapped: Data | None = None) -> StoredArray:
    """Returns the data of a `TensorProto`. `folder` is that of the model, `mapped` the raw data that the message lacks.
    Raises DiagnosticError."""
    name = str(tensor.name)
    element = element_name(tensor.data_type)
    shape = tuple(int(size) for size in tensor.dims)
    if any(size < 0 for size in shape):
        raise file_error("bad-onnx", f"the tensor `{name}` has a negative size: {list(shape)}")
    if tensor.HasField("segment"):
        raise file_error("bad-onnx", f"the tensor `{name}` is stored in segments, which is not supported")
    count = 1
    for size in shape:
        count *= size
    if tensor.data_location == load_onnx().TensorProto.EXTERNAL:
        return StoredArray(name, element, _read_external(tensor, name, element, shape, count, folder))
    if mapped is not None and element in _BITS:
        _check_bytes(name, element, shape, (count * _BITS[element] + 7) // 8, len(mapped))
        return StoredArray(name, element, _view(tensor, element, shape, mapped))
    if element == "STRING":
        _check_count(name, count, len(tensor.string_data))
    elif element not in _BITS:
        raise file_error("unsupported-dtype", f"the tensor `{name}` is {element}, which is not supported")
    elif tensor.HasField("raw_data"):
        _check_bytes(name, element, shape, (count * _BITS[element] + 7) // 8, len(tensor.raw_data))
    else:
        _check_count(name, count, _listed(tensor, element))
    try:
        array = np.asarray(load_onnx("numpy_helper").to_array(tensor))
    except Exception as error:
        raise file_error("bad-onnx", f"the data of the tensor `{name}` cannot be read: {error}") from error
    return StoredArray(name, element, _plain(array, element).reshape(shape))


def _listed(tensor: Any, element: str) -> int:
    """Returns the number of elements in the field that holds data of this type."""
    if element in ("COMPLEX64", "COMPLEX128"):
        return len(tensor.float_data if element == "COMPLEX64" else tensor.double_data) // 2
    field = {"FLOAT": "float_data", "DOUBLE": "double_data", "INT64": "int64_data"}.get(element)
    if element in ("UINT32", "UINT64"):
        field = "uint64_data"
    stored = len(getattr(tensor, field or "int32_data"))
    if _BITS[element] < 8:
        # Elements are packed into bytes, and the last byte may be partly used.
        per = 8 // _BITS[element]
        declared = 1
        for size in tensor.dims:
            declared *= size
        return int(declared) if (declared + per - 1) // per == stored else stored * per
    return stored


def _check_count(name: str, expected: int, found: int) -> None:
    if expected != found:
        raise file_error("bad-onnx", f"the tensor `{name}` has {expected} elements and data for {found}")


def _check_bytes(name: str, element: str, shape: tuple[int, ...], expected: int, found: int) -> None:
    if expected != found:
        message = f"the tensor `{name}` is {element} {list(shape)}, {expected} bytes, and has {found} bytes of data"
        raise file_error("bad-onnx", message)


def _plain(array: Array, element: str) -> Array:
    """Returns integers of fewer than 8 bits as bytes."""
    return array.astype(_NARROW[element]) if element in _NARROW else array


def _read_external(
    tensor: Any, name: str, element: str, shape: tuple[int, ...], count: int, folder: Path | None
) -> Array:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise file_error("missing-data", f"the tensor `{name}` has external data, and the model is not a file")
    if element not in _BITS:
        raise file_error("unsupported-dtype", f"the tensor `{name}` is {element}, which is not supported")
    path = _inside(folder, location, name)
    try:
        offset, stored = int(entries.get("offset") or 0), path.stat().st_size
        expected = (count * _BITS[element] + 7) // 8
        length = int(entries.get("length") or expected)
    except ValueError:
        raise file_error("bad-onnx", f"the external data of `{name}` has a bad offset or length") from None
    except OSError as error:
        message = f"the data of `{name}` is in `{location}`, which cannot be read: {error.strerror or error}"
        raise file_error("missing-data", message) from error
    _check_bytes(name, element, shape, expected, length)
    if offset < 0 or offset + length > stored:
        message = (
            f"the data of `{name}` is at bytes {offset}..{offset + length} of `{location}`, which has {stored} bytes"
        )
        raise file_error("missing-data", message)
    if count == 0:
        return _plain(
            np.zeros(shape, np.dtype(load_onnx("helper").tensor_dtype_to_np_dtype(tensor.data_type))), element
        )
    return _view(tensor, element, shape, np.memmap(path, np.uint8, "r", offset, (length,)))


def _view(tensor: Any, element: str, shape: tuple[int, ...], data: Data) -> Array:
    """Returns raw data as an array of the tensor's type, without a copy where its elements are bytes or more."""
    if _BITS[element] >= 8:
        dtype = np.dtype(load_onnx("helper").tensor_dtype_to_np_dtype(tensor.data_type))
        result: Array = data.view(dtype.newbyteorder("<")).reshape(shape)
        return result
    inline = load_onnx().TensorProto(data_type=tensor.data_type, dims=shape)
    inline.raw_data = data.tobytes()
    return _plain(np.asarray(load_onnx("numpy_helper").to_array(inline)), element).reshape(shape)


def _inside(folder: Path, location: str, name: str) -> Path:
    """Returns the path of external data. Raises DiagnosticError if it is not inside the folder of the model."""
    pure = PurePosixPath(location)
    windows = PureWindowsPath(location)
    outside = pure.is_absolute() or windows.drive or windows.root or ".." in (*pure.parts, *windows.parts)
    if not location or "\0" in location or outside:
        message = f"the data of `{name}` is in `{location}`, which is not a path inside the folder of the model"
        raise file_error("bad-path", message)
    path = folder / pure
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise file_error("bad-path", f"the data of `{name}` is in `{location}`, a link that leaves the folder")
    except (OSError, RuntimeError) as error:
        raise file_error("missing-data", f"the data of `{name}` is in `{location}`, which cannot be read") from error
    return path
