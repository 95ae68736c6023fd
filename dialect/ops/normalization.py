"""Normalisations by mean and variance, written with simpler operators; f16 and bf16 are computed in f32 throughout."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..differentiate import by_decomposition
from ..dims import Shape, Size, divide_exactly, product
from ..operator import Attributes, AttributeSpec, Case, Gradient, InferenceError, Operand, Operator, RowAxes
from ..types import FLOATS, Array, TensorType
from .support.algebra import Term, decomposition, gradient_of
from .support.common import (
    format_shape,
    normalize_axes,
    normalize_axis,
    sum_to,
    through_f32,
)


def _epsilon(default: float) -> AttributeSpec:
    """Returns the attribute `eps`, which is added to a variance to avoid a division by 0."""
    return AttributeSpec("eps", "float", default)


def _record(
    name: str,
    summary: str,
    operands: tuple[Operand, ...],
    attributes: tuple[AttributeSpec, ...],
    infer: Callable[[Sequence[TensorType], Attributes], tuple[TensorType, ...]],
    reference: Callable[..., Array],
    formula: Callable[..., Term],
    cases: tuple[Case, ...],
    gradient: Gradient | None = None,
    *,
    row_axes: RowAxes | None = None,
) -> Operator:
    decompose = decomposition(formula)
    return Operator(
        name=name,
        summary=summary,
        operands=operands,
        attributes=attributes,
        infer=infer,
        reference=through_f32(reference),
        gradient=gradient or by_decomposition(decompose),
        decompose=decompose,
        cases=cases,
        properties=frozenset({"pointwise" if row_axes is None else "rowwise", "reading"}),
        row_axes=row_axes,
    )


_X = Operand("x", FLOATS)
_WEIGHT, _BIAS = Operand("weight", FLOATS, optional=True), Operand("bias", FLOATS, optional=True)


def _expect_shape(name: str, types: Sequence[TensorType], first: int, names: Sequence[str], shape: Shape) -> None:
    """Raises InferenceError if one of the operands from `first` on has another shape."""
    for number, operand in enumerate(types[first:], first):
        if operand.shape != shape:
            raise InferenceError(
                "shape-mismatch",
                f"`{name}` needs `{names[number - first]}` of shape {format_shape(shape)}",
                label=f"this is {operand}",
                operand=number,
            )


def _scaled(x: Term, weight: Term | None, bias: Term | None) -> Term:
    scaled = x if weight is None else x * weight
    return scaled if bias is None else scaled + bias


# Over trailing axes, with a weight of their shape


def _trailing_axes(axes: Any, rank: int, name: str) -> tuple[int, ...]:
    normal = normalize_axes(axes, rank, name)
    if normal != tuple(range(rank - len(normal), rank)):
        raise InferenceError("bad-axis", f"`{name}` normalizes the last axes only, not {axes}")
    return normal


def _infer_layer_norm(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x = types[0]
    axes = _trailing_axes(attributes["axes"], x.rank, "layer_norm")
    _expect_shape("layer_norm", types, 1, ("weight", "bias"), tuple(x.shape[a] for a in axes))
    return (x,)


def _infer_rms_norm(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    normalize_axis(-1, types[0].rank, "rms_norm")
    _expect_shape("rms_norm", types, 1, ("weight",), types[0].shape[-1:])
    return (types[0],)


def _standardized(x: Term, axes: tuple[int, ...], eps: float) -> tuple[Term, Term]:
    """Returns the elements with mean 0 and variance 1 over the axes, and the factor that scaled them."""
    distance = x - x.mean(axis=axes, keepdims=True)
    factor = ((distance * distance).mean(axis=axes, keepdims=True) + eps).rsqrt()
    return distance * factor, factor


def _layer_norm(x: Term, weight: Term | None = None, bias: Term | None = None, *, axes: Any, eps: float) -> Term:
    standard, _ = _standardized(x, normalize_axes(axes, x.rank, "layer_norm"), eps)
    return _scaled(standard, weight, bias)


def _layer_norm_gradient(x: Term, *others: Term, axes: Any, eps: float) -> Sequence[Term]:
    *parameters, _, g = others
    normal = normalize_axes(axes, x.rank, "layer_norm")
    standard, factor = _standardized(x, normal, eps)
    slope = g * parameters[0] if parameters else g
    # Remove the components along the mean and along the standardized elements themselves.
    along_mean = slope.mean(axis=normal, keepdims=True)
    along_self = (slope * standard).mean(axis=normal, keepdims=True)
    parts = [factor * (slope - along_mean - standard * along_self)]
    for parameter, part in zip(parameters, (g * standard, g), strict=False):
        parts.append(Term(x.builder, sum_to(x.builder, part.value, parameter.shape)))
    return parts


def _rms_norm(x: Term, weight: Term | None = None, *, eps: float) -> Term:
    return _scaled(x * ((x * x).mean(axis=-1, keepdims=True) + eps).rsqrt(), weight, None)


def _standardized_array(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    distance = x - np.mean(x, axis=axes, keepdims=True)
    return distance / np.sqrt(np.mean(np.square(distance), axis=axes, keepdims=True) + x.dtype.type(eps))


def _scaled_array(x: Any, weight: Any, bias: Any) -> Any:
    scaled = x if weight is None else x * weight
    return scaled if bias is None else scaled + bias


def _layer_norm_array(x: Any, weight: Any = None, bias: Any = None, *, axes: Any, eps: float) -> Any:
    return _scaled_array(_standardized_array(x, normalize_axes(axes, x.ndim, "layer_norm"), eps), weight, bias)


def _rms_norm_array(x: Any, weight: Any = None, *, eps: float) -> Any:
    scale = np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + x.dtype.type(eps))
    return _scaled_array(x / scale, weight, None)


# Over all axes except the channels, with a weight per channel


def _per_channel(parameter: Term, rank: int, axis: int) -> Term:
    """Returns a vector over channels, shaped so that it broadcasts to a tensor with channels in the given axis."""
    return parameter.reshape(shape=(*parameter.shape, *(1 for _ in range(rank - axis - 1))))


def _per_channel_array(parameter: Any, rank: int, axis: int) -> Any:
    return None if parameter is None else parameter.reshape(-1, *(1 for _ in range(rank - axis - 1)))


def _infer_batch_norm(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x = types[0]
    axis = normalize_axis(attributes["axis"], x.rank, "batch_norm")
    _expect_shape("batch_norm", types, 1, ("mean", "variance", "weight", "bias"), (x.shape[axis],))
    return (x,)


def _batch_norm(
    x: Term, mean: Term, variance: Term, weight: Term | None = None, bias: Term | None = None, *, axis: int, eps: float
) -> Term:
    # One multiplication and one addition per element; scale and shift have one element per channel.
    scale = (variance + eps).rsqrt()
    if weight is not None:
        scale = scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    axis = normalize_axis(axis, x.rank, "batch_norm")
    return x * _per_channel(scale, x.rank, axis) + _per_channel(shift, x.rank, axis)


def _batch_norm_array(
    x: Any, mean: Any, variance: Any, weight: Any = None, bias: Any = None, *, axis: int, eps: float
) -> Any:
    mean, variance, weight, bias = (
        _per_channel_array(p, x.ndim, axis % x.ndim) for p in (mean, variance, weight, bias)
    )
    return _scaled_array((x - mean) / np.sqrt(variance + x.dtype.type(eps)), weight, bias)


def _channels(name: str, types: Sequence[TensorType]) -> None:
    x = types[0]
    if x.rank < 2:
        raise InferenceError("rank-mismatch", f"`{name}` needs a batch and a channel axis, not {x}", operand=0)
    _expect_shape(name, types, 1, ("weight", "bias"), x.shape[1:2])


def _infer_group_norm(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    _channels("group_norm", types)
    x, groups = types[0], attributes["groups"]
    if groups < 1:
        raise InferenceError("bad-attribute", f"`group_norm` has {groups} groups, expected at least 1")
    if divide_exactly(x.shape[1], groups) is None:
        raise InferenceError(
            "shape-mismatch",
            f"`group_norm` cannot split {x.shape[1]} channels into {groups} groups",
            label=f"this is {x}",
            operand=0,
        )
    return (x,)


def _infer_instance_norm(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    _channels("instance_norm", types)
    return (types[0],)


def _affine(x: Term, weight: Term | None, bias: Term | None) -> Term:
    weight, bias = (None if p is None else _per_channel(p, x.rank, 1) for p in (weight, bias))
    return _scaled(x, weight, bias)


def _standardized_rows(x: Term, rows: Shape, size: Size, eps: float, repeats: Size) -> Term:
    """Returns the elements with mean 0 and variance 1 over each row of `size` neighbours in memory. A row of an image
    covers `repeats` channels.

    The statistics are sums over one axis, so that they need one loop; the elements keep their shape for the operators
    after them.
    """
    flat = x.reshape(shape=(*rows, size))
    mean = flat.mean(axis=-1, keepdims=True)
    distance = flat - mean
    factor = ((distance * distance).mean(axis=-1, keepdims=True) + eps).rsqrt()

    def per_channel(value: Term) -> Term:
        each = value if repeats == 1 else value.broadcast_to(shape=(*rows, repeats))
        return each.reshape(shape=(*x.shape[:2], *(1,) * (x.rank - 2)))

    return (x - per_channel(mean)) * per_channel(factor)


def _group_norm(x: Term, weight: Term | None = None, bias: Term | None = None, *, groups: int, eps: float) -> Term:
    batch, channels, *spatial = x.shape
    each = divide_exactly(channels, groups)
    assert each is not None, (channels, groups)
    return _affine(_standardized_rows(x, (batch, groups), product((each, *spatial)), eps, each), weight, bias)


def _instance_norm(x: Term, weight: Term | None = None, bias: Term | None = None, *, eps: float) -> Term:
    batch, channels, *spatial = x.shape
    return _affine(_standardized_rows(x, (batch, channels), product(spatial), eps, 1), weight, bias)


def _affine_array(x: Any, weight: Any, bias: Any) -> Any:
    return _scaled_array(x, _per_channel_array(weight, x.ndim, 1), _per_channel_array(bias, x.ndim, 1))


def _group_norm_array(x: Any, weight: Any = None, bias: Any = None, *, groups: int, eps: float) -> Any:
    grouped = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    standard = _standardized_array(grouped, tuple(range(2, grouped.ndim)), eps)
    return _affine_array(standard.reshape(x.shape), weight, bias)


def _instance_norm_array(x: Any, weight: Any = None, bias: Any = None, *, eps: float) -> Any:
    return _affine_array(_standardized_array(x, tuple(range(2, x.ndim)), eps), weight, bias)


def _channel_cases(
    shapes: Sequence[tuple[int, ...]], attributes: Attributes, first: int, last: int
) -> tuple[Case, ...]:
    """Returns cases with `first` to `last` operands per channel."""
    return tuple(
        Case((shape, *(shape[1:2],) * vectors), attributes, terms=max(1, math.prod(shape[1:])), tolerance=8.0)
        for shape in shapes
        for vectors in range(first, last + 1)
    )


OPERATORS = (
    _record(
        "layer_norm",
        "layer normalization: x normalized to mean 0 and variance 1 over the last axes, then scaled and shifted",
        (_X, _WEIGHT, _BIAS),
        (AttributeSpec("axes", "axes", -1), _epsilon(1e-5)),
        _infer_layer_norm,
        _layer_norm_array,
        _layer_norm,
        tuple(
            Case((shape, *(parameter,) * number), {"axes": axes}, terms=max(1, math.prod(parameter)), tolerance=8.0)
            for shape, parameter, axes in (
                ((3, 5), (5,), -1),
                ((2, 3, 7), (3, 7), (-2, -1)),
                ((1, 3), (3,), -1),
                ((0, 3), (3,), -1),
                ((17, 33), (33,), 1),
            )
            for number in (0, 1, 2)
        ),
        gradient_of(_layer_norm_gradient),
        row_axes=lambda x, attributes: normalize_axes(attributes["axes"], x.rank, "layer_norm"),
    ),
    _record(
        "rms_norm",
        "RMS normalization: x divided by its root mean square along the last axis, then scaled",
        (_X, _WEIGHT),
        (_epsilon(1e-6),),
        _infer_rms_norm,
        _rms_norm_array,
        _rms_norm,
        tuple(
            Case((shape, *(shape[-1:],) * number), terms=max(1, shape[-1]))
            for shape in ((3, 5), (1,), (0, 3), (2, 1, 7), (17, 33))
            for number in (0, 1)
        ),
        row_axes=lambda x, attributes: (x.rank - 1,),
    ),
    _record(
        "batch_norm",
        "batch normalization with given statistics: (x - mean) / sqrt(variance + eps) per channel, then "
        "scaled and shifted",
        (_X, Operand("mean", FLOATS), Operand("variance", FLOATS), _WEIGHT, _BIAS),
        (AttributeSpec("axis", "axis", 1), _epsilon(1e-5)),
        _infer_batch_norm,
        _batch_norm_array,
        _batch_norm,
        tuple(
            Case((shape, *((shape[axis],),) * number), {"axis": axis}, domain=(0.3, 3.0), tolerance=16.0)
            for shape, axis in (((3, 5), 1), ((2, 3, 5, 1), 1), ((1, 1), 1), ((0, 3), 1), ((2, 7, 5), -1))
            for number in (2, 3, 4)
        ),
    ),
    _record(
        "group_norm",
        "group normalization: x normalized to mean 0 and variance 1 over each group of channels and all "
        "positions, then scaled and shifted per channel",
        (_X, _WEIGHT, _BIAS),
        (AttributeSpec("groups", "int"), _epsilon(1e-5)),
        _infer_group_norm,
        _group_norm_array,
        _group_norm,
        (
            *_channel_cases([(2, 6, 5), (0, 6, 3), (3, 6), (1, 6, 3, 3)], {"groups": 3}, 0, 2),
            *_channel_cases([(2, 3, 5)], {"groups": 1}, 2, 2),
        ),
        # A row takes only one group of the channels.
        row_axes=lambda x, attributes: tuple(range(1, x.rank)),
    ),
    _record(
        "instance_norm",
        "instance normalization: x normalized to mean 0 and variance 1 over the positions of each channel,"
        " then scaled and shifted per channel",
        (_X, _WEIGHT, _BIAS),
        (_epsilon(1e-5),),
        _infer_instance_norm,
        _instance_norm_array,
        _instance_norm,
        _channel_cases([(2, 3, 5), (0, 3, 2), (1, 1, 7), (2, 3, 3, 5)], {}, 0, 2),
        row_axes=lambda x, attributes: tuple(range(2, x.rank)),
    ),
)
