"""UBJSON: each kind of number at its ends, alone and in arrays, containers, and what is not a value."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from nacre.compiler.readers.trees.ubjson import UbjsonError, parse_ubjson

NUMBERS: dict[str, tuple[str, tuple[float, ...]]] = {
    "i": ("b", (-128, -1, 0, 127)),
    "U": ("B", (0, 1, 128, 255)),
    "I": ("h", (-(1 << 15), -2, 0, (1 << 15) - 1)),
    "l": ("i", (-(1 << 31), -3, 0, (1 << 31) - 1)),
    "L": ("q", (-(1 << 63), -4, 0, (1 << 63) - 1)),
    "d": ("f", (-0.5, 0.0, 1.5, 2.0**127)),
    "D": ("d", (-0.1, 0.0, 0.1, 1e300)),
}


@pytest.mark.parametrize("marker", NUMBERS)
def test_numbers(marker: str) -> None:
    format, values = NUMBERS[marker]
    packed = [struct.pack(f">{format}", value) for value in values]
    for value, data in zip(values, packed, strict=True):
        assert parse_ubjson(marker.encode() + data) == value
    typed = f"[${marker}#U".encode() + bytes([len(values)]) + b"".join(packed)
    assert parse_ubjson(typed).tolist() == list(values)
    plain = b"[" + b"".join(marker.encode() + data for data in packed) + b"]"
    assert parse_ubjson(plain) == list(values)
    counted = b"[#i" + bytes([len(values)]) + plain[1:-1]
    assert parse_ubjson(counted) == list(values)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"Z", None),
        (b"T", True),
        (b"F", False),
        (b"NNT", True),
        (b"SU\x02\xc3\xa9", "\u00e9"),
        (b"Hi\x0212", "12"),
        (b"C!", "!"),
        (b"{}", {}),
        (b"{U\x01aTU\x01b[]}", {"a": True, "b": []}),
        (b"{#i\x01U\x01aZ", {"a": None}),
        (b"{$U#i\x02U\x01a\x05U\x01b\xff", {"a": 5, "b": 255}),
        (b"[[[T]]]", [[[True]]]),
        (b"SI\x00\x01x", "x"),
    ],
)
def test_other_values(data: bytes, value: Any) -> None:
    assert parse_ubjson(data) == value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"?",
        b"I\x00",
        b"[",
        b"{U\x01a",
        b"TT",
        b"[$U\x01]",
        b"[#i\xff",
        b"Si\xff",
        b"SU\x05abc",
        b"Sd",
        b"SU\x01\xff",
        b"[" * 5000,
        b"[#L\x7f" + bytes(7),
        b"[$Z#l\x7f\xff\xff\xff",
        b"[$U#l\x7f\xff\xff\xff",
    ],
)
def test_data_that_are_no_value(data: bytes) -> None:
    with pytest.raises(UbjsonError):
        parse_ubjson(data)


def test_arrays_have_the_order_of_bytes_of_the_machine() -> None:
    found = parse_ubjson(b"[$l#U\x02" + struct.pack(">ii", -7, 1 << 20))
    assert found.dtype == np.int32 and found.dtype.isnative
