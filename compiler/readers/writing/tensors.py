"""Values while a file is read: tensors with some known elements, and sequences of tensors.

A tensor is known as a whole (`array`), known as sizes that may be symbolic, or computed in a call. The elements of a
shape are sizes: an operator on shapes computes them while the file is read, and no node is written for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ....dialect.dims import Poly, Size
from ....dialect.graph import Value
from ....dialect.types import (
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
    TensorType,
    dtype_of,
)

DTYPES: dict[str, DType] = {
    "FLOAT": F32,
    "UINT8": U8,
    "INT8": I8,
    "UINT16": U16,
    "INT16": I16,
    "INT32": I32,
    "INT64": I64,
    "BOOL": BOOL,
    "FLOAT16": F16,
    "DOUBLE": F64,
    "UINT32": U32,
    "UINT64": U64,
    "BFLOAT16": BF16,
    "FLOAT8E4M3FN": F8E4M3,
    "FLOAT8E5M2": F8E5M2,
}
"""The dtypes of ONNX that the graph has, by their names."""

Elements: TypeAlias = np.ndarray[Any, np.dtype[Any]]
"""Known elements: an array of a dtype, or of objects, which are sizes, or None where an element is unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor: its type, its `value` in the graph, and its elements where they are known. One of both is given.
    `label` names the tensor in the file, `element` the element type in the file, if the dtype replaces it."""

    type: TensorType
    value: Value | None = None
    elements: Elements | None = None
    label: str = ""
    element: str = ""

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[Size, ...]:
        return self.type.shape

    @property
    def rank(self) -> int:
        return self.type.rank

    @property
    def array(self) -> Array | None:
        """The elements, if all are known numbers."""
        return None if self.elements is None or self.elements.dtype == object else self.elements

    @property
    def sizes(self) -> tuple[Size, ...] | None:
        """The elements of an integer tensor in row-major order, if all are known."""
        if self.elements is None or not self.dtype.is_integer:
            return None
        flat = tuple(self.elements.reshape(-1).tolist())
        return None if any(size is None for size in flat) else flat


@dataclass(frozen=True, slots=True, eq=False)
class TensorSequence:
    """A sequence whose length is known while the file is read."""

    items: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, eq=False)
class BoundedTensor:
    """A tensor as large as it can become: the first `size` elements of an axis count, and zeros follow them."""

    tensor: Tensor
    axis: int
    size: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Strings:
    """A tensor of strings. `data` is a tensor u8[*shape, bytes]: UTF-8, with zeros after the last byte of each."""

    data: Tensor

    @property
    def shape(self) -> tuple[Size, ...]:
        return self.data.shape[:-1]

    @property
    def width(self) -> Size:
        """The most bytes of a string."""
        return self.data.shape[-1]


Held: TypeAlias = Tensor | TensorSequence | BoundedTensor | Strings
"""A value of the file."""


def known(array: Array | Iterable[Any] | float | np.generic, dtype: DType | None = None, label: str = "") -> Tensor:
    """Returns a tensor of known elements."""
    data: Array = np.asarray(array) if dtype is None else np.asarray(array).astype(dtype.numpy)
    return Tensor(TensorType(dtype_of(data), data.shape), None, data, label)


def of_sizes(sizes: Iterable[Size]) -> Tensor:
    """Returns a vector of sizes as i64."""
    listed = list(sizes)
    return settle(TensorType(I64, (len(listed),)), _objects(listed, (len(listed),)))


def of_size(size: Size) -> Tensor:
    """Returns a size as an i64 scalar."""
    return settle(TensorType(I64), _objects([size], ()))


def _objects(items: list[Any], shape: tuple[int, ...]) -> Elements:
    made = np.empty(len(items), object)
    made[:] = items
    return made.reshape(shape)


def settle(type: TensorType, elements: Elements, value: Value | None = None) -> Tensor:
    """Returns the tensor of partly known elements; they become plain numbers if all are."""
    flat = elements.reshape(-1).tolist()
    if any(isinstance(x, Poly) or x is None for x in flat):
        return Tensor(type, value, elements)
    return Tensor(type, None, np.array(flat).astype(type.dtype.numpy).reshape(elements.shape))
