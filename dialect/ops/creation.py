"""Tensors from sizes alone: ranges, constants, triangles, and a symbolic size as a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dims import Size
from ..emitter import BodyEmitter, Emitter, Scalar, Tensor, identity
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, LateCases, Operand, Operator, Use
from ..types import ANY, BOOL, F16, F32, I8, I32, I64, DType, TensorType
from .support.accumulate import Numbers
from .support.arguments import bad_attribute, is_size, read_number, read_size, read_sizes
from .support.common import normalize_axis, same_type

_GENERATOR = frozenset({"generator"})
_DTYPES = (BOOL, I8, I32, I64, F16, F32)
"""The dtypes in the cases of operators without operands."""


def _no_gradient(b: Builder, use: Use) -> Sequence[Value]:
    return ()


def _cases(*given: dict[str, Any], dtypes: Sequence[DType] = _DTYPES) -> tuple[Case, ...]:
    return tuple(Case((), {**a, "dtype": dtype}, dtypes=(dtype,)) for a in given for dtype in dtypes)


def _infer_iota(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    shape = read_sizes("iota", "shape", attributes["shape"])
    normalize_axis(attributes["axis"], len(shape), "iota")
    return (TensorType(attributes["dtype"], shape),)


def _reference_iota(shape: Any, axis: int, dtype: DType) -> Numbers:
    sizes = shape if isinstance(shape, tuple) else (shape,)
    along = np.arange(sizes[axis]).astype(dtype.numpy)
    return np.broadcast_to(
        along.reshape([-1 if i == axis % len(sizes) else 1 for i in range(len(sizes))]), sizes
    ).copy()


def _lower_iota(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    axis = normalize_axis(attributes["axis"], types[0].rank, "iota")
    return [e.map(types[0], [], lambda s: s.cast(s.index(axis), types[0].dtype))]


iota = Operator(
    name="iota",
    summary="the numbers 0, 1, 2, ... along an axis; a single size gives a vector",
    operands=(),
    attributes=(
        AttributeSpec("shape", "sizes"),
        AttributeSpec("axis", "axis", 0),
        AttributeSpec("dtype", "dtype", I64),
    ),
    infer=_infer_iota,
    reference=_reference_iota,
    gradient=_no_gradient,
    lower=_lower_iota,
    cases=LateCases(
        lambda: _cases(
            {"shape": 7}, {"shape": 1}, {"shape": (3, 5), "axis": -1}, {"shape": (3, 0)}, {"shape": (2, 3), "axis": 0}
        )
    ),
    properties=_GENERATOR,
)


def _infer_full(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    read_number("full", "value", attributes["value"], attributes["dtype"])
    return (TensorType(attributes["dtype"], read_sizes("full", "shape", attributes["shape"])),)


full = Operator(
    name="full",
    summary="a tensor filled with one number",
    operands=(),
    attributes=(
        AttributeSpec("shape", "sizes"),
        AttributeSpec("value", "any"),
        AttributeSpec("dtype", "dtype", F32),
    ),
    infer=_infer_full,
    reference=lambda shape, value, dtype: np.full(shape, value).astype(dtype.numpy),
    gradient=_no_gradient,
    lower=lambda e, operands, attributes, types: [
        e.full(types[0], read_number("full", "value", attributes["value"], attributes["dtype"]))
    ],
    cases=LateCases(lambda: _cases({"shape": (3, 5), "value": 1}, {"shape": (), "value": 0}, {"shape": 0, "value": 1})),
    properties=_GENERATOR,
)

size_value = Operator(
    name="size_value",
    summary="a size, which may be symbolic, as an i64 scalar",
    operands=(),
    attributes=(AttributeSpec("size", "size"),),
    infer=lambda types, attributes: (_scalar_type(attributes["size"]),),
    reference=lambda size: np.asarray(size, np.int64),
    gradient=_no_gradient,
    lower=lambda e, operands, attributes, types: [e.map(types[0], [], lambda s: s.size(attributes["size"]))],
    cases=LateCases(lambda: (Case((), {"size": 7}, dtypes=(I64,)), Case((), {"size": 0}, dtypes=(I64,)))),
    properties=_GENERATOR,
)


def _scalar_type(size: Any) -> TensorType:
    if not is_size(size):
        raise bad_attribute("size_value", "size", size, "a size")
    return TensorType(I64)


def _infer_triangle(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    rows, columns = (read_size("triangular_mask", name, attributes[name]) for name in ("rows", "columns"))
    _check_diagonal("triangular_mask", attributes["diagonal"])
    return (TensorType(attributes["dtype"], (rows, columns)),)


def _check_diagonal(name: str, diagonal: Any) -> None:
    if not is_size(diagonal):
        raise bad_attribute(name, "diagonal", diagonal, "a size")


def _below(s: BodyEmitter, rank: int, diagonal: Size) -> Scalar:
    """Returns whether the element is on the diagonal or below it."""
    return s.compare("le", s.index(rank - 1), s.binary("add", s.index(rank - 2), s.size(diagonal)))


triangular_mask = Operator(
    name="triangular_mask",
    summary="a matrix that is true (or 1) where column <= row + diagonal",
    operands=(),
    attributes=(
        AttributeSpec("rows", "size"),
        AttributeSpec("columns", "size"),
        AttributeSpec("diagonal", "size", 0),
        AttributeSpec("dtype", "dtype", BOOL),
    ),
    infer=_infer_triangle,
    reference=lambda rows, columns, diagonal, dtype: np.tri(rows, columns, diagonal).astype(dtype.numpy),
    gradient=_no_gradient,
    lower=lambda e, operands, attributes, types: [
        e.map(types[0], [], lambda s: s.cast(_below(s, 2, attributes["diagonal"]), types[0].dtype))
    ],
    cases=LateCases(
        lambda: _cases(
            {"rows": 3, "columns": 5},
            {"rows": 5, "columns": 3, "diagonal": 1},
            {"rows": 4, "columns": 4, "diagonal": -2},
            {"rows": 0, "columns": 3},
            {"rows": 1, "columns": 1},
            dtypes=(BOOL, F32),
        )
    ),
    properties=_GENERATOR,
)


def _infer_eye(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    rows = read_size("eye", "n", attributes["n"])
    if isinstance(attributes["m"], DType):
        help_text = f"the second argument is the number of columns: `eye(n, dtype={attributes['m']})`"
        raise InferenceError("bad-attribute", f"`m` of `eye` is {attributes['m']}, expected a size", help=help_text)
    columns = rows if attributes["m"] is None else read_size("eye", "m", attributes["m"])
    return (TensorType(attributes["dtype"], (rows, columns)),)


eye = Operator(
    name="eye",
    summary="the identity matrix with n rows and m (or n) columns",
    operands=(),
    attributes=(AttributeSpec("n", "size"), AttributeSpec("m", "any", None), AttributeSpec("dtype", "dtype", F32)),
    infer=_infer_eye,
    reference=lambda n, m, dtype: np.eye(n, m).astype(dtype.numpy),
    gradient=_no_gradient,
    lower=lambda e, operands, attributes, types: [
        e.map(types[0], [], lambda s: s.cast(s.compare("eq", s.index(0), s.index(1)), types[0].dtype))
    ],
    cases=LateCases(lambda: _cases({"n": 4}, {"n": 1}, {"n": 3, "m": 5}, {"n": 0, "m": 2}, dtypes=(F32, I32))),
    properties=_GENERATOR,
)


def _lower_left(x: Numbers, diagonal: int) -> Numbers:
    return np.tri(x.shape[-2], x.shape[-1], diagonal, dtype=np.bool_)


def _triangle(
    name: str, summary: str, reference: Callable[..., Numbers], chosen: Callable[[BodyEmitter, int, Size], Scalar]
) -> Operator:
    """Builds the record of an operator that keeps one side of a diagonal and is 0 on the other."""

    def infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
        if types[0].rank < 2:
            raise InferenceError("rank-mismatch", f"`{name}` takes matrices, not {types[0]}", operand=0)
        _check_diagonal(name, attributes["diagonal"])
        return same_type(types, attributes)

    def lower(
        e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
    ) -> Sequence[Tensor]:
        rank = types[0].rank

        def element(s: BodyEmitter, x: Scalar) -> Scalar:
            return s.select(chosen(s, rank, attributes["diagonal"]), x, s.constant(0, x.dtype))

        return [e.map(types[0], [(operands[0], identity(rank))], element)]

    def differentiate(b: Builder, use: Use) -> Sequence[Value]:
        return b.apply(name, [use.gradient], use.attributes)

    return Operator(
        name=name,
        summary=summary,
        operands=(Operand("x", ANY),),
        attributes=(AttributeSpec("diagonal", "size", 0),),
        infer=infer,
        reference=reference,
        gradient=differentiate,
        lower=lower,
        cases=LateCases(
            lambda: (
                Case(((3, 5),)),
                Case(((2, 4, 4),), {"diagonal": 1}),
                Case(((4, 3),), {"diagonal": -2}),
                Case(((1, 1),)),
                Case(((0, 3),)),
            )
        ),
        properties=frozenset({"idempotent", "pointwise", "exact"}),
    )


OPERATORS = (
    iota,
    full,
    size_value,
    triangular_mask,
    eye,
    _triangle(
        "tril",
        "x with zeros above a diagonal of its last two axes",
        lambda x, diagonal: np.where(_lower_left(x, diagonal), x, np.zeros((), x.dtype)),
        _below,
    ),
    _triangle(
        "triu",
        "x with zeros below a diagonal of its last two axes",
        lambda x, diagonal: np.where(_lower_left(x, diagonal - 1), np.zeros((), x.dtype), x),
        lambda s, rank, diagonal: s.unary("not", _below(s, rank, diagonal - 1)),
    ),
)
