"""Creation of tensors from numbers, and sizes of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .....dialect.dims import Poly
from .....dialect.types import F64, I64, DType
from ...writing.tensors import Tensor, known
from ..writing.use import Convert, Converters, Use


def _filled(use: Use, value: Tensor) -> Tensor:
    value = use.to(value, use.dtype) if value.rank == 0 else use.g.reshape(use.to(value, use.dtype), shape=())
    return value if not use.shape else use.g.broadcast_to(value, shape=use.shape)


def _of(name: str) -> Convert:
    return lambda use: [_filled(use, use.tensor(name))]


def _number(value: float) -> Convert:
    return lambda use: [_filled(use, known(value, use.dtype))]


def _arange(use: Use) -> Sequence[Tensor]:
    g = use.g
    count = use.shape[0]
    start = use.arguments.get("start")
    step = use.arguments.get("step")
    start, step = 0 if start is None else start, 1 if step is None else step
    whole = all(isinstance(each, (int, Poly)) for each in (start, step))
    wide: DType = I64 if whole else F64
    steps = use.to(g.iota(shape=(count,)), wide)
    if step != 1:
        steps = g.multiply(steps, _as(use, step, wide))
    if start != 0:
        steps = g.add(steps, _as(use, start, wide))
    return [use.to(steps, use.dtype)]


def _as(use: Use, value: Any, dtype: DType) -> Tensor:
    return use.g.size(value, dtype) if isinstance(value, Poly) else known(value, dtype)


def _copied(use: Use) -> Sequence[Tensor]:
    source = use.cast("src", use.dtype)
    return [source if source.shape == use.shape else use.g.broadcast_to(source, shape=use.shape)]


def _eye(use: Use) -> Sequence[Tensor]:
    rows, columns = use.shape
    return [use.g.eye(n=rows, m=columns, dtype=use.dtype)]


def _item(use: Use) -> Sequence[Tensor]:
    """Returns the only element. A float that is computed in a call is an f64 scalar; an integer could be a size."""
    x = use.tensor()
    if x.array is None and x.dtype.is_float:
        return [use.to(use.g.reshape(x, shape=()), F64)]
    if x.array is None:
        use.fail("reads a value that is computed in a call as a Python number", code="data-dependent")
    return [x.array.item()]


def _assertion(use: Use) -> Sequence[Any]:
    """Refuses the program unless the asserted condition on sizes holds for all values of the dims."""
    held = use.arguments.get("self")
    if isinstance(held, Tensor):
        use.fail("asserts a condition on values that are computed in a call", code="data-dependent")
    if not held:
        use.fail(f"asserts a condition that does not hold: {use.word('assert_msg')}", code="failed-assertion")
    return []


def _nothing(use: Use) -> Sequence[Any]:
    """Returns no results: the tracer has checked the assertion."""
    return []


def _sym_size(use: Use) -> Sequence[Any]:
    return [use.tensor().shape[use.axis()]]


def _sym_stride(use: Use) -> Sequence[Any]:
    return [int(use.values["self"].stride(use.number("dim")))]


CONVERTERS: Converters = {
    "full.default": _of("fill_value"),
    "full_like.default": _of("fill_value"),
    "new_full.default": _of("fill_value"),
    "fill.Scalar": _of("value"),
    "fill.Tensor": _of("value"),
    "scalar_tensor.default": _of("s"),
    **dict.fromkeys(("zeros.default", "zeros_like.default", "new_zeros.default"), _number(0)),
    **dict.fromkeys(("ones.default", "ones_like.default", "new_ones.default"), _number(1)),
    # `empty` and similar operators return arbitrary elements: zeros are a valid result.
    **dict.fromkeys(
        (
            "empty.memory_format", "empty_like.default", "empty_strided.default", "new_empty.default",
            "new_empty_strided.default", "empty_permuted.default",
        ),
        _number(0),
    ),
    "arange.default": _arange,
    "arange.start": _arange,
    "arange.start_step": _arange,
    "copy.default": _copied,
    "eye.default": _eye,
    "eye.m": _eye,
    "sym_size.int": _sym_size,
    "sym_numel.default": lambda use: [use.tensor().type.elements],
    "sym_stride.int": _sym_stride,
    "sym_storage_offset.default": lambda use: [int(use.values["self"].storage_offset())],
    "sym_is_contiguous.default": lambda use: [bool(use.values["self"].is_contiguous())],
    "_assert_scalar.default": _assertion,
    **dict.fromkeys(
        (
            "_assert_tensor_metadata.default", "sym_constrain_range_for_size.default",
            "sym_constrain_range.default",
        ),
        _nothing,
    ),
    "_local_scalar_dense.default": _item,
    "item.default": _item,
}  # fmt: skip
