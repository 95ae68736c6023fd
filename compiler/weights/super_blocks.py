"""The formats of GGUF with scales in f32: Q2_K to Q6_K, whose 256 neighbours share scales in f16.

    Q2_K         16 blocks of 16: number = value * (d * scale) - dmin * minimum      value of 2 bits, both of 4
    Q3_K         16 blocks of 16: number = (value - 4) * (d * (scale - 32))          value of 3 bits, scale of 6
    Q4_K, Q5_K   8 blocks of 32:  number = value * (d * scale) - dmin * minimum      value of 4 or 5 bits, both of 6
    Q6_K         16 blocks of 16: number = (value - 32) * (d * scale)                value of 6 bits, scale of 8

A tensor becomes planes: the values of each block, the product of both scales in f32, and the negated second product.
Numbers computed from the planes in f32 are those of the package `gguf`, bit for bit. Values of Q2_K to Q4_K are stored
two in a byte, in the order of `q4[block 16]` or `q4[block 32]`; the others take a byte each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...dialect.lazy_dataclass import dataclass

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[Any]
_Q2_K = np.dtype([("scales", "u1", (16,)), ("low", "u1", (2, 32)), ("d", "<f2"), ("dmin", "<f2")])
_Q3_K = np.dtype([("high", "u1", (32,)), ("low", "u1", (2, 32)), ("scales", "u1", (12,)), ("d", "<f2")])
_EIGHT_SCALES = [("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", (3, 4))]
_Q4_K = np.dtype([*_EIGHT_SCALES, ("low", "u1", (4, 32))])
_Q5_K = np.dtype([*_EIGHT_SCALES, ("high", "u1", (32,)), ("low", "u1", (4, 32))])
_Q6_K = np.dtype([("low", "u1", (2, 64)), ("high", "u1", (2, 32)), ("scales", "i1", (16,)), ("d", "<f2")])


@dataclass(frozen=True, slots=True)
class SuperBlocks:
    """A format: its blocks in a file, the neighbours of a small block, the zero point of values that share a byte with
    another one in the artifact, and the functions that read the values, scales and minima of small blocks, if they have
    minima. With a zero point, values are unsigned; None means that each one takes a byte."""

    stored: np.dtype[Any]
    size: int
    zero: int | None
    values: Callable[[Any], Numbers]
    scales: Callable[[Any], Numbers]
    minima: Callable[[Any], Numbers] | None = None

    def quantized(self, blocks: Any) -> Numbers:
        """Returns the values, [..., blocks, bytes of a block]."""
        values = self.values(blocks)
        if self.zero is not None:
            half = self.size // 2
            values = values[..., :half] | values[..., half:] << 4
        return np.ascontiguousarray(values.reshape(*blocks.shape[:-1], -1, values.shape[-1]))


def _products(shared: Numbers, own: Numbers) -> Numbers:
    with np.errstate(all="ignore"):
        products = shared.astype(np.float32)[..., None] * own.astype(np.float32)
    return products.reshape(*products.shape[:-2], -1)


def _six_bits(blocks: Any) -> tuple[Bytes, Bytes]:
    """Returns the eight scales and the eight minima: the last four have their two upper bits in the bytes of the
    first."""
    first, second, lower = (blocks["scales"][..., i, :] for i in range(3))
    scales = np.concatenate([first & 63, lower & 15 | first >> 6 << 4], axis=-1)
    return scales, np.concatenate([second & 63, lower >> 4 | second >> 6 << 4], axis=-1)


def _parts(packed: Bytes, bits: int) -> Bytes:
    """Splits bytes into values of `bits` bits: [..., groups, n] become [..., groups * 8 / bits, n], lowest first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    parts = packed[..., None, :] >> shifts & np.uint8((1 << bits) - 1)
    return parts.reshape(*packed.shape[:-2], -1, packed.shape[-1])


def _two(blocks: Any) -> Numbers:
    return _parts(blocks["low"], 2).reshape(*blocks.shape, 16, 16)


def _three(blocks: Any) -> Numbers:
    low = _parts(blocks["low"], 2)
    high = _parts(blocks["high"][..., None, :], 1)
    return np.asarray(low | high << 2).reshape(*blocks.shape, 16, 16)


def _four(blocks: Any) -> Numbers:
    return _parts(blocks["low"], 4)


def _five(blocks: Any) -> Numbers:
    high = _parts(blocks["high"][..., None, :], 1)
    return np.asarray(_four(blocks) | high << 4).astype(np.int8)


def _six(blocks: Any) -> Numbers:
    low = _parts(blocks["low"], 4).reshape(*blocks.shape, 8, 32)
    values = (low | _parts(blocks["high"], 2) << 4).astype(np.int8) - np.int8(32)
    return values.reshape(*blocks.shape, 16, 16)


def _four_bit_scales(blocks: Any) -> Numbers:
    return _products(blocks["d"], blocks["scales"] & 15)


def _four_bit_minima(blocks: Any) -> Numbers:
    return -_products(blocks["dmin"], blocks["scales"] >> 4)


def _centred_scales(blocks: Any) -> Numbers:
    """Returns the scales of Q3_K: eight bytes hold the lower four bits of sixteen, four bytes the upper two."""
    low = _parts(blocks["scales"][..., None, :8], 4).reshape(*blocks.shape, 16)
    high = _parts(blocks["scales"][..., None, 8:], 2).reshape(*blocks.shape, 16)
    return _products(blocks["d"], (low | high << 4).astype(np.int8) - np.int8(32))


def _six_bit_scales(blocks: Any) -> Numbers:
    return _products(blocks["d"], _six_bits(blocks)[0])


def _six_bit_minima(blocks: Any) -> Numbers:
    return -_products(blocks["dmin"], _six_bits(blocks)[1])


def _eight_bit_scales(blocks: Any) -> Numbers:
    return _products(blocks["d"], blocks["scales"])


SUPER_BLOCKS: Mapping[str, SuperBlocks] = {
    "Q2_K": SuperBlocks(_Q2_K, 16, 0, _two, _four_bit_scales, _four_bit_minima),
    "Q3_K": SuperBlocks(_Q3_K, 16, 4, _three, _centred_scales),
    "Q4_K": SuperBlocks(_Q4_K, 32, 0, _four, _six_bit_scales, _six_bit_minima),
    "Q5_K": SuperBlocks(_Q5_K, 32, None, _five, _six_bit_scales, _six_bit_minima),
    "Q6_K": SuperBlocks(_Q6_K, 16, None, _six, _eight_bit_scales),
}
"""The formats by name."""
