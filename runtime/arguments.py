"""Arguments of an entry: arrays, numbers for scalars, and arrays for the results.

This module or the artifact's own `bind` refuses invalid arguments, with the argument's name, the expected and the
actual type. Nothing is converted: an array of another dtype or shape is an error. A view that is not dense is copied.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .device_arrays import DeviceArray, is_on_device, view_on_device
from .library import ArgumentError, NacreError

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]
DType = np.dtype[np.generic]

ALIGNMENT = 64
_NUMPY = {
    "bool": "?",
    "i8": "i1",
    "u8": "u1",
    "i16": "i2",
    "u16": "u2",
    "i32": "i4",
    "u32": "u4",
    "i64": "i8",
    "u64": "u8",
    "f16": "f2",
    "bf16": "",  # numpy has no bf16, and none of the last ones
    "f32": "f4",
    "f64": "f8",
    "f8e4m3": "",
    "f8e5m2": "",
}
_OTHERS = {"bf16": ("bfloat16", "u2"), "f8e4m3": ("float8_e4m3fn", "u1"), "f8e5m2": ("float8_e5m2", "u1")}
"""The dtypes that numpy lacks: their names in the package ml_dtypes, and the dtypes of their bits."""
DTYPE_CODES = {name: code for code, name in enumerate(_NUMPY, start=1)}
"""The numbers of `nacre_dtype`, in the order of abi.h."""

_MOST_WORK = 1 << 16
"""The effort of deciding whether two views with strides have an element in common."""
_WORD = ctypes.sizeof(ctypes.c_size_t)
_DATA_WORD = object.__basicsize__ // _WORD
# The whole address space, as words: reading one creates no object besides its value.
_WORDS = (ctypes.c_size_t * (sys.maxsize // (2 * _WORD))).from_address(0)


def _read_address(array: Array) -> int:
    """Reads the address of an array's data, the first field of a numpy array's object: ten times as fast as
    `array.ctypes`."""
    return _WORDS[id(array) // _WORD + _DATA_WORD]


def _ask_address(array: Array) -> int:
    return array.ctypes.data


def _choose_address() -> Callable[[Array], int]:
    probes: list[Array] = [np.empty(n) for n in (0, 1, 7)]
    fast = sys.implementation.name == "cpython" and all(_read_address(p) == p.ctypes.data for p in probes)
    return _read_address if fast else _ask_address


address_of = _choose_address()


def empty_aligned(shape: tuple[int, ...], dtype: DType, size: int) -> Array:
    """Returns a new array of `size` bytes at a multiple of the alignment."""
    raw = np.empty(size + ALIGNMENT, np.uint8)
    return np.ndarray(shape, dtype, raw, -address_of(raw) % ALIGNMENT)


class Tensor(ctypes.Structure):
    """The struct `nacre_tensor` of abi.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
    )


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument or a result of an entry, as in the description. `type` is its text, `f32[B, 384]`."""

    name: str
    type: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class DTypes:
    """The numpy dtypes of Nacre's dtypes. A dtype that numpy lacks is that of `ml_dtypes`, or its bits with
    `raw_floats`."""

    raw_floats: bool = False
    in_torch: bool = False
    """Whether calls return tensors of PyTorch."""
    known: dict[str, DType] = field(default_factory=dict)

    def of(self, argument: Argument) -> DType:
        name = argument.dtype
        if name not in self.known:
            self.known[name] = self._other(argument) if name in _OTHERS else np.dtype(_NUMPY[name])
        return self.known[name]

    def _other(self, argument: Argument) -> DType:
        theirs, bits = _OTHERS[argument.dtype]
        if self.raw_floats:
            return np.dtype(bits)
        try:
            # Imported only for artifacts with such arguments.
            dtype: DType = np.dtype(getattr(importlib.import_module("ml_dtypes"), theirs))
        except ImportError:
            raise NacreError(
                f"`{argument.name}` is {argument.type}: {theirs} arrays need the package ml_dtypes; "
                f"load(..., raw_floats=True) takes their bits as {np.dtype(bits)}"
            ) from None
        return dtype

    def describe(self, dtype: DType) -> str:
        for name, code in _NUMPY.items():
            # `==` would treat None as f64.
            known = self.known.get(name) or (np.dtype(code) if code else None)
            if known is not None and dtype == known:
                return name
        return next((name for name, (theirs, _) in _OTHERS.items() if dtype.name == theirs), str(dtype))

    def describe_array(self, x: Array) -> str:
        name = self.describe(x.dtype)
        return f"{name}[{', '.join(map(str, x.shape))}]" if x.ndim else name


def _article(noun: str) -> str:
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"


def refuse(role: str, argument: Argument, got: str, expected: str = "") -> ArgumentError:
    return ArgumentError(f"{role} `{argument.name}`: expected {expected or argument.type}, got {got}")


def as_array(argument: Argument, value: object, dtypes: DTypes) -> Array:
    """Returns the value as an array that shares its memory. A number is accepted for a scalar."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, np.generic):
        return np.asarray(value)
    if isinstance(value, int | float):
        return _as_scalar(argument, value, dtypes)
    kind = type(value).__name__
    bits = bits_of_torch(argument, value, dtypes)
    if bits is not None:
        return bits
    try:
        if is_on_device(value):
            return _as_device_array(argument, value)
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
    except ArgumentError:
        raise
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        dtype = f" of dtype {value.dtype}" if hasattr(value, "dtype") else ""
        raise refuse("argument", argument, f"{_article(kind)}{dtype} that numpy cannot share: {error}") from None
    raise refuse("argument", argument, f"{_article(kind)}; pass a numpy array, or an object with __dlpack__")


def _as_device_array(argument: Argument, value: object) -> Array:
    try:
        return view_on_device(value)
    except ArgumentError as error:
        raise refuse("argument", argument, str(error)) from None
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        kind = _article(type(value).__name__)
        raise refuse("argument", argument, f"{kind} that cannot be shared: {error}") from None


def bits_of_torch(argument: Argument, value: object, dtypes: DTypes) -> Array | None:
    """Returns a tensor of PyTorch whose dtype numpy lacks, as an array of its memory; None for other values."""
    torch: Any = sys.modules.get("torch")
    # A folder of this name on the path, which is no package, has no such member.
    tensor: Any = getattr(torch, "Tensor", ())
    if argument.dtype not in _OTHERS or not isinstance(value, tensor):
        return None
    theirs, bits = _OTHERS[argument.dtype]
    if value.dtype is not getattr(torch, theirs, None):
        return None
    same = value.detach().view(getattr(torch, f"uint{8 * np.dtype(bits).itemsize}"))
    raw: Array = _as_device_array(argument, same) if is_on_device(same) else same.numpy()
    return raw.view(dtypes.of(argument))


def import_torch() -> Any:
    """Returns the package PyTorch. Raises ArgumentError if it is not installed."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise ArgumentError('results="torch" requires PyTorch, which is not installed') from None


def as_torch(result: Argument, array: Array) -> Any:
    """Returns a result as a tensor of PyTorch that shares its memory."""
    torch = import_torch()
    if result.dtype not in _OTHERS:
        return torch.from_numpy(array)
    theirs, bits = _OTHERS[result.dtype]
    return torch.from_numpy(array.view(bits)).view(getattr(torch, theirs))


def as_output(result: Argument, value: object, dtypes: DTypes) -> object:
    """Returns a tensor for a result as a writable array that shares its memory; other values as they are."""
    if isinstance(value, np.ndarray) or not (hasattr(value, "__dlpack__") or is_on_device(value)):
        return value
    x = as_array(result, value, dtypes)
    if x.flags.writeable or not x.nbytes or isinstance(x, DeviceArray):
        return x
    # numpy marks what it imports as read-only; its owner passed it to be written.
    memory = (ctypes.c_char * x.nbytes).from_address(address_of(x))
    return np.ndarray(x.shape, x.dtype, memoryview(memory)) if x.flags.c_contiguous else x


def dense(x: Array) -> Array:
    """Returns the array itself if it is dense and row-major, otherwise a copy."""
    return x if x.flags.c_contiguous else np.array(x, order="C")


def _class(value: float) -> tuple[bool, bool]:
    return math.isinf(value), math.isnan(value)


def _as_scalar(argument: Argument, value: float, dtypes: DTypes) -> Array:
    """Converts a number to an array. Kinds must agree and integers must fit exactly; a float is rounded, like a literal
    in a model."""
    dtype = dtypes.of(argument)
    kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "float"
    is_float = argument.dtype in ("f16", "f32", "f64", *_OTHERS)
    takes = ("int", "float") if is_float else ("bool",) if argument.dtype == "bool" else ("int",)
    if argument.shape or kind not in takes or (argument.dtype in _OTHERS and dtypes.raw_floats):
        raise refuse("argument", argument, f"the {kind} {value}")
    try:
        with np.errstate(over="ignore"):
            result: Array = np.array(value, dtype)
        stored = float(result) if is_float else int(result)
        # A float that exceeds the range is infinite, or NaN if the dtype has no infinities.
        fits = stored == value if kind != "float" else _class(stored) == _class(value)
    except OverflowError:
        fits = False
    if not fits:
        raise refuse("argument", argument, f"{value}, which does not fit")
    return result


def fill_tensor(tensor: Tensor, argument: Argument, x: Array, dtypes: DTypes, shape: int, strides: int) -> None:
    """Describes an array to the artifact; `shape` and `strides` are addresses of 64-bit integers, 0 for dense."""
    if x.dtype != dtypes.of(argument):
        name = dtypes.describe(x.dtype)
        raise refuse("argument", argument, f"{dtypes.describe_array(x)} (dtype {name}, expected {argument.dtype})")
    tensor.data, tensor.dtype, tensor.rank = address_of(x), DTYPE_CODES[argument.dtype], x.ndim
    tensor.shape, tensor.strides = shape, strides


def order_named(
    entry: str, arguments: Sequence[Argument], inputs: tuple[object, ...], named: Mapping[str, object]
) -> tuple[object, ...]:
    """Merges inputs given by position and by name, in the order of the arguments."""
    names = [a.name for a in arguments]
    takes = f"entry `{entry}` takes ({', '.join(names)})"
    for name in named:
        if name not in names:
            raise ArgumentError(f"{takes}, and no `{name}`")
        if name in names[: len(inputs)]:
            raise ArgumentError(f"{takes}; `{name}` was given by position and by name")
    for name in names[len(inputs) :]:
        if name not in named:
            raise ArgumentError(f"{takes}; `{name}` is missing")
    return (*inputs, *(named[name] for name in names[len(inputs) :]))


ResultPlan = tuple[tuple[int, ...], DType, int]
"""The shape, dtype and bytes of a result."""


def order_out(entry: str, results: Sequence[Argument], out: object) -> Sequence[object]:
    """Returns the part of `out` for each result: it may be one array, a sequence of arrays, or a mapping by name."""
    names = [r.name for r in results]
    has = f"entry `{entry}` has {len(names)} result{'s' * (len(names) != 1)} ({', '.join(names)})"
    if isinstance(out, Mapping):
        if set(out) != set(names):
            raise ArgumentError(f"{has}, got ({', '.join(map(str, out))})")
        return [out[name] for name in names]
    given = out if isinstance(out, tuple | list) else [out]
    if len(given) != len(names):
        raise ArgumentError(f"{has}, got {len(given)}")
    return given


def take_out(out: object, plans: Sequence[ResultPlan], taken: list[tuple[int, int]]) -> Sequence[Array] | None:
    """Returns the arrays of `out`, if they have the common simple form; None if they need the full checks.

    `taken` are the addresses and sizes of the inputs; those of the results are added.
    """
    given = (out,) if type(out) is np.ndarray else out
    if type(given) is not tuple or len(given) != len(plans):
        return None
    for number, (shape, dtype, size) in enumerate(plans):
        x = given[number]
        if type(x) is not np.ndarray or x.dtype is not dtype or x.shape != shape or not x.flags.carray:
            return None
        start = address_of(x)
        for other, length in taken:
            if other < start + size and start < other + length:
                return None
        taken.append((start, size))
    return given


def _overlap(x: Array, y: Array) -> bool:
    return bool(x.nbytes and y.nbytes) and np.may_share_memory(x, y, _MOST_WORK)  # type: ignore[arg-type]  # takes any number


def _repeats(x: Array) -> bool:
    """Returns whether elements may share memory: a stride does not exceed the elements of the smaller strides."""
    reach = x.itemsize
    for stride, size in sorted((abs(s), n) for s, n in zip(x.strides, x.shape, strict=True) if n > 1):
        if stride < reach:
            return True
        reach += stride * (size - 1)
    return False


def check_out(result: Argument, plan: ResultPlan, x: object, others: Mapping[str, Array], dtypes: DTypes) -> Array:
    """Returns a checked array for a result, which may be a view with strides; it must not overlap the others."""
    shape, dtype, _ = plan
    concrete = f"{result.dtype}[{', '.join(map(str, shape))}]" if shape else result.dtype
    if not isinstance(x, np.ndarray):
        raise refuse("result", result, _article(type(x).__name__), concrete)
    if x.dtype != dtype or x.shape != shape:
        raise refuse("result", result, dtypes.describe_array(x), concrete)
    if not x.flags.writeable:
        raise refuse("result", result, "an array that is not writeable", concrete)
    if not x.flags.c_contiguous and _repeats(x):
        raise refuse("result", result, "an array whose elements share memory", concrete)
    for other, y in others.items():
        if _overlap(x, y):
            raise ArgumentError(f"result `{result.name}` overlaps {other} in memory")
    return x
