"""The 64-bit hash that CatBoost gives to the text of a category: CityHash in its version 1.0.

    nacre.category_hashes(["red", "blue"])     the argument `categories` of a model with categorical features

Google, "Introducing CityHash", https://opensource.googleblog.com/2011/04/introducing-cityhash.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from .tree import Numbers

_WORD = (1 << 64) - 1
_K0, _K1, _K2, _K3 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F, 0xC949D7C7509E6557
_MULTIPLIER = 0x9DDFEA08EB382D69
_Read = Callable[..., int]


def category_hashes(values: Any) -> Numbers:
    """Returns the hashes of categories as i32, in the shape of `values`: text, or integers, which are hashed as their
    decimal digits. Raises TypeError for floats, which CatBoost refuses as categories too."""
    array = np.asarray(values)
    if array.dtype.kind not in "iuUOb":
        raise TypeError(f"categories are text or integers, not {array.dtype}")
    found = [_hash_category(value) for value in array.reshape(-1).tolist()]
    return np.asarray(found, np.uint32).view(np.int32).reshape(array.shape)


def _hash_category(value: object) -> int:
    if not isinstance(value, str | int):
        raise TypeError(f"a category is text or an integer, not {value!r}")
    return _hash_text(str(value))


@cache
def _hash_text(text: str) -> int:
    return city_hash(text.encode()) & 0xFFFFFFFF


def _rotate(x: int, count: int) -> int:
    return (x >> count | x << (64 - count)) & _WORD if count else x


def _mix(x: int) -> int:
    return x ^ x >> 47


def _pair(u: int, v: int) -> int:
    a = _mix((u ^ v) * _MULTIPLIER & _WORD)
    b = _mix((v ^ a) * _MULTIPLIER & _WORD)
    return b * _MULTIPLIER & _WORD


def city_hash(data: bytes) -> int:
    """Returns the hash of bytes."""
    size = len(data)

    def read(offset: int, count: int = 8) -> int:
        return int.from_bytes(data[offset : offset + count], "little")

    if size <= 16:
        return _hash_short(data, read)
    if size <= 32:
        a, b = read(0) * _K1, read(8)
        c, d = read(size - 8) * _K2 & _WORD, read(size - 16) * _K0
        first = _rotate((a - b) & _WORD, 43) + _rotate(c, 30) + d
        return _pair(first & _WORD, (a + _rotate(b ^ _K3, 20) - c + size) & _WORD)
    return _hash_middle(size, read) if size <= 64 else _hash_long(size, read)


def _hash_short(data: bytes, read: _Read) -> int:
    size = len(data)
    if size > 8:
        a, b = read(0), read(size - 8)
        return _pair(a, _rotate((b + size) & _WORD, size)) ^ b
    if size >= 4:
        return _pair(size + (read(0, 4) << 3), read(size - 4, 4))
    if size:
        y, z = data[0] + (data[size >> 1] << 8), size + (data[-1] << 2)
        return _mix((y * _K2 ^ z * _K3) & _WORD) * _K2 & _WORD
    return _K2


def _half(first: int, second: int, words: Sequence[int]) -> tuple[int, int]:
    """Adds four words to a state of two."""
    w, x, y, z = words
    first = (first + w) & _WORD
    second = _rotate((second + first + z) & _WORD, 21)
    start = first
    first = (first + x + y) & _WORD
    return (first + z) & _WORD, (second + _rotate(first, 44) + start) & _WORD


def _hash_middle(size: int, read: _Read) -> int:
    def half(first: int, words: Sequence[int], last: int) -> tuple[int, int]:
        a, (x, y) = first & _WORD, words
        b, c = _rotate((a + last) & _WORD, 52), _rotate(a, 37)
        a = (a + x) & _WORD
        c += _rotate(a, 7)
        a = (a + y) & _WORD
        return (a + last) & _WORD, (b + _rotate(a, 31) + c) & _WORD

    a, b = half(read(0) + (size + read(size - 16)) * _K0, (read(8), read(16)), read(24))
    c, d = half(read(16) + read(size - 32), (read(size - 24), read(size - 16)), read(size - 8))
    mixed = _mix(((a + d) * _K2 + (c + b) * _K0) & _WORD)
    return _mix((mixed * _K0 + b) & _WORD) * _K2 & _WORD


def _hash_long(size: int, read: _Read) -> int:
    def words(offset: int) -> list[int]:
        return [read(offset + 8 * i) for i in range(4)]

    x, y, z = read(0), read(size - 16) ^ _K1, read(size - 56) ^ _K0
    v = _half(size, y, words(size - 64))
    w = _half(size * _K1 & _WORD, _K0, words(size - 32))
    z = (z + _mix(v[1]) * _K1) & _WORD
    x, y = _rotate((z + x) & _WORD, 39) * _K1 & _WORD, _rotate(y, 33) * _K1 & _WORD
    for offset in range(0, (size - 1) & ~63, 64):
        x = _rotate((x + y + v[0] + read(offset + 16)) & _WORD, 37) * _K1 & _WORD
        y = _rotate((y + v[1] + read(offset + 48)) & _WORD, 42) * _K1 & _WORD
        x, y = x ^ w[1], y ^ v[0]
        z = _rotate(z ^ w[0], 33)
        v = _half(v[1] * _K1 & _WORD, (x + w[0]) & _WORD, words(offset))
        w = _half((z + w[1]) & _WORD, y, words(offset + 32))
        z, x = x, z
    first = _pair(v[0], w[0]) + _mix(y) * _K1 + z
    return _pair(first & _WORD, (_pair(v[1], w[1]) + x) & _WORD)
