"""Inference with symbolic sizes: what is proved, what is clipped, and what is refused in which words."""

from __future__ import annotations

from typing import Any

import pytest
from nacre.dialect.dims import INFINITY, Size, Symbol
from nacre.dialect.operator import InferenceError
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import F32, I64, DType, TensorType


def dim(name: str, low: int = 1, high: int = INFINITY, multiple: int = 1) -> Any:
    return Symbol(name, low, high, multiple).size


B, T, S, H, W = (dim(name) for name in "BTSHW")


def f32(*shape: Size) -> TensorType:
    return TensorType(F32, shape)


def check(name: str, *types: TensorType, **attributes: Any) -> list[str]:
    return [", ".join(map(str, t.shape)) for t in OPERATORS[name].check(types, attributes)]


def refuse(name: str, *types: TensorType, **attributes: Any) -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        OPERATORS[name].check(types, attributes)
    return caught.value


def test_reshape_divides_exactly() -> None:
    assert check("reshape", f32(B, T, 384), shape=(B, T, 12, -1)) == ["B, T, 12, 32"]
    assert check("reshape", f32(B, T, 384), shape=(-1, 384)) == ["B*T, 384"]
    assert check("reshape", f32(B, 2 * T), shape=(B, T, -1)) == ["B, T, 2"]
    assert check("reshape", f32(dim("M", multiple=8), 3), shape=(-1, 8, 3)) == ["M//8, 8, 3"]
    assert check("flatten", f32(B, 3, T), start=1) == ["B, 3*T"]
    assert check("unsqueeze", f32(B, T), axes=(1, -1)) == ["B, 1, T, 1"]
    assert check("squeeze", f32(B, 1, T, 1), axes=None) == ["B, T"]


def test_reshape_names_both_counts() -> None:
    error = refuse("reshape", f32(B, T, 384), shape=(B, T, 100))
    assert (error.code, error.message) == ("shape-mismatch", "`reshape` cannot convert [B, T, 384] into [B, T, 100]")
    assert error.label == "384*B*T elements would become 100*B*T"
    error = refuse("reshape", f32(B, T, 10), shape=(B, -1, 3))
    assert error.label == "10*B*T elements are not a multiple of 3*B"
    error = refuse("reshape", f32(T), shape=(-1, 2))
    assert error.label == "T elements are not a multiple of 2"
    assert refuse("reshape", f32(6), shape=(-1, -1)).code == "bad-attribute"
    assert refuse("reshape", f32(6), shape="six").code == "bad-attribute"
    assert refuse("squeeze", f32(B, T), axes=1).message == "`squeeze` cannot drop axis 1 of size T"


def test_convolution() -> None:
    weight = f32(8, 3, 3, 3)
    assert check("conv2d", f32(B, 3, H, W), weight, padding=1) == ["B, 8, H, W"]
    assert check("conv2d", f32(B, 3, H, W), weight, padding="same") == ["B, 8, H, W"]
    assert check("conv2d", f32(B, 3, H, W), weight, padding=1, stride=2) == ["B, 8, (H + 1)//2, (W + 1)//2"]
    assert check("conv2d", f32(B, 3, 2 * H, 2 * W), weight, padding=1, stride=2) == ["B, 8, H, W"]
    large = dim("L", 16)
    assert check("conv1d", f32(B, 3, large), f32(8, 3, 5), dilation=2) == ["B, 8, L - 8"]
    # A tensor that may be shorter than the window has no windows then.
    assert check("conv1d", f32(B, 3, T), f32(8, 3, 3)) == ["B, 8, max(0, T - 2)"]
    assert check("conv_transpose1d", f32(B, 3, T), f32(3, 8, 4), stride=2, padding=1) == ["B, 8, 2*T"]
    assert check("conv1d", f32(B, 4 * S, T), f32(8 * S, S, 1), groups=4) == ["B, 8*S, T"]


def test_convolution_refuses() -> None:
    assert refuse("conv2d", f32(B, 3, H, W), f32(8, 4, 3, 3)).operand == 1
    message = refuse("conv1d", f32(1, 3, 4), f32(8, 3, 6)).message
    assert message == "a window of `conv1d` reaches over 6 elements, axis 2 with padding has 4"
    assert refuse("conv1d", f32(1, 3, T), f32(8, 3, 3), groups=2).code == "shape-mismatch"
    assert refuse("conv1d", f32(1, 3, T), f32(8, 3, 3), f32(7)).operand == 2
    assert refuse("conv1d", f32(1, 3, T, T), f32(8, 3, 3)).code == "rank-mismatch"
    for attributes in ({"stride": 0}, {"padding": -1}, {"padding": (1, 2, 3)}, {"dilation": "two"}, {"groups": 0}):
        assert refuse("conv1d", f32(1, 3, T), f32(8, 3, 3), **attributes).code == "bad-attribute"
    error = refuse("conv_transpose1d", f32(B, 3, T), f32(3, 8, 1), padding=1)
    assert error.message == "axis 2 of the result of `conv_transpose1d` would have size T - 2, which may be negative"


def test_pooling() -> None:
    assert check("max_pool2d", f32(B, 3, 2 * H, W), kernel=2) == ["B, 3, H, W//2"]
    assert check("avg_pool1d", f32(B, 3, T), kernel=3, stride=1, padding=1) == ["B, 3, T"]
    assert check("global_avg_pool", f32(B, 3, H, W)) == ["B, 3, 1, 1"]
    assert refuse("max_pool1d", f32(B, 3, 2), kernel=3).code == "shape-mismatch"


def test_slices_are_clipped_where_nothing_else_is_known() -> None:
    def cut(size: Size, start: Any, stop: Any, step: int = 1) -> str:
        return check("slice", f32(size), starts=(start,), stops=(stop,), steps=(step,))[0]

    assert cut(T, 1, None) == "T - 1"
    assert cut(T, 0, -1) == "T - 1"
    assert cut(T, -1, None) == "1"
    assert cut(T, 0, 5) == "min(5, T)"
    assert cut(dim("N", 8), 0, 5) == "5"
    assert cut(T, None, None, -1) == "T"
    assert cut(2 * T, 0, None, 2) == "T"
    assert cut(T, 0, None, 2) == "(T + 1)//2"
    assert cut(S + T, S, S + T) == "T"
    assert cut(S + T, S, None) == "T"
    assert cut(S + T, 0, -T) == "S"
    # Nothing is left of an axis that turns out to be empty.
    rest = OPERATORS["slice"].check([f32(dim("Z", 0))], {"starts": (1,), "stops": (None,)})[0]
    assert [rest.concrete({"Z": n}) for n in (0, 1, 5)] == [(0,), (0,), (4,)]
    assert check("slice", f32(B, T), starts=(0,), stops=(1,)) == ["1, T"]


def test_slices_refuse_bounds_of_unknown_sign() -> None:
    error = refuse("slice", f32(T), starts=(S - 2,), stops=(None,))
    assert error.message == "`starts` of `slice` is S - 2, which may be negative or not"
    assert "dim" in error.help
    assert refuse("slice", f32(T), starts=(0,), stops=(1,), steps=(0,)).code == "bad-attribute"
    assert refuse("slice", f32(T), starts=(0, 0), stops=(1, 1)).code == "bad-attribute"
    assert refuse("slice", f32(T), starts=(0.5,), stops=(1,)).code == "bad-attribute"


def test_joining() -> None:
    assert check("concat", f32(B, T, 4), f32(B, S, 4), f32(B, 1, 4), axis=1) == ["B, S + T + 1, 4"]
    assert check("stack", f32(B, T), f32(B, T), axis=-1) == ["B, T, 2"]
    assert check("split", f32(B, 3 * T), parts=3, axis=1) == ["B, T"] * 3
    assert check("split", f32(S + T), parts=(S, T)) == ["S", "T"]
    error = refuse("concat", f32(B, T), f32(B, S), axis=0)
    assert error.message == "`concat` cannot join f32[B, T] and f32[B, S]"
    assert (error.label, error.operand) == ("sizes T and S differ in axis 1", 1)
    assert refuse("split", f32(T), parts=2).message == "`split` cannot split T into 2 equal parts"
    assert refuse("split", f32(T), parts=(S, 1)).label == "the parts add up to S + 1"


def test_movement() -> None:
    assert check("transpose", f32(B, T, 4), axes=(2, 0, 1)) == ["4, B, T"]
    assert check("broadcast_to", f32(1, T), shape=(B, S, T)) == ["B, S, T"]
    assert check("tile", f32(T), repeats=(B, 2)) == ["B, 2*T"]
    assert check("pad", f32(T, 3), widths=((1, S), (0, 0))) == ["S + T + 1, 3"]
    assert check("repeat_interleave", f32(2, T), repeats=S) == ["2, S*T"]
    assert check("depth_to_space", f32(B, 4 * T, H, W), block=2) == ["B, T, 2*H, 2*W"]
    assert refuse("broadcast_to", f32(S, T), shape=(B, T)).code == "shape-mismatch"
    assert refuse("transpose", f32(S, T), axes=(0, 0)).code == "bad-attribute"


def test_contractions() -> None:
    assert check("matmul", f32(B, 1, T, 4), f32(S, 4, T)) == ["B, S, T, T"]
    assert check("einsum", f32(B, T, 4), f32(B, S, 4), equation="bid,bjd->bij") == ["B, T, S"]
    error = refuse("einsum", f32(B, T), f32(S, 4), equation="bi,bj->ij")
    assert error.message == "`einsum` gives the index `b` two sizes, B and S"
    for equation in ("ij", "ij->", "i,j->k", "i1,j->i", "ij,jk->ii", "...,..->"):
        assert refuse("einsum", f32(B, T, 3), f32(T, S), equation=equation).code == "bad-attribute"
    heads = f32(B, 8, T, 16), f32(B, 2, S, 16), f32(B, 2, S, 16)
    assert check("attention", *heads) == ["B, 8, T, 16"]
    assert check("attention", *heads, f32(B, 1, T, S)) == ["B, 8, T, 16"]
    assert refuse("attention", *heads, f32(B, T, S)).operand == 3


def test_indices() -> None:
    def ids(*shape: Size, dtype: DType = I64) -> TensorType:
        return TensorType(dtype, shape)

    assert check("gather", f32(S, 3), ids(B, T)) == ["B, T, 3"]
    assert check("embedding", f32(100, 8), ids(B, T)) == ["B, T, 8"]
    assert check("one_hot", ids(B), depth=T) == ["B, T"]
    assert check("take_along_axis", f32(B, T), ids(1, S)) == ["B, S"]
    assert check("scatter_add", f32(S, 3), ids(T, 1), f32(T, 3)) == ["S, 3"]
    assert check("top_k", f32(B, T), k=5) == ["B, min(5, T)"] * 2
    assert check("top_k", f32(B, dim("V", 100)), k=5) == ["B, 5"] * 2
    assert refuse("top_k", f32(3), k=5).code == "bad-attribute"
    assert refuse("gather", f32(S), f32(T)).code == "dtype-mismatch"
    at = ids()
    assert check("dynamic_slice", f32(T + S, 3), at, at, sizes=(T, 3)) == ["T, 3"]
    assert check("dynamic_slice", f32(S, 3), at, at, sizes=(T, 3)) == ["T, 3"]
    error = refuse("dynamic_slice", f32(S, 3), at, at, sizes=(T, 4))
    assert error.message == "a window of 4 elements never fits into axis 1, which has 3"
    assert refuse("dynamic_update_slice", f32(S, 3), f32(S, 3), at).code == "wrong-operands"


def test_resize_and_creation() -> None:
    assert check("resize", f32(B, 3, H, W), scales=(2, 1.5)) == ["B, 3, 2*H, W + W//2"]
    assert check("resize", f32(B, 3, H), sizes=(S,), mode="linear") == ["B, 3, S"]
    assert check("iota", shape=T) == ["T"]
    assert check("triangular_mask", rows=T, columns=S, diagonal=S - T) == ["T, S"]
    assert check("full", shape=(B, T), value=1) == ["B, T"]
    assert refuse("full", shape=(T,), value=0.5, dtype=I64).code == "bad-attribute"
    assert refuse("resize", f32(T), sizes=None).code == "bad-attribute"
    assert refuse("iota", shape=(-1,)).code == "bad-attribute"
