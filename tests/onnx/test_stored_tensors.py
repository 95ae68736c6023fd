"""Tensors of every element type and size, as bytes, as fields of numbers, and in a file beside the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nacre.compiler.readers.onnx.stored_tensors import read_stored
from onnx import TensorProto, helper, numpy_helper

ELEMENTS = (
    *("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E5M2", "BOOL", "INT4", "UINT4", "INT2", "UINT2"),
    *("INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64"),
)
SHAPES = ((), (1,), (7,), (3, 5), (1, 9), (2, 3, 5), (3, 3, 3), (0, 4), (3, 0, 2), (33, 17))


def numbers(element: str, shape: tuple[int, ...]) -> Any:
    """Numbers that are all different, as far as the type has so many; those of `DOUBLE` are no f32."""
    counted = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    dtype = helper.tensor_dtype_to_np_dtype(getattr(TensorProto, element))
    if "FLOAT" in element or element == "DOUBLE":
        return np.asarray(counted % 101 + 1 / 3).astype(dtype)
    least, many = {"BOOL": (0, 2), "INT4": (-8, 16), "UINT4": (0, 16), "INT2": (-2, 4), "UINT2": (0, 4)}.get(
        element, (-50 if element.startswith("INT") else 0, 101)
    )
    return np.asarray(counted * 7 % many + least).astype(dtype)


def as_fields(name: str, array: Any, number: int) -> TensorProto:
    """The numbers, or the bits of floats that have no field of their own, two halves of a byte together."""
    if array.dtype.itemsize == 1 and array.dtype.kind == "V":
        return helper.make_tensor(name, number, array.shape, array.flatten())
    return helper.make_tensor(name, number, array.shape, array.flatten().tolist())


@pytest.mark.parametrize("storage", ["bytes", "fields", "external"])
@pytest.mark.parametrize("element", ELEMENTS)
def test_every_element_and_shape(tmp_path: Path, element: str, storage: str) -> None:
    number, end = getattr(TensorProto, element), 0
    with open(tmp_path / "data.bin", "wb") as file:
        tensors = []
        for shape in SHAPES:
            array, name = numbers(element, shape), "x".join(map(str, shape)) or "scalar"
            tensor = numpy_helper.from_array(array, name) if storage != "fields" else as_fields(name, array, number)
            assert tensor.HasField("raw_data") == (storage != "fields")
            if storage == "external":
                data = tensor.raw_data
                tensor.ClearField("raw_data")
                tensor.data_location = TensorProto.EXTERNAL
                # Offsets are odd, so that no element is aligned.
                end += file.write(b"\xff" * (1 - end % 2))
                for key, value in {"location": "data.bin", "offset": end, "length": len(data)}.items():
                    tensor.external_data.add(key=key, value=str(value))
                end += file.write(data)
            tensors.append((tensor, array))
    for tensor, array in tensors:
        found = read_stored(tensor, tmp_path)
        narrow = {"I": np.int8, "U": np.uint8}[element[0]] if element[-1] in "24" and element[-2] == "T" else None
        expected = array if narrow is None else array.astype(narrow)
        assert (found.name, found.element, found.array.shape) == (tensor.name, element, array.shape)
        assert (found.array.dtype, found.array.tobytes()) == (expected.dtype, expected.tobytes()), tensor.name
