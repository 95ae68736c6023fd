"""GGUF files as checkpoints. Tensors whose blocks Nacre stores in the same way are mapped; others are decoded to f32.

    Q8_0   f16 scale, 32 bytes                    is q8[block 32]
    Q4_0   f16 scale, 16 bytes of low, high half  is q4[block 32]
    Q4_1   f16 scale, f16 minimum, 16 bytes       has two planes: q4[block 32, zero] with zero points of 0, and f16
    Q5_0   f16 scale, 4 bytes of upper bits, 16   is q8[block 32] with values from -16 to 15
    IQ4_NL f16 scale, 16 bytes of indices         is q4[block 32, nl]
    MXFP4  exponent, 16 bytes of f4e2m1           is q4[block 32, e2m1] with half of the scale, since q is twice a value
    Q5_1   as Q4_1, with 4 bytes of upper bits    has two planes: q8[block 32], and f16
    Q2_K to Q6_K                                  have planes of integers and of f32: see `super_blocks.py`

The package `gguf` decodes tensors with planes that are read as floats, such as vectors. It is imported when it is used.
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
from .super_blocks import SUPER_BLOCKS, SuperBlocks

_DTYPES: Mapping[str, DType] = {
    **{dtype.name.upper(): dtype for dtype in (F16, BF16, F32, F64, I8, I16, I32, I64)},
    "Q8_0": BLOCK_DTYPES["q8[block 32]"],
    "Q4_0": BLOCK_DTYPES["q4[block 32]"],
    "IQ4_NL": BLOCK_DTYPES["q4[block 32, nl]"],
}
"""The formats that are mapped."""
_Q4_1 = np.dtype([("scale", "<f2"), ("minimum", "<f2"), ("pairs", "u1", (16,))])
_Q5_0 = np.dtype([("scale", "<f2"), ("high", "<u4"), ("pairs", "u1", (16,))])
_Q5_1 = np.dtype([("scale", "<f2"), ("minimum", "<f2"), ("high", "<u4"), ("pairs", "u1", (16,))])
_MXFP4 = np.dtype([("exponent", "u1"), ("pairs", "u1", (16,))])
_BYTES = BLOCK_DTYPES["q8[block 32]"]
_WITH_ZERO = BLOCK_DTYPES["q4[block 32, zero]"]
_TWICE_F4 = BLOCK_DTYPES["q4[block 32, e2m1]"]


@dataclass(frozen=True, slots=True)
class Planes:
    """The keys of the tensors of a weight. A minimum is added to all numbers of its block.

    `quantized` is a block-quantized tensor, or one of integers, [..., blocks, size]. With `scales`, each of its numbers
    is multiplied by the scale of its block of `size` neighbours.
    """

    quantized: str
    minima: str | None
    scales: str | None = None
    size: int = 32


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
        name = "" if tensor.format is None else tensor.format.name
        if name in _WITH_MINIMA:
            dtype, load, stored = _WITH_MINIMA[name]
            minima = f"{tensor.name}#minima"
            made = planes[tensor.name] = Planes(f"{tensor.name}#codes", minima)
            blocks = (*tensor.shape[:-1], tensor.shape[-1] // 32)
            tensors[made.quantized] = StoredTensor(path, dtype, name, tensor.shape, load=load(path, tensor))
            tensors[minima] = StoredTensor(path, F16, name, blocks, load=_load_minima(path, tensor, stored))
        elif name in SUPER_BLOCKS and tensor.shape:
            planes[tensor.name], found = _super_planes(path, tensor, SUPER_BLOCKS[name])
            tensors |= found
    return Gguf(header, Checkpoint(path, tensors), planes)


def _super_planes(path: Path, tensor: GgufTensor, format: SuperBlocks) -> tuple[Planes, Mapping[str, StoredTensor]]:
    assert tensor.format is not None, tensor
    name, blocks = tensor.format.name, (*tensor.shape[:-1], tensor.shape[-1] // format.size)

    def plane(read: Callable[[Any], Array]) -> StoredTensor:
        return StoredTensor(path, F32, name, blocks, load=_load_plane(path, tensor, format, blocks, np.float32, read))

    quantized, scales = f"{tensor.name}#codes", f"{tensor.name}#scales"
    if format.zero is not None:
        load = _load_plane(path, tensor, format, (*blocks, format.size // 2), np.uint8, format.quantized)
        dtype = BLOCK_DTYPES[f"q4[block {format.size}, zero]"]
        stored = {quantized: StoredTensor(path, dtype, name, tensor.shape, load=_unscaled(load, dtype, format.zero))}
    else:
        shape = (*blocks, format.size)
        load = _load_plane(path, tensor, format, shape, np.int8, format.quantized)
        stored = {quantized: StoredTensor(path, I8, name, shape, load=load)}
    stored[scales] = plane(format.scales)
    minima = None
    if format.minima is not None:
        minima = f"{tensor.name}#minima"
        stored[minima] = plane(format.minima)
    return Planes(quantized, minima, scales, format.size), stored


def _load_plane(
    path: Path,
    tensor: GgufTensor,
    format: SuperBlocks,
    shape: tuple[int, ...],
    dtype: Any,
    read: Callable[[Any], Array],
) -> Callable[[], Array]:
    def load() -> Array:
        empty = np.empty(shape, dtype)
        return empty if empty.size == 0 else read(_map(path, tensor, format.stored)).reshape(shape)

    return load


def _unscaled(load: Callable[[], Array], dtype: DType, zero: int) -> Callable[[], Array]:
    """Returns the loader of values of four bits as block-quantized numbers whose scales are 1."""

    def joined() -> Array:
        pairs = load()
        result = np.empty(pairs.shape[:-1], dtype.numpy)
        result["scale"], result["zero"], result["pairs"] = 1, zero, pairs
        return result

    return joined


def _stored(path: Path, tensor: GgufTensor) -> StoredTensor:
    if tensor.format is None:
        return StoredTensor(path, None, f"type {tensor.number} of GGUF", tensor.shape)
    name = tensor.format.name
    dtype = _DTYPES.get(name)
    if dtype is not None:
        return StoredTensor(path, dtype, name, tensor.shape, tensor.offset)
    if name in _CONVERTED:
        dtype, load = _CONVERTED[name]
        return StoredTensor(path, dtype, name, tensor.shape, load=load(path, tensor))
    return StoredTensor(path, F32, name, tensor.shape, load=_load_floats(path, tensor))


def _map(path: Path, tensor: GgufTensor, dtype: Any, *last: int) -> np.ndarray[Any, Any]:
    """Returns the blocks of a tensor, [..., blocks], as elements of a dtype."""
    assert tensor.format is not None and tensor.shape, tensor
    shape = (*tensor.shape[:-1], tensor.shape[-1] // tensor.format.elements, *last)
    if tensor.bytes == 0:
        return np.empty(shape, dtype)
    mapped = np.memmap(path, np.uint8, "r", tensor.offset, (tensor.bytes,))
    return np.ndarray(shape, dtype, mapped)


def _load_values(path: Path, tensor: GgufTensor) -> Callable[[], Array]:
    def load() -> Array:
        blocks = _map(path, tensor, _Q4_1)
        result = np.zeros(blocks.shape, _WITH_ZERO.numpy)
        result["scale"], result["pairs"] = blocks["scale"], blocks["pairs"]
        return result

    return load


def _load_fives(stored: np.dtype[Any], middle: int) -> Callable[[Path, GgufTensor], Callable[[], Array]]:
    """Returns the loader of values of five bits, less `middle`."""

    def values(blocks: Any) -> Array:
        high = blocks["high"][..., None] >> np.arange(32, dtype=np.uint32) & np.uint32(1)
        return np.asarray(_halves(blocks) | high.astype(np.uint8) << 4).astype(np.int8) - np.int8(middle)

    return lambda path, tensor: _load_bytes(path, tensor, stored, values)


def _load_powers(path: Path, tensor: GgufTensor) -> Callable[[], Array]:
    """Returns the loader of blocks whose scales are powers of 2. The exponents are those of the file less 128: of the
    halves, the two least are denormal numbers of bf16."""

    def load() -> Array:
        blocks = _map(path, tensor, _MXFP4)
        result = np.empty(blocks.shape, _TWICE_F4.numpy)
        result["scale"] = np.ldexp(np.float32(1), blocks["exponent"].astype(np.int32) - 128)
        result["e2m1"] = blocks["pairs"]
        return result

    return load


def _halves(blocks: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.concatenate([blocks["pairs"] & 15, blocks["pairs"] >> 4], axis=-1)


def _load_bytes(
    path: Path, tensor: GgufTensor, stored: np.dtype[Any], values: Callable[[Any], Array]
) -> Callable[[], Array]:
    def load() -> Array:
        blocks = _map(path, tensor, stored)
        result = np.empty(blocks.shape, _BYTES.numpy)
        result["scale"], result["codes"] = blocks["scale"], values(blocks)
        return result

    return load


_CONVERTED: Mapping[str, tuple[DType, Callable[[Path, GgufTensor], Callable[[], Array]]]] = {
    "Q5_0": (_BYTES, _load_fives(_Q5_0, 16)),
    "MXFP4": (_TWICE_F4, _load_powers),
}
"""The dtypes and the loaders of formats that are converted to another form."""
_WITH_MINIMA: Mapping[str, tuple[DType, Callable[[Path, GgufTensor], Callable[[], Array]], np.dtype[Any]]] = {
    "Q4_1": (_WITH_ZERO, _load_values, _Q4_1),
    "Q5_1": (_BYTES, _load_fives(_Q5_1, 0), _Q5_1),
}
"""For formats with minima: the dtype of the values, their loader, and the blocks in a file."""


def _load_minima(path: Path, tensor: GgufTensor, stored: np.dtype[Any]) -> Callable[[], Array]:
    return lambda: np.ascontiguousarray(_map(path, tensor, stored)["minimum"])


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
