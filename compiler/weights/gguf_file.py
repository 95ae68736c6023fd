"""GGUF files as checkpoints. Tensors whose blocks Nacre stores in the same way are mapped; others are decoded to f32.

    Q8_0   f16 scale, 32 bytes                    is q8[block 32]
    Q4_0   f16 scale, 16 bytes of low, high half  is q4[block 32]
    Q4_1   f16 scale, f16 minimum, 16 bytes       has two planes: q4[block 32, zero] with zero points of 0, and f16

The package `gguf` decodes the formats that have no such form. It is imported when a tensor of one is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import BF16, BLOCK_DTYPES, F16, F32, F64, I8, I16, I32, I64, Array, DType
from .checkpoint import Checkpoint, StoredTensor, checkpoint_error
from .gguf_header import GgufHeader, GgufTensor, read_header

_DTYPES: Mapping[str, DType] = {
    **{dtype.name.upper(): dtype for dtype in (F16, BF16, F32, F64, I8, I16, I32, I64)},
    "Q8_0": BLOCK_DTYPES["q8[block 32]"],
    "Q4_0": BLOCK_DTYPES["q4[block 32]"],
}
"""The formats that are mapped."""
_Q4_1 = np.dtype([("scale", "<f2"), ("minimum", "<f2"), ("pairs", "u1", (16,))])
_WITH_ZERO = BLOCK_DTYPES["q4[block 32, zero]"]


@dataclass(frozen=True, slots=True)
class Planes:
    """The keys of the two tensors of a weight: `codes`, block-quantized, and `minima`. A minimum is added to all
    numbers of its block."""

    codes: str
    minima: str


@dataclass(frozen=True, slots=True)
class Gguf:
    """An open file. `checkpoint` has every tensor under its name, and the tensors of `planes` under their keys."""

    header: GgufHeader
    checkpoint: Checkpoint
    planes: Mapping[str, Planes]


def read_gguf(path: Path) -> Checkpoint:
    """Opens the tensors of a file. Raises DiagnosticError."""
    header = read_header(path)
    return Checkpoint(path, {tensor.name: _stored(path, tensor) for tensor in header.tensors})


def open_gguf(path: Path) -> Gguf:
    """Opens a file with its metadata and with the planes of its tensors. Raises DiagnosticError."""
    header = read_header(path)
    tensors = {tensor.name: _stored(path, tensor) for tensor in header.tensors}
    planes: dict[str, Planes] = {}
    for tensor in header.tensors:
        if tensor.format is not None and tensor.format.name == "Q4_1":
            made = planes[tensor.name] = Planes(f"{tensor.name}#codes", f"{tensor.name}#minima")
            blocks = (*tensor.shape[:-1], tensor.shape[-1] // 32)
            tensors[made.codes] = StoredTensor(path, _WITH_ZERO, "Q4_1", tensor.shape, load=_load_codes(path, tensor))
            tensors[made.minima] = StoredTensor(path, F16, "Q4_1", blocks, load=_load_minima(path, tensor))
    return Gguf(header, Checkpoint(path, tensors), planes)


def _stored(path: Path, tensor: GgufTensor) -> StoredTensor:
    if tensor.format is None:
        return StoredTensor(path, None, f"type {tensor.number} of GGUF", tensor.shape)
    name = tensor.format.name
    dtype = _DTYPES.get(name)
    if dtype is not None:
        return StoredTensor(path, dtype, name, tensor.shape, tensor.offset)
    return StoredTensor(path, F32, name, tensor.shape, load=_load_floats(path, tensor))


def _map(path: Path, tensor: GgufTensor, dtype: Any, *last: int) -> np.ndarray[Any, Any]:
    """Returns the blocks of a tensor, [..., blocks], as elements of a dtype."""
    assert tensor.format is not None and tensor.shape, tensor
    shape = (*tensor.shape[:-1], tensor.shape[-1] // tensor.format.elements, *last)
    if tensor.bytes == 0:
        return np.empty(shape, dtype)
    mapped = np.memmap(path, np.uint8, "r", tensor.offset, (tensor.bytes,))
    return np.ndarray(shape, dtype, mapped)


def _load_codes(path: Path, tensor: GgufTensor) -> Callable[[], Array]:
    def load() -> Array:
        blocks = _map(path, tensor, _Q4_1)
        result = np.zeros(blocks.shape, _WITH_ZERO.numpy)
        result["scale"], result["pairs"] = blocks["scale"], blocks["pairs"]
        return result

    return load


def _load_minima(path: Path, tensor: GgufTensor) -> Callable[[], Array]:
    return lambda: np.ascontiguousarray(_map(path, tensor, _Q4_1)["minimum"])


def _load_floats(path: Path, tensor: GgufTensor) -> Callable[[], Array]:
    def load() -> Array:
        assert tensor.format is not None, tensor
        try:
            quants: Any = import_module("gguf.quants")
            constants: Any = import_module("gguf.constants")
        except ImportError:
            message = f"tensor `{tensor.name}` of `{path}` is {tensor.format.name}, which the package `gguf` decodes"
            raise checkpoint_error("missing-package", message, "pip install 'nacre[gguf]'") from None
        if tensor.bytes == 0:
            return np.empty(tensor.shape, np.float32)
        data = _map(path, tensor, np.uint8, tensor.format.bytes).reshape(*tensor.shape[:-1], -1)
        with np.errstate(all="ignore"):
            floats = quants.dequantize(data, constants.GGMLQuantizationType(tensor.number))
        return np.asarray(floats, np.float32).reshape(tensor.shape)

    return load
