"""Strings as arrays of bytes: entries take and return tensors of strings as `u8[..., bytes]`.

The bytes are UTF-8, with zeros after the last one. A string with the character U+0000 is refused, since it cannot be
distinguished from a shorter one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .library import ArgumentError

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def encode_strings(strings: Any, width: int | None = None) -> Bytes:
    """Returns a string, or lists or an array of strings, as bytes `u8[..., width]`: UTF-8 with zeros after the last
    byte. Entries of ONNX models take and return strings in this form.

    width: the bytes of each string; by default those of the longest one, at least 1.

    Raises NacreError, which is also a ValueError, for values that are not strings, for a longer string, and for one
    with the character U+0000.
    """
    given = np.asarray(strings, object)
    encoded = []
    for each in given.reshape(-1):
        if not isinstance(each, (str, bytes)):
            raise ArgumentError(f"expected strings, got {type(each).__name__}")
        try:
            encoded.append(each.encode() if isinstance(each, str) else bytes(each))
        except UnicodeEncodeError as error:
            raise ArgumentError(f"the string {each!r} has no UTF-8 form: {error.reason}") from None
        if b"\0" in encoded[-1]:
            raise ArgumentError(f"the string {each!r} contains the character U+0000")
    longest = max(map(len, encoded), default=0)
    size = max(longest, 1) if width is None else width
    if longest > size:
        raise ArgumentError(f"a string has {longest} bytes, and there is room for {size}")
    result = np.zeros((len(encoded), size), np.uint8)
    for row, each in zip(result, encoded, strict=True):
        row[: len(each)] = np.frombuffer(each, np.uint8)
    return result.reshape(*given.shape, size)


def decode_strings(data: Any) -> Any:
    """Returns bytes `u8[..., width]` as an array of strings, without their last axis.

    Raises NacreError, which is also a ValueError, if they are not UTF-8.
    """
    given = np.asarray(data)
    if given.dtype != np.uint8 or not given.ndim:
        raise ArgumentError(f"expected u8[..., bytes], got {given.dtype}{list(given.shape)}")
    result = np.empty(given.shape[:-1], object)
    for position in np.ndindex(result.shape):
        raw = given[position].tobytes().rstrip(b"\0")
        try:
            result[position] = raw.decode()
        except UnicodeDecodeError as error:
            raise ArgumentError(f"the bytes {raw!r} are not UTF-8: {error.reason}") from None
    return result
