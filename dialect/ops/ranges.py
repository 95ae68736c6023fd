"""Grids and ranges of numbers: `linspace`, `meshgrid`, `tril_indices`, `triu_indices`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..differentiate import by_decomposition
from ..dims import Shape, Size
from ..emitter import BodyEmitter, Emitter, Scalar, Tensor
from ..graph import Constant, Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, LateCases, Operand, Operator
from ..types import ANY, F16, F32, F64, I64, TensorType
from .support.accumulate import Numbers
from .support.arguments import bad_attribute, is_integer, read_size


def _infer_linspace(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    dtype = attributes["dtype"]
    if not dtype.is_float or dtype.is_storage:
        raise bad_attribute("linspace", "dtype", dtype, "a float dtype")
    return (TensorType(dtype, (read_size("linspace", "size", attributes["size"]),)),)


def _reference_linspace(start: float, stop: float, size: int, endpoint: bool, dtype: Any) -> Numbers:
    steps = size - 1 if endpoint else size
    position = np.arange(size, dtype=np.float64)
    step = (stop - start) / max(steps, 1)
    made = np.where(position < size / 2, start + step * position, stop - step * (steps - position))
    return np.asarray(made).astype(dtype.numpy)


def _lower_linspace(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    start, stop = (float(attributes[name]) for name in ("start", "stop"))
    size: Size = types[0].shape[0]

    # The second half counts from the end, so that the last element is exact.
    def element(s: BodyEmitter) -> Scalar:
        def number(value: float) -> Scalar:
            return s.constant(value, F64)

        position, total = s.cast(s.index(0), F64), s.cast(s.size(size), F64)
        steps = s.binary("sub", total, number(1)) if attributes["endpoint"] else total
        step = s.binary("div", number(stop - start), s.binary("max", steps, number(1)))
        forth = s.binary("add", number(start), s.binary("mul", step, position))
        back = s.binary("sub", number(stop), s.binary("mul", step, s.binary("sub", steps, position)))
        near = s.compare("lt", position, s.binary("mul", total, number(0.5)))
        return s.cast(s.select(near, forth, back), types[0].dtype)

    return [e.map(types[0], [], element)]


linspace = Operator(
    name="linspace",
    summary="`size` numbers in equal steps from `start` to `stop`, or to the step before it without `endpoint`; "
    "computed in f64",
    operands=(),
    attributes=(
        AttributeSpec("start", "float"),
        AttributeSpec("stop", "float"),
        AttributeSpec("size", "size"),
        AttributeSpec("endpoint", "bool", True),
        AttributeSpec("dtype", "dtype", F32),
    ),
    infer=_infer_linspace,
    reference=_reference_linspace,
    gradient=lambda b, use: (),
    lower=_lower_linspace,
    cases=LateCases(
        lambda: tuple(
            Case((), {**given, "dtype": dtype}, dtypes=(dtype,))
            for given in (
                {"start": -1.0, "stop": 1.0, "size": 7},
                {"start": 0.0, "stop": 1.0, "size": 6, "endpoint": False},
                {"start": 3.0, "stop": 1.0, "size": 1},
                {"start": 0.0, "stop": 1.0, "size": 0},
            )
            for dtype in (F16, F32, F64)
        )
    ),
    properties=frozenset({"generator"}),
)


def _grid(types: Sequence[TensorType], indexing: str) -> tuple[Shape, list[int]]:
    """Returns the shape of the grid, and the axis of each operand in it."""
    order = list(range(len(types)))
    if indexing == "xy":
        order[:2] = order[:2][::-1]
    sizes = [type.shape[0] for type in types]
    return tuple(sizes[i] for i in order), order


def _infer_grid(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    for number, type in enumerate(types):
        if type.rank != 1:
            raise InferenceError("rank-mismatch", f"`meshgrid` takes vectors, not {type}", operand=number)
    shape, _ = _grid(types, attributes["indexing"])
    return tuple(type.with_shape(shape) for type in types)


def _decompose_grid(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    shape, order = _grid([v.type for v in operands], attributes["indexing"])
    results = []
    for axis, value in zip(order, operands, strict=True):
        along = tuple(value.type.shape[0] if i == axis else 1 for i in range(len(shape)))
        results.append(b.broadcast_to(b.reshape(value, shape=along), shape=shape))
    return results


meshgrid = Operator(
    name="meshgrid",
    summary="one tensor for each vector, which holds its numbers along an axis of their grid; the axes are in the "
    'order of the vectors, or with the first two exchanged if `indexing` is "xy"',
    operands=(Operand("vectors", ANY, variadic=True),),
    attributes=(AttributeSpec("indexing", "str", "ij", choices=("ij", "xy")),),
    infer=_infer_grid,
    reference=lambda *xs, indexing: tuple(np.array(a) for a in np.meshgrid(*xs, indexing=indexing)),
    gradient=by_decomposition(_decompose_grid),
    decompose=_decompose_grid,
    cases=LateCases(
        lambda: (
            Case(((3,), (4,))),
            Case(((3,), (2,), (5,)), {"indexing": "xy"}),
            Case(((1,),)),
            Case(((3,), (0,)), {"indexing": "xy"}),
        )
    ),
    properties=frozenset({"composite", "movement"}),
    results=("grids",),
)


def _triangle(name: str, attributes: Attributes) -> tuple[Numbers, ...]:
    rows, columns, diagonal = (attributes[each] for each in ("rows", "columns", "diagonal"))
    columns = rows if columns is None else columns
    for each, value in (("rows", rows), ("columns", columns), ("diagonal", diagonal)):
        if not is_integer(value) or (each != "diagonal" and value < 0):
            raise bad_attribute(name, each, value, "a number that is known at compile time")
    find = np.tril_indices if name == "tril_indices" else np.triu_indices
    return find(rows, diagonal, columns)


def _indices(name: str, summary: str) -> Operator:
    def infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
        return tuple(TensorType(I64, found.shape) for found in _triangle(name, attributes))

    def decompose(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
        parts = _triangle(name, attributes)
        return [b.apply("constant", (), {"value": Constant(part.astype(np.int64))})[0] for part in parts]

    return Operator(
        name=name,
        summary=summary,
        operands=(),
        attributes=(
            AttributeSpec("rows", "int"),
            AttributeSpec("columns", "int?", None),
            AttributeSpec("diagonal", "int", 0),
        ),
        infer=infer,
        reference=lambda **given: tuple(found.astype(np.int64) for found in _triangle(name, given)),
        gradient=lambda b, use: (),
        decompose=decompose,
        cases=LateCases(
            lambda: tuple(
                Case((), given, dtypes=(I64,))
                for given in (
                    {"rows": 4},
                    {"rows": 3, "columns": 5, "diagonal": 1},
                    {"rows": 1},
                    {"rows": 1, "columns": 1, "diagonal": -1 if name == "tril_indices" else 1},
                    {"rows": 5, "columns": 3, "diagonal": -1},
                )
            )
        ),
        properties=frozenset({"composite"}),
        results=("row", "column"),
    )


OPERATORS = (
    linspace,
    meshgrid,
    _indices("tril_indices", "the row and the column of each element of a triangle at or below a diagonal, row by row"),
    _indices("triu_indices", "the row and the column of each element of a triangle at or above a diagonal, row by row"),
)
