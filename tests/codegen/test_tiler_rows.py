"""What works along rows, on watched memory and with units in any order: reductions over any axes, softmax with rows of
minus infinity and NaN, norms of constant rows, attention of many lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from differential.directed import LEVELS, assert_right, case
from differential.maker import Graph
from differential.native import Level
from nacre.dialect.types import Array

LENGTHS = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130, 513, 1030)


def odd_rows(shape: Sequence[int]) -> Array:
    """Rows in turn: ordinary, all minus infinity, one NaN, constant, one plus infinity, huge, one number among minus
    infinities, zeros of either sign."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal(shape)
    rows = x.reshape(-1, shape[-1]) if shape[-1] else x.reshape(0, 1)
    for i, row in enumerate(rows):
        place = i % len(row)
        match i % 8:
            case 1:
                row[:] = -np.inf
            case 2:
                row[place] = np.nan
            case 3:
                row[:] = 0.1
            case 4:
                row[place] = np.inf
            case 5:
                row *= 1e30
            case 6:
                row[:] = -np.inf
                row[place] = 2
            case 7:
                row[:] = np.copysign(0.0, row)
    return x


def along(op: str, axis: int) -> Any:
    return lambda b, x: b.apply(op, [x], {"axis": axis})[0]


def over(op: str, axes: tuple[int, ...], keepdims: bool = False) -> Any:
    return lambda b, x: b.apply(op, [x], {"axis": axes, "keepdims": keepdims})[0]


def reductions() -> list[Graph]:
    graphs = []
    lengths = [{"L": n} for n in (*LENGTHS[::2], 0)]
    for number, op in enumerate(("sum", "max", "min", "mean", "prod", "variance", "logsumexp")):
        clipped = (lambda f: lambda b, x: f(b, b.clip(x, low=-1, high=1)))(over(op, (-1,)))
        graphs.append(case(f"{op}_last", clipped, "f32[5, L]", sizes=lengths[number % 2 :: 2] + lengths[-1:]))
        for name, axes in (("first", (0,)), ("middle", (1,)), ("outer", (0, 2)), ("inner", (1, 2)), ("all", (0, 1, 2))):
            odd = {"L": LENGTHS[(3 * number + len(name)) % 14]}
            write = over(op, axes, keepdims=number % 2 == 0)
            graphs.append(case(f"{op}_{name}", write, "f32[3, L, 9]", sizes=[odd, {"L": 17}]))
    for op in ("argmax", "argmin"):
        graphs += [
            case(f"{op}_last", along(op, -1), "f32[9, L]", sizes=lengths[:-1:2]),
            case(f"{op}_first", along(op, 0), "f32[L, 19]", sizes=lengths[1:-1:2]),
            case(f"{op}_odd", along(op, -1), "f32[17, 33]", given={0: odd_rows}),
            case(f"{op}_i32", along(op, -1), "i32[17, 33]"),
        ]
    graphs += [case(f"{op}_odd", over(op, (-1,)), "f32[17, 33]", given={0: odd_rows}) for op in ("max", "min", "sum")]
    graphs += [
        case(f"{op}_{d}", over(op, (-1,)), f"{d}[5, 33]") for op in ("sum", "max") for d in ("i32", "i64", "f64", "f16")
    ]
    graphs += [case(f"{op}_bool", over(op, (-1,)), "bool[5, 33]") for op in ("any", "all")]
    return graphs


def by_hand(b: Any, x: Any) -> Sequence[Any]:
    centred = b.subtract(x, b.max(x, axis=-1, keepdims=True))
    e = b.exp(centred)
    total = b.sum(e, axis=-1, keepdims=True)
    return [b.divide(e, total), b.subtract(centred, b.log(total))]


def normed(b: Any, x: Any, w: Any, bias: Any) -> Any:
    return b.layer_norm(x, w, bias, axes=-1)


def residual_norm(b: Any, x: Any, y: Any, w: Any) -> Sequence[Any]:
    total = b.add(x, y)
    return [b.rms_norm(total, w), total]


def embedded(b: Any, table: Any, positions: Any, w: Any, ids: Any) -> Any:
    return b.layer_norm(b.add(b.embedding(table, ids), positions), w, axes=-1)


def softmax_and_norms() -> list[Graph]:
    lengths = [{"L": n} for n in LENGTHS]
    return [
        case("softmax", along("softmax", -1), "f32[4, L]", sizes=[*lengths[::2], {"L": 0}]),
        case("softmax_static", along("softmax", -1), "f32[M, 37]", sizes=[{"M": m} for m in (0, 1, 2, 7, 8, 9, 130)]),
        case("softmax_first", along("softmax", 0), "f32[L, 20]", sizes=lengths[1::4]),
        case("softmax_middle", along("softmax", 1), "f32[2, L, 17]", sizes=lengths[::4]),
        case("softmax_long", along("softmax", -1), "f32[3, 4099]"),
        case("log_softmax", along("log_softmax", -1), "f32[4, L]", sizes=lengths[1::2]),
        case("softmax_odd_rows", along("softmax", -1), "f32[16, L]", sizes=lengths[2::3], given={0: odd_rows}),
        case("softmax_odd_static", along("softmax", -1), "f32[24, 49]", given={0: odd_rows}),
        case("log_softmax_odd_rows", along("log_softmax", -1), "f32[16, 33]", given={0: odd_rows}),
        case("softmax_by_hand", by_hand, "f32[9, L]", sizes=lengths[::3]),
        case("softmax_by_hand_odd", by_hand, "f32[16, 17]", given={0: odd_rows}),
        case("norm", normed, "f32[5, L]", "f32[L]", "f32[L]", sizes=lengths[::2]),
        case(
            "norm_static", normed, "f32[M, 384]", "*f32[384]", "*f32[384]", sizes=[{"M": m} for m in (0, 1, 5, 16, 17)]
        ),
        case("norm_constant", normed, "f32[8, L]", "f32[L]", "f32[L]", sizes=lengths[1::4], given={0: np.ones}),
        case("norm_odd_rows", normed, "f32[16, 49]", "f32[49]", "f32[49]", given={0: odd_rows}),
        case(
            "norm_shifted",
            normed,
            "f32[8, 65]",
            "f32[65]",
            "f32[65]",
            given={0: lambda s: 1e4 + odd_rows((1, 65)).repeat(8, 0)},
        ),
        case("residual_norm", residual_norm, "f32[7, L]", "f32[7, L]", "f32[L]", sizes=lengths[::3]),
        case("norm_f64", normed, "f64[5, 33]", "f64[33]", "f64[33]"),
        case("norm_f16", normed, "f16[5, 33]", "f16[33]", "f16[33]"),
        case("group_norm", lambda b, x, w, v: b.group_norm(x, w, v, groups=3), "f32[2, 6, 5, 7]", "f32[6]", "f32[6]"),
        case(
            "embedded",
            embedded,
            "*f32[50, 48]",
            "*f32[17, 48]",
            "*f32[48]",
            "i64[B, 17]",
            sizes=[{"B": 1}, {"B": 3}],
            given={3: lambda s: np.arange(int(np.prod(s))).reshape(s) * 7 % 50},
        ),
    ]


def attends(causal: bool = False) -> Any:
    return lambda b, q, k, v, *mask: b.apply("attention", [q, k, v, *mask], {"causal": causal})[0]


def heads(b: Any, x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Any:
    """Self-attention of two heads, as an encoder has it."""
    batch, rows, width = x.type.shape

    def split(w: Any) -> Any:
        return b.transpose(b.reshape(b.matmul(x, w), shape=(batch, rows, 2, width // 2)), axes=(0, 2, 1, 3))

    q, k, v = split(wq), split(wk), split(wv)
    scores = b.multiply(b.matmul(q, b.matrix_transpose(k)), b.scalar(0.25, x.type.dtype))
    mixed = b.transpose(b.matmul(b.softmax(scores, axis=-1), v), axes=(0, 2, 1, 3))
    return b.add(x, b.matmul(b.reshape(mixed, shape=(batch, rows, width)), wo))


def keeps_few(shape: Sequence[int]) -> Array:
    """Some rows may look nowhere, others everywhere."""
    mask = np.random.default_rng(5).random(shape) < 0.4
    mask[..., ::3, :] = False
    mask[..., 1::5, :] = True
    return mask


def attention() -> list[Graph]:
    lengths = [{"T": t} for t in (1, 7, 37, 73, 128, 512)]
    qkv = ("f32[2, T, 16]",) * 3
    heads_types = ("f32[B, T, 32]", *("*f32[32, 32]",) * 4)
    return [
        case("attention", attends(), *qkv, sizes=lengths),
        case("attention_causal", attends(causal=True), *qkv, sizes=lengths),
        case("attention_static", attends(), *("f32[1, 2, 37, 8]",) * 3),
        case("attention_narrow", attends(), *("f32[3, 2, T, 1]",) * 3, sizes=lengths[1:3]),
        case("attention_wide", attends(), *("f32[2, T, 65]",) * 3, sizes=lengths[:3]),
        case(
            "attention_cross",
            attends(),
            "f32[2, T, 16]",
            "f32[2, S, 16]",
            "f32[2, S, 20]",
            sizes=[{"T": t, "S": s} for t, s in ((1, 49), (7, 1), (37, 130), (128, 16))],
        ),
        case(
            "attention_grouped",
            attends(causal=True),
            "f32[1, 6, T, 8]",
            "f32[1, 2, T, 8]",
            "f32[1, 2, T, 8]",
            sizes=lengths[:4],
        ),
        case("attention_causal_long", attends(causal=True), "f32[2, 270, 8]", "f32[2, 290, 8]", "f32[2, 290, 20]"),
        case("attention_causal_heads", attends(causal=True), "f32[1, 4, 300, 8]", *("f32[1, 2, 300, 8]",) * 2),
        # Their blocks have 128 rows, 104 rows with a shorter last block, and 72 rows.
        case("attention_many_rows", attends(), *("f32[16, 256, 8]",) * 3),
        case("attention_uneven_rows", attends(), *("f32[16, 300, 9]",) * 3),
        case("attention_few_keys", attends(), "f32[32, 130, 8]", *("f32[32, 41, 8]",) * 2),
        case("attention_added", attends(), *qkv, "f32[T, T]", sizes=lengths[:4]),
        case("attention_masked", attends(), *qkv, "bool[2, T, T]", sizes=lengths[:4], given={3: keeps_few}),
        case(
            "attention_one_row_mask",
            attends(),
            "f32[B, 2, T, 8]",
            "f32[B, 2, T, 8]",
            "f32[B, 2, T, 8]",
            "bool[B, 1, 1, T]",
            sizes=[{"B": 2, "T": 17}, {"B": 1, "T": 64}],
        ),
        case(
            "encoder_heads",
            heads,
            *heads_types,
            sizes=[{"B": b, "T": t} for b, t in ((1, 1), (2, 7), (1, 128), (3, 33))],
        ),
    ]


GROUPS = {make.__name__: make for make in (reductions, softmax_and_norms, attention)}


@pytest.mark.parametrize("level", LEVELS, ids=str)
@pytest.mark.parametrize("group", GROUPS)
def test_rows(group: str, level: Level) -> None:
    assert_right(GROUPS[group](), level)
