"""Every refusal of a call names the argument, what was expected and what was got."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from nacre.runtime.arguments import Array
from nacre.runtime.loader import ArgumentError, Model


def f32(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def unaligned() -> Array:
    return np.zeros(4 * 6 + 1, np.uint8)[1:].view(np.float32).reshape(2, 3)


class Refusing:
    """A tensor of a device that numpy cannot reach."""

    def __dlpack__(self, **options: object) -> object:
        raise BufferError("it is on a GPU")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


X = f32(2, 3)
FROZEN = f32(2, 3)
FROZEN.flags.writeable = False
Call = Callable[[Any], object]


class Elsewhere:
    """A tensor whose memory DLPack cannot name, such as one of PyTorch's device `meta`."""

    dtype = "float32"

    def __dlpack_device__(self) -> tuple[int, int]:
        raise ValueError("unknown device type meta")


PASS = "; pass a numpy array, or an object with __dlpack__"
SMALL = ", which does not fit"

REFUSED: list[tuple[str, Call, str]] = [
    ("add", lambda e: e(X), "entry `add` takes 2 arguments (x, y), got 1"),
    ("add", lambda e: e(X, X, X), "entry `add` takes 2 arguments (x, y), got 3"),
    ("constant", lambda e: e(X), "entry `constant` takes 0 arguments (), got 1"),
    ("groups", lambda e: e(), "entry `groups` takes 1 argument (x), got 0"),
    ("add", lambda e: e(X, z=X), "entry `add` takes (x, y), and no `z`"),
    ("add", lambda e: e(X, x=X), "entry `add` takes (x, y); `x` was given by position and by name"),
    ("add", lambda e: e(x=X), "entry `add` takes (x, y); `y` is missing"),
    (
        "add",
        lambda e: e(X, None),
        "argument `y`: expected f32[B, T], got a NoneType; pass a numpy array, or an object with __dlpack__",
    ),
    (
        "add",
        lambda e: e(X, [[1.0]]),
        "argument `y`: expected f32[B, T], got a list; pass a numpy array, or an object with __dlpack__",
    ),
    ("add", lambda e: e(X, 1.0), "argument `y`: expected f32[B, T], got the float 1.0"),
    ("add", lambda e: e(X, f32(3)), "argument `y`: expected f32[B, T], got f32[3] (rank 1, expected 2)"),
    ("add", lambda e: e(X, np.float32(1)), "argument `y`: expected f32[B, T], got f32 (rank 0, expected 2)"),
    (
        "add",
        lambda e: e(X.astype(np.float64), X),
        "argument `x`: expected f32[B, T], got f64[2, 3] (dtype f64, expected f32)",
    ),
    (
        "add",
        lambda e: e(X.astype(ml_dtypes.bfloat16), X),
        "argument `x`: expected f32[B, T], got bf16[2, 3] (dtype bf16, expected f32)",
    ),
    (
        "add",
        lambda e: e(X.astype(">f4"), X),
        "argument `x`: expected f32[B, T], got >f4[2, 3] (dtype >f4, expected f32)",
    ),
    (
        "add",
        lambda e: e(X.astype(complex), X),
        "argument `x`: expected f32[B, T], got complex128[2, 3] (dtype complex128, expected f32)",
    ),
    (
        "add",
        lambda e: e(X, f32(2, 4)),
        "argument `y`: expected f32[B, T], got f32[2, 4] (axis 1 is 4, expected `T` = 3 from argument `x`)",
    ),
    (
        "add",
        lambda e: e(f32(2, 600), X),
        "dim `T` is 600, outside 0..512 (argument `x`: expected f32[B, T], got f32[2, 600])",
    ),
    ("add", lambda e: e(f32(0, 3), X), "dim `B` is 0, outside 1..64 (argument `x`: expected f32[B, T], got f32[0, 3])"),
    (
        "add",
        lambda e: e(X, unaligned()),
        "argument `y`: expected f32[B, T], got an array whose data is not aligned to 4 bytes",
    ),
    (
        "add",
        lambda e: e(X, Refusing()),
        "argument `y`: expected f32[B, T], got a Refusing that cannot be shared: it is on a GPU",
    ),
    (
        "add",
        lambda e: e(X, Elsewhere()),
        "argument `y`: expected f32[B, T], got an Elsewhere of dtype float32 that numpy cannot share:"
        " unknown device type meta",
    ),
    (
        "split",
        lambda e: e(f32(4)),
        "argument `x`: expected f32[2*T + 1], got f32[4] (axis 0 is 4, and `2*T + 1` has this value for no `T`)",
    ),
    (
        "split",
        lambda e: e(f32(0)),
        "argument `x`: expected f32[2*T + 1], got f32[0] (axis 0 is 0, and `2*T + 1` has this value for no `T`)",
    ),
    (
        "flat",
        lambda e: e(f32(7), f32(2)),
        "argument `x`: expected f32[B*T], got f32[7] (axis 0 is 7, and `B*T` has this value for no `T`)",
    ),
    (
        "groups",
        lambda e: e(np.zeros(12, np.uint8)),
        "dim `G` is 12, not a multiple of 8 (argument `x`: expected u8[G], got u8[12])",
    ),
    (
        "pair",
        lambda e: e(f32(7), f32(3)),
        "entry `pair` needs M multiple of N, which does not hold for `M` = 7, `N` = 3",
    ),
    ("pair", lambda e: e(f32(3), f32(3)), "entry `pair` needs M >= N + 1, which does not hold for `M` = 3, `N` = 3"),
    ("pair", lambda e: e(f32(3), f32(0)), "dim `N` is 0, less than 1 (argument `y`: expected f32[N], got f32[0])"),
    ("cube", lambda e: e(np.zeros(1 << 22, np.uint8)), "result `y`: u8[S, S, S] is too large"),
    ("scalar", lambda e: e(True, 1, True), "argument `x`: expected f32, got the bool True"),
    ("scalar", lambda e: e(1.0, 1.0, True), "argument `n`: expected i64, got the float 1.0"),
    ("scalar", lambda e: e(1.0, 1, 1), "argument `positive`: expected bool, got the int 1"),
    (
        "scalar",
        lambda e: e(1.0, 1 << 63, True),
        "argument `n`: expected i64, got 9223372036854775808, which does not fit",
    ),
    ("scalar", lambda e: e((1 << 24) + 1, 1, True), "argument `x`: expected f32, got 16777217" + SMALL),
    ("scalar", lambda e: e(1e39, 1, True), "argument `x`: expected f32, got 1e+39" + SMALL),
    ("scalar", lambda e: e(f32(1), 1, True), "argument `x`: expected f32, got f32[1] (rank 1, expected 0)"),
    ("add", lambda e: e(X, X, out=[X]), "result `sum` overlaps argument `x` in memory"),
    ("add", lambda e: e(X, X, out=3), "result `sum`: expected f32[2, 3], got an int"),
    ("add", lambda e: e(X, X, out=f32(2, 2)), "result `sum`: expected f32[2, 3], got f32[2, 2]"),
    ("add", lambda e: e(X, X, out=np.zeros((2, 3))), "result `sum`: expected f32[2, 3], got f64[2, 3]"),
    ("add", lambda e: e(X, X, out=FROZEN), "result `sum`: expected f32[2, 3], got an array that is not writeable"),
    (
        "add",
        lambda e: e(X, X, out=np.lib.stride_tricks.as_strided(f32(3), (2, 3), (0, 4))),
        "result `sum`: expected f32[2, 3], got an array whose elements share memory",
    ),
    ("add", lambda e: e(X, X, out=(X, X)), "entry `add` has 1 result (sum), got 2"),
    ("add", lambda e: e(X, X, out={"total": X}), "entry `add` has 1 result (sum), got (total)"),
    ("split", lambda e: e(f32(3), out=f32(2)), "entry `split` has 2 results (head, tail), got 1"),
]


@pytest.mark.parametrize(("entry", "call", "message"), REFUSED, ids=[f"{e}-{m[:60]}" for e, _, m in REFUSED])
def test_refusals(model: Model, entry: str, call: Call, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call(model.entries[entry])
    assert str(caught.value) == message


def test_results_may_not_overlap_each_other(model: Model) -> None:
    memory = f32(3)
    with pytest.raises(ArgumentError, match="result `tail` overlaps result `head` in memory"):
        model.entries["split"](f32(3), out=(memory[:1], memory[:2]))


def test_a_refused_call_leaves_the_results_alone(model: Model) -> None:
    out = np.full((2, 3), 5, np.float32)
    with pytest.raises(ArgumentError):
        model.entries["add"](X, f32(2, 4), out=out)
    assert (out == 5).all()
    assert np.array_equal(model.entries["add"](X + 1, X, out=out), X + 1)
