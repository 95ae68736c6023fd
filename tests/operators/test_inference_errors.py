"""What operators refuse, each with its code and the operand at fault; and what they accept with symbolic sizes."""

from __future__ import annotations

from typing import Any

import pytest
from nacre.dialect.dims import Symbol
from nacre.dialect.operator import InferenceError
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import BOOL, F16, F32, F64, I8, I32, U8, DType, TensorType

B, T = Symbol("B", 1, 64).size, Symbol("T", 1, 512).size
EMPTY = Symbol("E", 0, 0).size


def f32(*shape: Any) -> TensorType:
    return TensorType(F32, shape)


def of(dtype: DType, *shape: Any) -> TensorType:
    return TensorType(dtype, shape)


REFUSED: tuple[tuple[str, tuple[TensorType, ...], dict[str, Any], str, str], ...] = (
    ("add", (f32(3), f32(4)), {}, "shape-mismatch", "cannot broadcast [3] and [4]"),
    ("add", (f32(B), f32(T)), {}, "shape-mismatch", "cannot broadcast [B] and [T]"),
    ("add", (f32(3), of(F16, 3)), {}, "dtype-mismatch", "mixes f32 and f16"),
    ("add", (f32(3),), {}, "wrong-operands", "takes 2 tensors, not 1"),
    ("add", (of(BOOL), of(BOOL)), {}, "dtype-mismatch", "cannot be bool"),
    ("divide", (of(I32), of(I32)), {}, "dtype-mismatch", "cannot be i32"),
    ("bitwise_and", (f32(), f32()), {}, "dtype-mismatch", "cannot be f32"),
    ("exp", (of(I32, 3),), {}, "dtype-mismatch", "cannot be i32"),
    ("logical_and", (of(I8), of(I8)), {}, "dtype-mismatch", "cannot be i8"),
    ("where", (f32(3), f32(3), f32(3)), {}, "dtype-mismatch", "`condition` of `where` cannot be f32"),
    ("where", (of(BOOL, 2), f32(3), f32(3)), {}, "shape-mismatch", "cannot broadcast"),
    ("relu", (f32(3),), {"slope": 1.0}, "bad-attribute", "no argument `slope`"),
    ("cast", (f32(3),), {}, "missing-argument", "needs the argument `dtype`"),
    ("cast", (f32(3),), {"dtype": "f16"}, "bad-attribute", "expected a dtype"),
    ("gelu", (f32(3),), {"approximate": "erf"}, "bad-attribute", "expected one of 'none', 'tanh'"),
    ("leaky_relu", (f32(3),), {"slope": "x"}, "bad-attribute", "expected a number"),
    ("prelu", (f32(3), f32(2, 3)), {}, "shape-mismatch", "cannot broadcast the slope [2, 3] to [3]"),
    ("clip", (f32(3),), {"low": 2, "high": 1}, "bad-attribute", "has low 2 above high 1"),
    ("clip", (of(I8, 3),), {"low": -200}, "bad-attribute", "which i8 cannot represent"),
    ("clip", (of(I32, 3),), {"high": 0.5}, "bad-attribute", "which i32 cannot represent"),
    ("sum", (f32(3, 4),), {"axis": 2}, "bad-axis", "has no axis 2"),
    ("sum", (f32(3, 4),), {"axis": (0, -2)}, "bad-axis", "names an axis twice"),
    ("sum", (f32(3, 4),), {"axis": "rows"}, "bad-attribute", "expected an axis or several"),
    ("sum", (f32(3, 4),), {"keepdims": 1}, "bad-attribute", "expected true or false"),
    ("mean", (of(I32, 3),), {}, "dtype-mismatch", "cannot be i32"),
    ("max", (f32(3, 0),), {"axis": 1}, "empty-reduction", "of no elements"),
    ("max", (f32(EMPTY),), {}, "empty-reduction", "of no elements"),
    ("argmax", (f32(0),), {}, "empty-reduction", "of no elements"),
    ("argmin", (f32(3, 0),), {"empty": "none"}, "bad-attribute", "expected one of 'error', 'zero'"),
    ("argmax", (f32(),), {}, "bad-axis", "has no axis -1"),
    ("norm", (f32(3),), {"order": 0}, "bad-attribute", "has the order 0"),
    ("norm", (f32(0),), {"order": float("inf")}, "empty-reduction", "of no elements"),
    ("cumsum", (f32(),), {}, "bad-axis", "has no axis -1"),
    ("linear_recurrence", (f32(3), f32(4)), {}, "shape-mismatch", "needs operands of one shape"),
    ("matmul", (of(U8, 2, 3), of(I8, 3, 2)), {}, "dtype-mismatch", "mixes u8 and i8"),
    ("matmul", (of(U8, 2, 3), of(I8, 3, 2)), {"into": F16}, "bad-attribute", "is f16, expected i32 or f32"),
    ("matmul", (of(U8, 2, 3), f32(3, 2)), {"into": I32}, "dtype-mismatch", "does not sum products of f32 into i32"),
    ("einsum", (f32(3), of(F64, 3)), {"equation": "i,i", "into": F32}, "dtype-mismatch", "products of f64 into f32"),
    (
        "conv1d",
        (of(U8, 1, 2, 3), of(I8, 4, 2, 1), of(I8, 4)),
        {"into": I32},
        "dtype-mismatch",
        "must be i32, the dtype of the sums, not i8",
    ),
    ("softmax", (f32(3),), {"axis": 1}, "bad-axis", "has no axis 1"),
    ("softmax", (f32(3),), {"axis": 1.0}, "bad-attribute", "expected an axis"),
    ("layer_norm", (f32(2, 3), f32(2)), {}, "shape-mismatch", "needs `weight` of shape [3]"),
    ("layer_norm", (f32(2, 3), f32(3), f32(2)), {}, "shape-mismatch", "needs `bias` of shape [3]"),
    ("layer_norm", (f32(2, 3),), {"axes": 0}, "bad-axis", "the last axes only"),
    ("rms_norm", (f32(2, T), f32(B)), {}, "shape-mismatch", "needs `weight` of shape [T]"),
    ("batch_norm", (f32(2, 3), f32(3)), {}, "wrong-operands", "takes at least 3 tensors, not 2"),
    ("batch_norm", (f32(2, 3), f32(3), f32(2)), {}, "shape-mismatch", "needs `variance` of shape [3]"),
    ("group_norm", (f32(2, 6, 5),), {"groups": 4}, "shape-mismatch", "cannot split 6 channels into 4 groups"),
    ("group_norm", (f32(2, T, 5),), {"groups": 4}, "shape-mismatch", "cannot split T channels into 4 groups"),
    ("group_norm", (f32(2, 6, 5),), {"groups": 0}, "bad-attribute", "expected at least 1"),
    ("instance_norm", (f32(3),), {}, "rank-mismatch", "needs a batch and a channel axis"),
)


@pytest.mark.parametrize(
    ("name", "types", "attributes", "code", "message"),
    REFUSED,
    ids=[f"{r[0]}-{r[3]}-{i}" for i, r in enumerate(REFUSED)],
)
def test_refused(name: str, types: tuple[TensorType, ...], attributes: dict[str, Any], code: str, message: str) -> None:
    with pytest.raises(InferenceError) as caught:
        OPERATORS[name].check(types, attributes)
    assert caught.value.code == code
    assert message in caught.value.message


T4 = Symbol("T4", 4, 512, multiple=4).size
ACCEPTED: tuple[tuple[str, tuple[TensorType, ...], dict[str, Any], TensorType], ...] = (
    ("add", (f32(B, 1, T), f32(T)), {}, f32(B, 1, T)),
    ("add", (f32(B, 1), f32(1, T)), {}, f32(B, T)),
    ("less", (f32(B), f32()), {}, of(BOOL, B)),
    ("sum", (f32(B, T, 3),), {"axis": (0, -1), "keepdims": True}, f32(1, T, 1)),
    ("max", (f32(B, T),), {"axis": 1}, f32(B)),
    ("softmax", (f32(B, T),), {}, f32(B, T)),
    ("layer_norm", (f32(B, T), f32(T), f32(T)), {}, f32(B, T)),
    ("group_norm", (f32(B, T4, 3), f32(T4)), {"groups": 4}, f32(B, T4, 3)),
    ("batch_norm", (f32(B, T, 3), f32(3), f32(3)), {"axis": -1}, f32(B, T, 3)),
)


@pytest.mark.parametrize(("name", "types", "attributes", "result"), ACCEPTED, ids=[row[0] for row in ACCEPTED])
def test_accepted(name: str, types: tuple[TensorType, ...], attributes: dict[str, Any], result: TensorType) -> None:
    assert OPERATORS[name].check(types, attributes) == (result,)
