"""Results that the caller places over an argument or over each other are refused, by the loader and in C.

A table says where an array lies in a buffer; both interfaces are called with every pair of places.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from nacre.runtime import arguments
from nacre.runtime.arguments import DTYPE_CODES, Array, Tensor
from nacre.runtime.loader import ArgumentError, Model

COUNT = 6
STARTS = {"before": 0, "just before": 4, "one over the start": 5, "half": 7, "the same": 10, "one over the end": 15,
          "just behind": 16, "behind": 20}  # fmt: skip
"""Where an array of `COUNT` elements begins, in a buffer whose other array begins at 10."""
APART = {"before", "just before", "just behind", "behind"}
FORMS: Mapping[str, Callable[[Array], object]] = {
    "array": lambda out: out,
    "tuple": lambda out: (out,),
    "list": lambda out: [out],
    "mapping": lambda out: {"sum": out},
}


def at(buffer: Array, start: int, count: int = COUNT) -> Array:
    return buffer[start : start + count].reshape(1, count)


def buffer() -> Array:
    return np.arange(32, dtype=np.float32)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("argument", ["x", "y"])
@pytest.mark.parametrize("place", STARTS)
def test_a_result_over_an_argument(model: Model, place: str, argument: str, form: str) -> None:
    add, memory = model.entries["add"], buffer()
    overlapped, other = at(memory, 10), np.ones((1, COUNT), np.float32)
    inputs = {"x": overlapped, "y": other} if argument == "x" else {"x": other, "y": overlapped}
    out, expected, before = at(memory, STARTS[place]), overlapped + other, memory.copy()
    for _ in range(2):  # the second call has a plan
        if place in APART:
            assert add(**inputs, out=FORMS[form](out)) is out
            assert np.array_equal(out, expected)
            continue
        with pytest.raises(ArgumentError, match=rf"^result `sum` overlaps argument `{argument}` in memory$"):
            add(**inputs, out=FORMS[form](out))
        assert np.array_equal(memory, before)


WITH_STRIDES: Mapping[str, tuple[Array, bool]] = {
    "column-major": (np.zeros((2, 3), order="F"), False),
    "axes in a 3-cycle": (np.zeros((2, 3, 4)).transpose(1, 2, 0), False),
    "reversed": (np.zeros((2, 3))[::-1, ::-1], False),
    "one row twice": (np.broadcast_to(np.zeros(3), (2, 3)), True),
    "windows": (np.lib.stride_tricks.as_strided(np.zeros(9), (2, 3), (16, 8)), True),
    "windows side by side": (np.lib.stride_tricks.as_strided(np.zeros(9), (2, 3), (24, 8)), False),
    "a single row": (np.lib.stride_tricks.as_strided(np.zeros(9), (1, 3), (8, 8)), False),
}


@pytest.mark.parametrize("name", WITH_STRIDES)
def test_elements_that_share_memory(name: str) -> None:
    array, repeats = WITH_STRIDES[name]
    assert arguments._repeats(array) is repeats


def test_empty_arrays_overlap_nothing(model: Model) -> None:
    memory = buffer()
    empty = at(memory, 10, 0)
    out = at(memory, 10, 0)
    assert model.entries["add"](empty, empty, out=out) is out
    head, tail = model.entries["split"](memory[:1], out=(memory[8:8], memory[8:9]))
    assert head.size == 0 and tail[0] == 0


@pytest.mark.parametrize("head", [8, 9, 10, 11, 12, 13])
def test_results_over_each_other(model: Model, head: int) -> None:
    """`split` gives the first two elements and the last three."""
    memory = buffer()
    x = np.arange(5, dtype=np.float32)
    out = memory[head : head + 2], memory[10:13]
    if head in (8, 13):
        model.entries["split"](x, out=out)
        assert [*out[0], *out[1]] == [0, 1, 2, 3, 4]
        return
    with pytest.raises(ArgumentError, match=r"^result `tail` overlaps result `head` in memory$"):
        model.entries["split"](x, out=out)


def run_in_c(model: Model, inputs: Sequence[Array], out: Array) -> str:
    """Calls `run` of the C interface; gives its message."""
    library = model._session.library
    shape = (ctypes.c_int64 * 2)(*out.shape)
    tensors = [
        Tensor(x.ctypes.data, ctypes.addressof(shape), None, DTYPE_CODES["f32"], out.ndim) for x in (*inputs, out)
    ]
    given, made = (Tensor * 2)(*tensors[:2]), (Tensor * 1)(tensors[2])
    workspace = np.zeros(4096, np.uint8)
    start = workspace.ctypes.data + -workspace.ctypes.data % 64
    index = list(model.entries).index("add")
    given_at, made_at = ctypes.addressof(given), ctypes.addressof(made)
    status = library.functions["run"](model._session.handle, index, given_at, 2, made_at, 1, start, 2048)
    return library.error() if status else ""


@pytest.mark.parametrize("argument", ["x", "y"])
@pytest.mark.parametrize("place", STARTS)
def test_a_result_over_an_argument_in_c(model: Model, place: str, argument: str) -> None:
    memory = buffer()
    overlapped, other = at(memory, 10), np.ones((1, COUNT), np.float32)
    inputs = (overlapped, other) if argument == "x" else (other, overlapped)
    out, expected = at(memory, STARTS[place]), overlapped + other
    message = run_in_c(model, inputs, out)
    assert message == ("" if place in APART else f"result `sum` overlaps argument `{argument}` in memory")
    assert place not in APART or np.array_equal(out, expected)
