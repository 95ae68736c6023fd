"""NumPy's scalars and arrays in a pickle: values of booleans, integers and floats, made of their bytes.

A pickle names a dtype by a code and gives the byte order afterwards, as the state of the dtype. Objects, strings,
records and dates are refused. The calls of a scalar and of an array:

    scalar(dtype("f8", False, True) <- (3, "<", None, ...), bytes)
    _reconstruct(ndarray, (0,), b"b") <- (1, shape, dtype, is_fortran, bytes)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...dialect.types import Array
from .pickle_machine import Global, PickleError, Stateful

_CODES = frozenset({"b1", *(f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)), "f2", "f4", "f8"})
_MOST_AXES = 64


class _Type(Stateful):
    """A dtype, in the byte order of this machine until its state says another one."""

    # Older versions of NumPy write 0 for False.
    def __init__(self, code: Any, align: Any = False, copy: Any = False) -> None:
        if not isinstance(code, str) or code not in _CODES or align != 0:
            raise PickleError(f"the dtype {code!r} of NumPy is none of {', '.join(sorted(_CODES))}")
        self.dtype: np.dtype[Any] = np.dtype(code)

    def restore(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) < 5 or state[1] not in ("<", ">", "|", "="):
            raise PickleError("the state of a dtype of NumPy has no byte order")
        if any(part is not None for part in state[2:5]):
            raise PickleError("a dtype of NumPy has fields")
        self.dtype = self.dtype.newbyteorder(state[1])


class PickledArray(Stateful):
    """An array, empty until its state is there. It is a view of the pickle's bytes, in their byte order, since many
    arrays may have the same bytes."""

    def __init__(self, *made: Any) -> None:
        self.array: Array = np.empty(0, np.uint8)

    def restore(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise PickleError("the state of an array of NumPy is not a tuple of five")
        _, shape, type, is_fortran, data = state
        sized = isinstance(shape, tuple) and len(shape) <= _MOST_AXES
        if not sized or not all(isinstance(n, int) and 0 <= n < 1 << 62 for n in shape):
            raise PickleError("the shape of an array of NumPy is not a tuple of sizes")
        values = _values(type, data, math.prod(shape))
        self.array = values.reshape(shape, order="F" if is_fortran is True else "C")


def _values(type: Any, data: Any, count: int) -> Array:
    if not isinstance(type, _Type) or not isinstance(data, bytes):
        raise PickleError("a value of NumPy has no dtype or no bytes")
    if len(data) != count * type.dtype.itemsize:
        raise PickleError(f"a value of NumPy has {len(data)} bytes, and {count * type.dtype.itemsize} are expected")
    return np.frombuffer(data, type.dtype)


def _scalar(type: Any, data: Any) -> Any:
    return _values(type, data, 1)[0].item()


def _encode(text: Any, encoding: Any) -> bytes:
    """Protocol 2 writes bytes as a text of the characters 0 to 255."""
    if not isinstance(text, str) or encoding != "latin1":
        raise PickleError(f"bytes are not encoded as {encoding!r}")
    try:
        return text.encode("latin1")
    except UnicodeEncodeError:
        raise PickleError("encoded bytes have characters above 255") from None


NUMPY_GLOBALS = (
    Global("_codecs.encode", _encode),
    Global("__builtin__.bytes", lambda: b""),  # the empty bytes in protocol 2
    Global("numpy.dtype", _Type),
    Global("numpy.ndarray"),
    *(
        Global(f"numpy.{core}.multiarray.{name}", build)
        for core in ("core", "_core")
        for name, build in (("scalar", _scalar), ("_reconstruct", PickledArray))
    ),
)
