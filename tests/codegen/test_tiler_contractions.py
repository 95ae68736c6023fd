"""Contractions of any size, with what follows them in a layer, on watched memory and with units in any order: sizes
around the widths of vectors and tiles in each of the three dims, weights of every kind, batches, windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from differential.directed import LEVELS, assert_right, case
from differential.maker import Binding, Graph
from differential.native import Level

EDGES = (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 47, 48, 49, 95, 96, 97, 130)


def some(name: str, start: int, step: int = 3) -> list[Binding]:
    """Every third of the sizes, others for another start."""
    return [{name: size} for size in EDGES[start % step :: step]]


def product(b: Any, x: Any, w: Any) -> Any:
    return b.matmul(x, w)


def stored_transposed(b: Any, x: Any, w: Any) -> Any:
    return b.matmul(x, b.matrix_transpose(w))


def transposed_left(b: Any, x: Any, w: Any) -> Any:
    return b.matmul(b.matrix_transpose(x), w)


def of_rows(b: Any, x: Any, y: Any) -> Any:
    return b.tanh(b.einsum(x, y, equation="...km,...kn->...mn"))


def layer(b: Any, x: Any, w: Any, bias: Any) -> Any:
    return b.gelu(b.add(b.matmul(x, w), bias))


def residual(b: Any, x: Any, w: Any, bias: Any, other: Any) -> Any:
    return b.add(other, b.add(b.matmul(x, w), bias))


def bias_of_rows(b: Any, x: Any, w: Any, bias: Any) -> Any:
    return b.relu(b.subtract(b.matmul(x, w), b.unsqueeze(bias, axes=-1)))


def scaled(b: Any, x: Any, w: Any, scale: Any) -> Any:
    return b.multiply(b.matmul(x, w), scale)


def kept_as_well(b: Any, x: Any, w: Any) -> Sequence[Any]:
    y = b.matmul(x, w)
    return [b.tanh(y), y]


def two_layers(b: Any, x: Any, w: Any, v: Any) -> Any:
    return b.matmul(b.relu(b.matmul(x, w)), v)


def normed(b: Any, x: Any, w: Any, bias: Any) -> Any:
    return b.layer_norm(b.add(b.matmul(x, w), bias), bias, axes=-1)


def convolved(**attributes: Any) -> Any:
    return lambda b, x, w, *bias: b.relu(b.apply(f"conv{x.type.rank - 2}d", [x, w, *bias], attributes)[0])


def sizes_of_all() -> list[Graph]:
    """Symbolic rows with each width, then symbolic columns, then symbolic inner sizes."""
    rows = [
        case(f"rows_{n}_{k}", product, f"f32[M, {k}]", f"{'*' if i % 2 else ''}f32[{k}, {n}]", sizes=some("M", i))
        for i, (n, k) in enumerate(zip(EDGES[1:], (7, 1, 33, 2, 3, 96, 17, 8) * 2, strict=True))
    ]
    columns = [
        case(f"columns_{m}_{k}", product, f"f32[{m}, {k}]", f"f32[{k}, N]", sizes=some("N", i))
        for i, (m, k) in enumerate(((1, 16), (7, 5), (8, 1), (17, 33)))
    ]
    inner = [
        case(f"inner_{m}_{n}", product, f"f32[{m}, K]", f"f32[K, {n}]", sizes=some("K", i))
        for i, (m, n) in enumerate(((1, 1), (9, 48), (3, 17), (8, 130)))
    ]
    return [*rows, *columns, *inner]


def static_sizes() -> list[Graph]:
    shapes = [
        (m, n, k) for i, m in enumerate(EDGES) for j, n in enumerate(EDGES) for k in [EDGES[(3 * i + 5 * j) % 17]]
    ]
    return [case(f"static_{m}_{n}_{k}", product, f"f32[{m}, {k}]", f"f32[{k}, {n}]") for m, n, k in shapes[::13]]


def layers() -> list[Graph]:
    writes: list[tuple[Any, tuple[str, ...]]] = [
        (layer, ("f32[N]",)),
        (residual, ("f32[N]", "f32[M, N]")),
        (bias_of_rows, ("f32[M]",)),
        (scaled, ("f32[]",)),
        (kept_as_well, ()),
        (normed, ("f32[N]",)),
    ]
    graphs = []
    for i, (write, more) in enumerate(writes):
        for n, k in (((48, 16), (17, 33)), ((1, 8), (130, 3)))[i % 2]:
            rest = [t.replace("N", str(n)).replace("[]", "") for t in more]
            weight = f"{'*' if n != 17 else ''}f32[{k}, {n}]"
            name = f"{write.__name__}_{n}_{k}"
            graphs.append(case(name, write, f"f32[M, {k}]", weight, *rest, sizes=some("M", i, 4)))
    graphs += [case("two_layers", two_layers, "f32[M, 16]", "*f32[16, 49]", "*f32[49, 20]", sizes=some("M", 1))]
    return graphs


def layouts() -> list[Graph]:
    every = [
        case("weight_transposed", stored_transposed, "f32[M, 33]", "f32[49, 33]", sizes=some("M", 0)),
        case("parameter_transposed", stored_transposed, "f32[M, 33]", "*f32[49, 33]", sizes=some("M", 1)),
        case("left_transposed", transposed_left, "f32[33, M]", "f32[33, 49]", sizes=some("M", 2)),
        # Panels that many rows share are copied: whole ones, those of a batch, for blocks of rows, and in stretches.
        case("apart", residual, "f32[65, 33]", "f32[33, 97]", "f32[97]", "f32[65, 97]"),
        case("apart_batched", product, "f32[2, 3, 67, 40]", "f32[2, 3, 40, 50]"),
        case("apart_left_transposed", transposed_left, "f32[40, 600]", "f32[40, 20]"),
        case("apart_long", product, "f32[64, 3201]", "f32[3201, 49]"),
        case("transposed_long", stored_transposed, "f32[70, 3201]", "f32[49, 3201]"),
        # Blocks of both operands are copied: one stretch, several of them, groups of one panel and of several.
        case("both_apart", of_rows, "f32[128, 64]", "f32[128, 48]"),
        case("both_apart_long", of_rows, "f32[301, 96]", "f32[301, 192]"),
        case("both_apart_batched", of_rows, "f32[2, 150, 128]", "f32[2, 150, 96]"),
        case("batched", product, "f32[B, M, 17]", "f32[B, 17, 20]", sizes=[{"B": 3, "M": m} for m in (0, 1, 9, 48)]),
        case("no_batch", product, "f32[B, 5, 17]", "f32[B, 17, 20]", sizes=[{"B": 0}, {"B": 1}]),
        case("shared_right", product, "f32[B, 3, M, 17]", "f32[17, 49]", sizes=[{"B": 2, "M": m} for m in (1, 7, 17)]),
        case("shared_left", product, "f32[M, 17]", "f32[4, 17, 16]", sizes=some("M", 1, 4)),
        case("broadcast_both", product, "f32[3, 1, M, 5]", "f32[1, 4, 5, 33]", sizes=some("M", 0, 4)),
        case("in_f64", product, "f64[M, 33]", "f64[33, 50]", sizes=some("M", 0, 4)),
        case("apart_in_f64", residual, "f64[65, 33]", "f64[33, 49]", "f64[49]", "f64[65, 49]"),
        case("transposed_in_f64", stored_transposed, "f64[70, 700]", "f64[29, 700]"),
        case("rows_transposed_in_f64", stored_transposed, "f64[M, 33]", "f64[49, 33]", sizes=some("M", 0, 4)),
        case("both_apart_in_f64", of_rows, "f64[301, 96]", "f64[301, 48]"),
        case("in_f16", product, "f16[M, 33]", "f16[33, 50]", sizes=some("M", 1, 4)),
        case("in_i32", product, "i32[M, 33]", "i32[33, 50]", sizes=some("M", 2, 4)),
    ]
    for equation in ("mk,nk->mn", "mk,kn->nm", "km,kn->mn", "mk,kn->m", "amk,akn->man", "mak,nak->mn", "mk,mk->m"):
        left, right = equation.partition("->")[0].split(",")
        sizes = {"m": "M", "n": "17", "k": "9", "a": "3"}
        types = [f"f32[{', '.join(sizes[c] for c in side)}]" for side in (left, right)]
        name = "einsum_" + equation.replace(",", "_").replace("->", "_to_")
        write = lambda b, x, y, e=equation: b.einsum(x, y, equation=e)  # noqa: E731 (one of many)
        every.append(case(name, write, *types, sizes=some("M", len(name), 4)))
    return every


def windows() -> list[Graph]:
    return [
        case(
            "conv_1d",
            convolved(padding=2),
            "f32[B, 5, L]",
            "*f32[7, 5, 5]",
            sizes=[{"B": 2, "L": n} for n in EDGES[1::4]],
        ),
        case("conv_3x3", convolved(padding=1), "f32[2, 3, 11, 19]", "*f32[9, 3, 3, 3]", "f32[9]"),
        case("conv_1x1", convolved(), "f32[B, 17, 7, 7]", "*f32[33, 17, 1, 1]", sizes=[{"B": 0}, {"B": 3}]),
        case("conv_stride", convolved(stride=2, padding=1), "f32[1, 4, 15, 18]", "f32[8, 4, 3, 3]", "f32[8]"),
        case("conv_dilated", convolved(dilation=2), "f32[1, 4, 20, 40]", "f32[16, 4, 3, 3]"),
        case("conv_grouped", convolved(groups=2, padding="same"), "f32[1, 6, 9, 17]", "*f32[8, 3, 3, 3]"),
        case("conv_depthwise", convolved(groups=17, padding=1), "f32[2, 17, 16, 33]", "*f32[17, 1, 3, 3]", "*f32[17]"),
        case("conv_depthwise_5", convolved(groups=8, padding=2, stride=2), "f32[1, 8, 14, 14]", "*f32[8, 1, 5, 5]"),
        case("conv_multiplied", convolved(groups=3, padding=1), "f32[1, 3, 8, 8]", "*f32[6, 1, 3, 3]"),
        case("conv_many_channels", convolved(padding=1), "f32[1, 33, 18, 19]", "*f32[48, 33, 3, 3]", "*f32[48]"),
        case(
            "conv_many_channels_rows",
            convolved(padding=1),
            "f32[B, 32, 16, 21]",
            "*f32[32, 32, 3, 3]",
            sizes=[{"B": 2}],
        ),
        case("conv_3d", convolved(padding=1), "f32[1, 3, 4, 6, 7]", "f32[5, 3, 2, 3, 3]"),
        case("conv_large_window", convolved(padding=3, stride=2), "f32[1, 3, 31, 31]", "*f32[16, 3, 7, 7]"),
    ]


def feed_forward(b: Any, x: Any, w: Any, bias: Any, v: Any, scale: Any) -> Any:
    hidden = b.gelu(b.add(b.matmul(x, w), bias))
    return b.layer_norm(b.add(b.matmul(hidden, v), x), scale, axes=-1)


def sizes_of_models() -> list[Graph]:
    """As encoders and decoders have them: long inner sums, many panels, a single row."""
    sizes: list[Binding] = [{"M": m} for m in (1, 5, 128)]
    weights = ("*f32[384, 1536]", "*f32[1536]", "*f32[1536, 384]", "*f32[384]")
    return [
        case("feed_forward", feed_forward, "f32[M, 384]", *weights, sizes=sizes),
        case("long_sum", product, "f32[M, 3000]", "*f32[3000, 50]", sizes=sizes[:2]),
        case("many_columns", product, "f32[M, 64]", "*f32[64, 5003]", sizes=sizes[:2]),
        case("many_columns_given", product, "f32[M, 64]", "f32[64, 1111]", sizes=sizes[:2]),
        # Rows that no cache holds are taken in groups, the last of which is smaller.
        case("groups_of_rows", product, "f32[M, 4096]", "*f32[4096, 97]", sizes=[{"M": m} for m in (1, 64, 65, 130)]),
        case("groups_of_rows_known", product, "f32[77, 4096]", "*f32[4096, 97]"),
    ]


def few_rows(b: Any, q: Any, k: Any, v: Any) -> Any:
    return b.apply("attention", [q, k, v], {"causal": True})[0]


def heads_in_the_middle(b: Any, q: Any, k: Any) -> Any:
    return b.apply("einsum", [q, k], {"equation": "bqhd,bkhd->bhqk"})[0]


def transposed_layer(b: Any, x: Any, w: Any, bias: Any) -> Any:
    return b.gelu(b.add(b.matmul(x, b.matrix_transpose(w)), bias))


def arguments_transposed() -> list[Graph]:
    """Second operands that are arguments and contiguous along the sum: rows of one block and of several, sums of one
    stretch and of several, parts of a panel."""
    rows = [{"M": m, "N": n, "K": k} for m, n, k in ((1, 48, 16), (3, 17, 1), (8, 5, 300), (257, 33, 31), (2, 0, 5))]
    return [
        case("turned", stored_transposed, "f32[M, K]", "f32[N, K]", sizes=rows),
        case("turned_one_row", stored_transposed, "f32[1, 33]", "f32[N, 33]", sizes=some("N", 1, 6)),
        case("turned_layer", transposed_layer, "f32[9, 530]", "f32[101, 530]", "f32[101]"),
        case("turned_batch", stored_transposed, "f32[B, 19, 64]", "f32[B, 49, 64]", sizes=[{"B": 3}]),
        case("turned_shared", stored_transposed, "f32[B, 2, 5, 40]", "f32[2, 50, 40]", sizes=[{"B": 2}]),
        case("heads", heads_in_the_middle, "f32[2, M, 3, 16]", "f32[2, N, 3, 16]", sizes=rows[:2]),
        case("few_rows", few_rows, "f32[2, 5, 16]", "f32[2, N, 16]", "f32[2, N, 20]", sizes=[{"N": 7}, {"N": 70}]),
        case("one_row", few_rows, "f32[1, 4, 1, 16]", *("f32[1, 2, N, 16]",) * 2, sizes=[{"N": 1}, {"N": 70}]),
    ]


GROUPS = {
    make.__name__: make
    for make in (arguments_transposed, sizes_of_all, static_sizes, layers, layouts, windows, sizes_of_models)
}


@pytest.mark.parametrize("level", LEVELS, ids=str)
@pytest.mark.parametrize("group", GROUPS)
def test_contractions(group: str, level: Level) -> None:
    assert_right(GROUPS[group](), level)
