"""One usual size of every operator, and the calls of PyTorch and of ONNX operators that compute the same.

`MISSING` lists the operators without a size here, with the reason. ONNX forms are there where one node of the operator
set computes the same; the others have none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import torch
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import BF16, BOOL, F16, F32, F64, I8, I32, I64, Array, DType
from torch.nn import functional as f


@dataclass(frozen=True)
class Given:
    """An operand: normal numbers, or uniform ones within `range`; a weight is a constant of the model. Integers may be
    `distinct`. `made` makes the operand of the random array, where an operator does not take any."""

    shape: tuple[int, ...]
    dtype: DType = F32
    range: tuple[float, float] | None = None
    weight: bool = False
    distinct: bool = False
    made: Callable[[Array], Array] | None = None

    def array(self, random: np.random.Generator) -> Array:
        drawn = self._draw(random)
        return drawn if self.made is None else self.made(drawn)

    def _draw(self, random: np.random.Generator) -> Array:
        if self.dtype == BOOL:
            return random.random(self.shape) < 0.5
        if self.distinct:
            return random.permutation(int((self.range or (0, 0))[1]))[: prod(self.shape)].reshape(self.shape)
        if not self.dtype.is_float:
            low, high = self.range or (-100, 100)
            return random.integers(int(low), int(high), self.shape).astype(self.dtype.numpy)
        values = random.standard_normal(self.shape) if self.range is None else random.uniform(*self.range, self.shape)
        return values.astype(self.dtype.numpy)


@dataclass(frozen=True)
class Onnx:
    """One ONNX node: its type, its attributes, and constant inputs after the operands."""

    type: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: tuple[Array | None, ...] = ()


@dataclass(frozen=True)
class Usual:
    operands: tuple[Given, ...]
    torch: Callable[..., Any]
    onnx: Onnx | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    then: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """Operators of one operand that follow."""
    signed: bool = True
    """Whether the signs of the results are determined."""


_X = Given((256, 1024))
_POSITIVE = Given((256, 1024), range=(0.1, 4.0))
_UNIT = Given((256, 1024), range=(-0.9, 0.9))
_WHOLE = Given((256, 1024), I32)
_COUNTS = Given((256, 1024), I32, (0, 8))
_TRUTH = Given((256, 1024), BOOL)
_ROWS = Given((64, 4096))
_IMAGE = Given((1, 64, 56, 56))


def _ids(high: int, *shape: int) -> Given:
    return Given(shape, I64, (0, high))


def _w(*shape: int) -> Given:
    return Given(shape, weight=True)


def _ints(*values: int) -> Array:
    return np.asarray(values, np.int64)


def _one(call: Callable[..., Any], onnx: str | None = None, x: Given = _X, **attributes: Any) -> Usual:
    return Usual((x,), call, None if onnx is None else Onnx(onnx), attributes)


def _two(call: Callable[..., Any], onnx: str | None = None, x: Given = _X, y: Given | None = None) -> Usual:
    return Usual((x, x if y is None else y), call, None if onnx is None else Onnx(onnx))


def _svd(x: Given) -> Usual:
    return Usual((x,), lambda x: torch.linalg.svd(x, full_matrices=False), signed=False)


_BINARY = {
    "add": _two(torch.add, "Add"),
    "subtract": _two(torch.sub, "Sub"),
    "multiply": _two(torch.mul, "Mul"),
    "divide": _two(torch.div, "Div", _X, _POSITIVE),
    "floor_divide": _two(torch.floor_divide, None, _X, _POSITIVE),
    "remainder": _two(torch.remainder, None, _X, _POSITIVE),
    "power": _two(torch.pow, "Pow", _POSITIVE, _X),
    "maximum": _two(torch.maximum, "Max"),
    "minimum": _two(torch.minimum, "Min"),
    "atan2": _two(torch.atan2),
    "squared_difference": _two(lambda x, y: torch.square(x - y)),
    "bitwise_and": _two(torch.bitwise_and, "BitwiseAnd", _WHOLE),
    "bitwise_or": _two(torch.bitwise_or, "BitwiseOr", _WHOLE),
    "bitwise_xor": _two(torch.bitwise_xor, "BitwiseXor", _WHOLE),
    "shift_left": _two(torch.bitwise_left_shift, None, _WHOLE, _COUNTS),
    "shift_right": _two(torch.bitwise_right_shift, None, _WHOLE, _COUNTS),
    "equal": _two(torch.eq, "Equal"),
    "not_equal": _two(torch.ne),
    "less": _two(torch.lt, "Less"),
    "less_equal": _two(torch.le, "LessOrEqual"),
    "greater": _two(torch.gt, "Greater"),
    "greater_equal": _two(torch.ge, "GreaterOrEqual"),
    "logical_and": _two(torch.logical_and, "And", _TRUTH),
    "logical_or": _two(torch.logical_or, "Or", _TRUTH),
    "logical_xor": _two(torch.logical_xor, "Xor", _TRUTH),
    "where": Usual((_TRUTH, _X, _X), torch.where, Onnx("Where")),
}

_UNARY = {
    "logical_not": _one(torch.logical_not, "Not", _TRUTH),
    "isnan": _one(torch.isnan, "IsNaN"),
    "isinf": _one(torch.isinf, "IsInf"),
    "isfinite": _one(torch.isfinite),
    "negate": _one(torch.neg, "Neg"),
    "abs": _one(torch.abs, "Abs"),
    "sign": _one(torch.sign, "Sign"),
    "square": _one(torch.square),
    "bitwise_not": _one(torch.bitwise_not, "BitwiseNot", _WHOLE),
    "ceil": _one(torch.ceil, "Ceil"),
    "floor": _one(torch.floor, "Floor"),
    "round": _one(torch.round, "Round"),
    "trunc": _one(torch.trunc),
    "sqrt": _one(torch.sqrt, "Sqrt", _POSITIVE),
    "rsqrt": _one(torch.rsqrt, None, _POSITIVE),
    "cbrt": _one(lambda x: torch.sign(x) * torch.pow(torch.abs(x), 1 / 3)),
    "reciprocal": _one(torch.reciprocal, "Reciprocal", _POSITIVE),
    "exp": _one(torch.exp, "Exp"),
    "exp2": _one(torch.exp2),
    "expm1": _one(torch.expm1),
    "log": _one(torch.log, "Log", _POSITIVE),
    "log2": _one(torch.log2, None, _POSITIVE),
    "log10": _one(torch.log10, None, _POSITIVE),
    "log1p": _one(torch.log1p, None, _POSITIVE),
    "sin": _one(torch.sin, "Sin"),
    "cos": _one(torch.cos, "Cos"),
    "tan": _one(torch.tan, "Tan", _UNIT),
    "asin": _one(torch.asin, "Asin", _UNIT),
    "acos": _one(torch.acos, "Acos", _UNIT),
    "atan": _one(torch.atan, "Atan"),
    "sinh": _one(torch.sinh, "Sinh"),
    "cosh": _one(torch.cosh, "Cosh"),
    "tanh": _one(torch.tanh, "Tanh"),
    "asinh": _one(torch.asinh, "Asinh"),
    "acosh": _one(torch.acosh, "Acosh", Given((256, 1024), range=(1.1, 9.0))),
    "atanh": _one(torch.atanh, "Atanh", _UNIT),
    "erf": _one(torch.erf, "Erf"),
    "erfc": _one(torch.erfc),
    "cast": Usual((_X,), lambda x: x.to(torch.float16), Onnx("Cast", {"to": 10}), {"dtype": F16}),
    "quantize": Usual(
        (_X, Given((), range=(0.01, 0.02))),
        lambda x, scale: torch.quantize_per_tensor(x, scale, 0, torch.qint8).int_repr(),
        Onnx("QuantizeLinear", {"output_dtype": 3}),
        {"dtype": I8},
    ),
    "requantize": Usual(
        (Given((256, 1024), I32, (-9000, 9000)), Given((), range=(0.01, 0.02))),
        lambda total, by: torch.clamp(torch.round(total * by), -128, 127).to(torch.int8),
        None,
        {"dtype": I8},
    ),
    "dequantize": Usual(
        (Given((256, 1024), I8), Given((), range=(0.01, 0.02))),
        lambda q, scale: q.to(torch.float32) * scale,
        Onnx("DequantizeLinear"),
    ),
    "relu": _one(torch.relu, "Relu"),
    "relu6": _one(f.relu6),
    "leaky_relu": Usual((_X,), lambda x: f.leaky_relu(x, 0.1), Onnx("LeakyRelu", {"alpha": 0.1}), {"slope": 0.1}),
    "prelu": Usual((_X, Given((1024,))), lambda x, slope: torch.where(x >= 0, x, slope * x), Onnx("PRelu")),
    "elu": _one(f.elu, "Elu"),
    "selu": _one(f.selu, "Selu"),
    "celu": _one(f.celu, "Celu"),
    "gelu": _one(f.gelu, "Gelu"),
    "quick_gelu": _one(lambda x: x * torch.sigmoid(1.702 * x)),
    "sigmoid": _one(torch.sigmoid, "Sigmoid"),
    "silu": _one(f.silu),
    "softplus": _one(f.softplus, "Softplus"),
    "log_sigmoid": _one(f.logsigmoid),
    "mish": _one(f.mish, "Mish"),
    "softsign": _one(f.softsign, "Softsign"),
    "tanh_shrink": _one(f.tanhshrink),
    "soft_shrink": _one(f.softshrink),
    "hard_swish": _one(f.hardswish, "HardSwish"),
    "hard_sigmoid": Usual((_X,), f.hardsigmoid, Onnx("HardSigmoid", {"alpha": 1 / 6})),
    "hard_tanh": _one(f.hardtanh),
    "clip": _one(lambda x: torch.clamp(x, -1.0, 1.0), low=-1.0, high=1.0),
}


def _rows(
    call: Callable[..., Any], onnx: str | None = None, x: Given = _ROWS, *, axes: bool = True, **attributes: Any
) -> Usual:
    """Along the last axis: in ONNX an input, or an attribute, of which the result keeps the axis."""
    if onnx is None:
        form = None
    elif axes:
        form = Onnx(onnx, {"keepdims": 0}, (_ints(-1),))
    else:
        form = Onnx(onnx, {"keepdims": 0, "axis": -1})
    return Usual((x,), call, form, {"axis": -1, **attributes})


_REDUCTIONS = {
    "sum": _rows(lambda x: torch.sum(x, -1), "ReduceSum"),
    "prod": _rows(lambda x: torch.prod(x, -1), "ReduceProd", Given((64, 4096), range=(0.99, 1.01))),
    "max": _rows(lambda x: torch.amax(x, -1), "ReduceMax"),
    "min": _rows(lambda x: torch.amin(x, -1), "ReduceMin"),
    "any": _rows(lambda x: torch.any(x, -1), None, Given((64, 4096), BOOL)),
    "all": _rows(lambda x: torch.all(x, -1), None, Given((64, 4096), BOOL)),
    "argmax": _rows(lambda x: torch.argmax(x, -1), "ArgMax", axes=False),
    "argmin": _rows(lambda x: torch.argmin(x, -1), "ArgMin", axes=False),
    "mean": _rows(lambda x: torch.mean(x, -1), "ReduceMean"),
    "variance": _rows(lambda x: torch.var(x, -1, correction=0), correction=0),
    "standard_deviation": _rows(lambda x: torch.std(x, -1, correction=0), correction=0),
    "logsumexp": _rows(lambda x: torch.logsumexp(x, -1), "ReduceLogSumExp"),
    "norm": _rows(lambda x: torch.linalg.vector_norm(x, 2, -1), "ReduceL2"),
    "cumsum": Usual((_ROWS,), lambda x: torch.cumsum(x, -1), Onnx("CumSum", {}, (np.asarray(1, np.int64),))),
    "cumprod": _one(lambda x: torch.cumprod(x, -1), None, Given((64, 4096), range=(0.99, 1.01))),
    "softmax": Usual((_ROWS,), lambda x: torch.softmax(x, -1), Onnx("Softmax", {"axis": -1})),
    "log_softmax": Usual((_ROWS,), lambda x: torch.log_softmax(x, -1), Onnx("LogSoftmax", {"axis": -1})),
    "l2_normalize": _one(lambda x: f.normalize(x, dim=-1), None, _ROWS),
    "layer_norm": Usual(
        (Given((128, 384)), _w(384), _w(384)),
        lambda x, w, b: f.layer_norm(x, (384,), w, b),
        Onnx("LayerNormalization"),
    ),
    "rms_norm": Usual((Given((128, 384)), _w(384)), lambda x, w: f.rms_norm(x, (384,), w, 1e-5), None, {"eps": 1e-5}),
    "batch_norm": Usual(
        (_IMAGE, _w(64), Given((64,), range=(0.5, 2.0), weight=True), _w(64), _w(64)),
        lambda x, m, v, w, b: f.batch_norm(x, m, v, w, b),
    ),
    "group_norm": Usual((_IMAGE, _w(64), _w(64)), lambda x, w, b: f.group_norm(x, 32, w, b), None, {"groups": 32}),
    "instance_norm": Usual(
        (_IMAGE, _w(64), _w(64)),
        lambda x, w, b: f.instance_norm(x, weight=w, bias=b),
        Onnx("InstanceNormalization"),
    ),
}


def _pooling(rank: int, sizes: tuple[int, ...], mean: bool) -> Usual:
    call = getattr(f, f"{'avg' if mean else 'max'}_pool{rank}d")
    onnx = Onnx("AveragePool" if mean else "MaxPool", {"kernel_shape": [2] * rank, "strides": [2] * rank})
    return Usual((Given(sizes),), lambda x: call(x, 2), onnx, {"kernel": 2})


_CONTRACTIONS = {
    "matmul": Usual((Given((128, 384)), _w(384, 384)), torch.matmul, Onnx("MatMul")),
    "einsum": Usual(
        (Given((8, 64, 64)), Given((8, 64, 64))),
        lambda x, y: torch.einsum("bij,bjk->bik", x, y),
        Onnx("Einsum", {"equation": "bij,bjk->bik"}),
        {"equation": "bij,bjk->bik"},
    ),
    "conv1d": Usual(
        (Given((1, 64, 1024)), _w(64, 64, 3)),
        lambda x, w: f.conv1d(x, w, padding=1),
        Onnx("Conv", {"pads": [1, 1]}),
        {"padding": 1},
    ),
    "conv2d": Usual(
        (_IMAGE, _w(64, 64, 3, 3)),
        lambda x, w: f.conv2d(x, w, padding=1),
        Onnx("Conv", {"pads": [1] * 4}),
        {"padding": 1},
    ),
    "conv3d": Usual(
        (Given((1, 16, 8, 28, 28)), _w(16, 16, 3, 3, 3)),
        lambda x, w: f.conv3d(x, w, padding=1),
        Onnx("Conv", {"pads": [1] * 6}),
        {"padding": 1},
    ),
    "conv_weight_gradient": Usual(
        (Given((1, 32, 28, 28)), Given((1, 32, 28, 28))),
        lambda x, g: torch.nn.grad.conv2d_weight(x, (32, 32, 3, 3), g, padding=1),
        None,
        {"kernel": (3, 3), "padding": 1},
    ),
    "conv_transpose1d": Usual(
        (Given((1, 64, 512)), _w(64, 64, 4)),
        lambda x, w: f.conv_transpose1d(x, w, stride=2, padding=1),
        Onnx("ConvTranspose", {"strides": [2], "pads": [1, 1]}),
        {"stride": 2, "padding": 1},
    ),
    "conv_transpose2d": Usual(
        (Given((1, 64, 28, 28)), _w(64, 64, 4, 4)),
        lambda x, w: f.conv_transpose2d(x, w, stride=2, padding=1),
        Onnx("ConvTranspose", {"strides": [2, 2], "pads": [1] * 4}),
        {"stride": 2, "padding": 1},
    ),
    "conv_transpose3d": Usual(
        (Given((1, 16, 4, 14, 14)), _w(16, 16, 4, 4, 4)),
        lambda x, w: f.conv_transpose3d(x, w, stride=2, padding=1),
        Onnx("ConvTranspose", {"strides": [2] * 3, "pads": [1] * 6}),
        {"stride": 2, "padding": 1},
    ),
    "attention": Usual((Given((1, 8, 128, 64)),) * 3, f.scaled_dot_product_attention),
    "rotary_embedding": Usual(
        (Given((8, 128, 64)), Given((128, 32)), Given((128, 32))),
        lambda x, cos, sin: torch.cat(
            (x[..., :32] * cos - x[..., 32:] * sin, x[..., 32:] * cos + x[..., :32] * sin), -1
        ),
    ),
}

_POOLING = {
    "max_pool1d": _pooling(1, (1, 64, 2048), mean=False),
    "max_pool2d": _pooling(2, (1, 64, 56, 56), mean=False),
    "max_pool3d": _pooling(3, (1, 16, 16, 28, 28), mean=False),
    "max_pool_indices": Usual((_IMAGE,), lambda x: f.max_pool2d_with_indices(x, 2)[1], None, {"kernel": (2, 2)}),
    "avg_pool1d": _pooling(1, (1, 64, 2048), mean=True),
    "avg_pool2d": _pooling(2, (1, 64, 56, 56), mean=True),
    "avg_pool3d": _pooling(3, (1, 16, 16, 28, 28), mean=True),
    "avg_pool_gradient": Usual(
        (Given((1, 64, 28, 28)),),
        lambda g: torch.ops.aten.avg_pool2d_backward(
            g, g.new_empty((1, 64, 56, 56)), [2, 2], [2, 2], [0, 0], False, True, None
        ),
        None,
        {"sizes": (56, 56), "kernel": (2, 2)},
    ),
    "global_avg_pool": _one(lambda x: f.adaptive_avg_pool2d(x, 1), "GlobalAveragePool", _IMAGE),
    "global_max_pool": _one(lambda x: f.adaptive_max_pool2d(x, 1), "GlobalMaxPool", _IMAGE),
}

_MOVEMENT = {
    "transpose": Usual(
        (Given((128, 8, 64)),),
        lambda x: x.permute(1, 0, 2).contiguous(),
        Onnx("Transpose", {"perm": [1, 0, 2]}),
        {"axes": (1, 0, 2)},
    ),
    "matrix_transpose": Usual((Given((512, 512)),), lambda x: x.mT.contiguous(), Onnx("Transpose", {"perm": [1, 0]})),
    "broadcast_to": Usual(
        (Given((1, 1024)),),
        lambda x: x.expand(256, 1024).contiguous(),
        Onnx("Expand", {}, (_ints(256, 1024),)),
        {"shape": (256, 1024)},
    ),
    "flip": _one(lambda x: torch.flip(x, (-1,)), axes=-1),
    "roll": _one(lambda x: torch.roll(x, 100, -1), shift=100, axis=-1),
    "tile": Usual((_X,), lambda x: x.repeat(2, 2), Onnx("Tile", {}, (_ints(2, 2),)), {"repeats": (2, 2)}),
    "repeat_interleave": _one(lambda x: torch.repeat_interleave(x, 2, -1), repeats=2, axis=-1),
    "depth_to_space": Usual(
        (Given((1, 64, 56, 56)),),
        lambda x: f.pixel_shuffle(x, 2),
        Onnx("DepthToSpace", {"blocksize": 2, "mode": "CRD"}),
        {"block": 2, "mode": "channels_first"},
    ),
    "space_to_depth": Usual(
        (Given((1, 16, 112, 112)),),
        lambda x: f.pixel_unshuffle(x, 2),
        None,
        {"block": 2, "mode": "channels_first"},
    ),
    "concat": Usual((_X, _X), lambda x, y: torch.cat((x, y), -1), Onnx("Concat", {"axis": -1}), {"axis": -1}),
    "stack": Usual((_X, _X), lambda x, y: torch.stack((x, y), 0), None, {"axis": 0}),
    "split": Usual(
        (_X,),
        lambda x: tuple(part.contiguous() for part in torch.split(x, 512, -1)),
        Onnx("Split", {"axis": -1, "num_outputs": 2}),
        {"parts": 2, "axis": -1},
    ),
    "slice": Usual(
        (_X,),
        lambda x: x[:, 100:900].contiguous(),
        Onnx("Slice", {}, (_ints(100), _ints(900), _ints(1))),
        {"starts": (0, 100), "stops": (256, 900)},
    ),
    "slice_update": Usual(
        (_X, Given((256, 800))),
        lambda x, y: torch.slice_scatter(x, y, 1, 100, 900),
        None,
        {"starts": (0, 100), "stops": (256, 900)},
    ),
    "dynamic_slice": Usual(
        (_X, _ids(100), _ids(100)),
        lambda x, a, b: x[int(a) : int(a) + 128, int(b) : int(b) + 512].contiguous(),
        None,
        {"sizes": (128, 512)},
    ),
    "dynamic_update_slice": Usual(
        (_X, Given((128, 512)), _ids(100), _ids(100)), lambda x, u, a, b: _updated(x, u, int(a), int(b))
    ),
    "pad": Usual(
        (Given((1, 64, 56, 56)),),
        lambda x: f.pad(x, (3, 3, 3, 3), "reflect"),
        Onnx("Pad", {"mode": "reflect"}, (_ints(0, 0, 3, 3, 0, 0, 3, 3),)),
        {"widths": ((0, 0), (0, 0), (3, 3), (3, 3)), "mode": "reflect"},
    ),
    "gather": Usual((Given((4096, 256)), _ids(4096, 512)), lambda x, i: torch.index_select(x, 0, i), Onnx("Gather")),
    "take_along_axis": Usual(
        (_X, _ids(1024, 256, 512)),
        lambda x, i: torch.take_along_dim(x, i, -1),
        Onnx("GatherElements", {"axis": -1}),
    ),
    "gather_nd": Usual((_X, _ids(256, 4096, 2)), lambda x, i: x[i[:, 0], i[:, 1]], Onnx("GatherND")),
    "embedding": Usual((Given((30000, 384)), _ids(30000, 128)), lambda t, i: f.embedding(i, t), Onnx("Gather")),
    "one_hot": Usual((_ids(1000, 128),), lambda i: f.one_hot(i, 1000).to(torch.float32), None, {"depth": 1000}),
    "scatter": Usual(
        (_X, _ids(1024, 256, 256), Given((256, 256))),
        lambda x, i, u: torch.scatter(x, 1, i, u),
        Onnx("ScatterElements", {"axis": 1}),
        {"axis": 1},
    ),
    "scatter_add": Usual(
        (_X, _ids(1024, 256, 256), Given((256, 256))),
        lambda x, i, u: torch.scatter_add(x, 1, i, u),
        Onnx("ScatterElements", {"axis": 1, "reduction": "add"}),
        {"axis": 1},
    ),
    "scatter_nd": Usual(
        # PyTorch does not say which of two updates of a row stays.
        (_X, Given((128, 1), I64, (0, 256), distinct=True), Given((128, 1024))),
        lambda x, i, u: x.index_put((i[:, 0],), u),
        Onnx("ScatterND"),
    ),
    "scatter_nd_add": Usual(
        (_X, _ids(256, 512, 1), Given((512, 1024))),
        lambda x, i, u: x.index_put((i[:, 0],), u, accumulate=True),
        Onnx("ScatterND", {"reduction": "add"}),
    ),
    "tril": Usual((Given((512, 512)),), torch.tril, Onnx("Trilu", {"upper": 0})),
    "triu": _one(torch.triu, "Trilu", Given((512, 512))),
    "resize": Usual(
        (Given((1, 64, 28, 28)),),
        lambda x: f.interpolate(x, scale_factor=2, mode="bilinear"),
        Onnx("Resize", {"mode": "linear"}, (None, np.asarray([1, 1, 2, 2], np.float32))),
        {"sizes": (56, 56), "mode": "linear"},
    ),
}


def _updated(x: torch.Tensor, update: torch.Tensor, row: int, column: int) -> torch.Tensor:
    result = x.clone()
    result[row : row + update.shape[0], column : column + update.shape[1]] = update
    return result


_ORDER = {
    "sort": Usual((Given((16, 4096)),), lambda x: torch.sort(x, dim=-1, stable=True)[0]),
    "argsort": Usual((Given((16, 4096)),), lambda x: torch.argsort(x, dim=-1, stable=True)),
    "top_k": Usual(
        (Given((4, 32000)),),
        lambda x: tuple(torch.topk(x, 50)),
        Onnx("TopK", {}, (_ints(50),)),
        {"k": 50},
    ),
}


def _parts(transform: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """The real and the imaginary part of a transform."""

    def run(*operands: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        result = transform(*operands)
        return result.real, result.imag

    return run


def _definite(x: Array) -> Array:
    return x @ x.swapaxes(-1, -2) + x.shape[-1] * np.eye(x.shape[-1], dtype=x.dtype)


_SIGNAL, _HALF, _MATRICES = Given((64, 1024)), Given((64, 513)), Given((16, 32, 32))
_FRAMES = {"size": 512, "hop": 128}
_SIGNALS: Mapping[str, Usual] = {
    "fft": Usual((_SIGNAL, _SIGNAL), _parts(lambda x, y: torch.fft.fft(torch.complex(x, y)))),
    "ifft": Usual((_SIGNAL, _SIGNAL), _parts(lambda x, y: torch.fft.ifft(torch.complex(x, y)))),
    "rfft": Usual((_SIGNAL,), _parts(torch.fft.rfft)),
    "irfft": Usual((_HALF, _HALF), lambda x, y: torch.fft.irfft(torch.complex(x, y))),
    "stft": Usual(
        (Given((1, 16000)), Given((512,))),
        _parts(lambda x, w: torch.stft(x, 512, 128, window=w, return_complex=True)),
        None,
        _FRAMES,
    ),
    "istft": Usual(
        (Given((1, 257, 126)), Given((1, 257, 126)), Given((512,), range=(0.5, 1.0))),
        lambda x, y, w: torch.istft(torch.complex(x, y), 512, 128, window=w),
        None,
        _FRAMES,
    ),
    "cholesky": Usual((Given((16, 32, 32), made=_definite),), torch.linalg.cholesky),
    "searchsorted": Usual((Given((10000,), made=np.sort), Given((65536,))), torch.searchsorted),
    "inverse": Usual((_MATRICES,), torch.linalg.inv),
    "determinant": Usual((_MATRICES,), torch.linalg.det),
    "solve": Usual((_MATRICES, _MATRICES), torch.linalg.solve),
    "svd": _svd(Given((1, 32, 32))),
    "triangular_solve": Usual(
        (Given((16, 32, 32), range=(-0.1, 0.1)), _MATRICES),
        lambda a, y: torch.linalg.solve_triangular(a, y, upper=False, unitriangular=True),
        None,
        {"unit_diagonal": True},
    ),
    "grid_sample": Usual(
        (Given((1, 16, 56, 56)), Given((1, 56, 56, 2), range=(-1.0, 1.0))),
        lambda x, grid: f.grid_sample(x, grid, align_corners=False),
    ),
    "unfold": Usual((Given((1, 64, 28, 28)),), lambda x: f.unfold(x, (3, 3)), None, {"kernel": (3, 3)}),
    "fold": Usual(
        (Given((1, 576, 676)),), lambda x: f.fold(x, (28, 28), 3), None, {"sizes": (28, 28), "kernel": (3, 3)}
    ),
    "bincount": Usual((_ids(1000, 65536),), lambda x: torch.bincount(x, minlength=1000), None, {"size": 1000}),
    "cross_entropy": Usual((Given((256, 1000)), _ids(1000, 256)), f.cross_entropy),
    "bitcast": Usual((_X,), lambda x: x.view(torch.int32).clone(), None, {"dtype": I32}),
    "meshgrid": Usual(
        (Given((256,)), Given((1024,))),
        lambda x, y: tuple(t.contiguous() for t in torch.meshgrid(x, y, indexing="ij")),
    ),
}

USUAL: Mapping[str, Usual] = {
    **_BINARY,
    **_UNARY,
    **_REDUCTIONS,
    **_CONTRACTIONS,
    **_POOLING,
    **_MOVEMENT,
    **_ORDER,
    **_SIGNALS,
}

_COLUMNS = Given((4096, 64))


def _einsum(equation: str, *operands: Given) -> Usual:
    return Usual(
        operands,
        lambda *given: torch.einsum(equation, *given),
        Onnx("Einsum", {"equation": equation}),
        {"equation": equation},
    )


def _depthwise(stride: int) -> Usual:
    return Usual(
        (Given((1, 64, 112, 112)), Given((64, 1, 3, 3))),
        lambda x, w: f.conv2d(x, w, stride=stride, padding=1, groups=64),
        Onnx("Conv", {"strides": [stride] * 2, "pads": [1] * 4, "group": 64}),
        {"stride": stride, "padding": 1, "groups": 64},
    )


VARIANTS: Mapping[str, tuple[str, Usual]] = {
    # Other sizes at which a different part of a kernel takes the time.
    "argmax, one row of 32000": (
        "argmax",
        _rows(lambda x: torch.argmax(x, -1), "ArgMax", Given((1, 32000)), axes=False),
    ),
    "argmax, columns": ("argmax", Usual((_COLUMNS,), lambda x: torch.argmax(x, 0), None, {"axis": 0})),
    "sum, columns": ("sum", Usual((_COLUMNS,), lambda x: torch.sum(x, 0), None, {"axis": 0})),
    "sort, rows of 64": ("sort", Usual((Given((1024, 64)),), lambda x: torch.sort(x, dim=-1, stable=True)[0])),
    "sort, i64": (
        "sort",
        Usual((Given((16, 4096), I64, (0, 1 << 40)),), lambda x: torch.sort(x, dim=-1, stable=True)[0]),
    ),
    "top_k, 5 of 1000": (
        "top_k",
        Usual((Given((64, 1000)),), lambda x: tuple(torch.topk(x, 5)), Onnx("TopK", {}, (_ints(5),)), {"k": 5}),
    ),
    "top_k, half of 4096": (
        "top_k",
        Usual((Given((16, 4096)),), lambda x: tuple(torch.topk(x, 2048)), None, {"k": 2048}),
    ),
    "top_k, 10 of 100": ("top_k", Usual((Given((256, 100)),), lambda x: tuple(torch.topk(x, 10)), None, {"k": 10})),
    "top_k, 10 of 256, columns": (
        "top_k",
        Usual((_X,), lambda x: tuple(torch.topk(x, 10, 0)), None, {"k": 10, "axis": 0}),
    ),
    # An inverse spectral transform: most products of a naive loop are with zeros.
    "conv_transpose1d, 514 to 1": (
        "conv_transpose1d",
        Usual(
            (Given((1, 514, 126)), _w(514, 1, 512)),
            lambda x, w: f.conv_transpose1d(x, w, stride=128),
            Onnx("ConvTranspose", {"strides": [128]}),
            {"stride": 128},
        ),
    ),
    "einsum, bqhd,bkhd->bhqk": ("einsum", _einsum("bqhd,bkhd->bhqk", Given((1, 128, 12, 64)), Given((1, 128, 12, 64)))),
    "einsum, x @ w.T": ("einsum", _einsum("mk,nk->mn", Given((128, 1024)), Given((4096, 1024)))),
    "matmul, bf16": ("matmul", Usual((Given((512, 512), BF16), Given((512, 512), BF16)), torch.matmul)),
    "einsum, bf16, bqd,bkd->bqk": ("einsum", _einsum("bqd,bkd->bqk", *(Given((8, 128, 64), BF16),) * 2)),
    "einsum, bf16, x.T @ y": ("einsum", _einsum("km,kn->mn", *(Given((512, 512), BF16),) * 2)),
    "matmul, bf16, 16 rows": ("matmul", Usual((Given((16, 768), BF16), Given((768, 3072), BF16)), torch.matmul)),
    "conv2d, depthwise of stride 3": ("conv2d", _depthwise(3)),
    "conv2d, depthwise of stride 2": ("conv2d", _depthwise(2)),
    "attention, one query of 2048 keys": (
        "attention",
        Usual((Given((1, 8, 1, 64)), Given((1, 8, 2048, 64)), Given((1, 8, 2048, 64))), f.scaled_dot_product_attention),
    ),
    "pad, rows of 16000": (
        "pad",
        Usual(
            (Given((1, 16000)),),
            lambda x: f.pad(x, (256, 256), "reflect"),
            Onnx("Pad", {"mode": "reflect"}, (_ints(0, 256, 0, 256),)),
            {"widths": ((0, 0), (256, 256)), "mode": "reflect"},
        ),
    ),
    "cholesky, a matrix of 256": (
        "cholesky",
        Usual((Given((1, 256, 256), made=_definite),), torch.linalg.cholesky),
    ),
    "svd, 128 columns": ("svd", _svd(Given((1, 128, 128)))),
    "svd, f64": ("svd", _svd(Given((1, 64, 64), F64))),
    "searchsorted, 100 numbers": (
        "searchsorted",
        Usual((Given((100,), made=np.sort), Given((65536,))), torch.searchsorted),
    ),
    "fold, 5x5 of 4 images": (
        "fold",
        Usual((Given((4, 800, 64)),), lambda x: f.fold(x, (12, 12), 5), None, {"sizes": (12, 12), "kernel": (5, 5)}),
    ),
    "fold, patches of 16": (
        "fold",
        Usual(
            (Given((1, 768, 196)),),
            lambda x: f.fold(x, (224, 224), 16, stride=16),
            None,
            {"sizes": (224, 224), "kernel": (16, 16), "stride": 16},
        ),
    ),
    "gather, columns": (
        "gather",
        Usual(
            (_X, _ids(1024, 512)), lambda x, i: torch.index_select(x, 1, i), Onnx("Gather", {"axis": 1}), {"axis": 1}
        ),
    ),
    "concat, axis 0": (
        "concat",
        Usual((_X, _X), lambda x, y: torch.cat((x, y), 0), Onnx("Concat", {"axis": 0}), {"axis": 0}),
    ),
    "top_k, one row of 32000": (
        "top_k",
        Usual((Given((1, 32000)),), lambda x: tuple(torch.topk(x, 50)), Onnx("TopK", {}, (_ints(50),)), {"k": 50}),
    ),
    "embedding, sum": (
        "embedding",
        Usual(
            (Given((30000, 64)), _ids(30000, 256, 32)),
            lambda t, i: f.embedding_bag(i, t, mode="sum"),
            then=(("sum", {"axis": 1}),),
        ),
    ),
}

_STORED = "weights in blocks are stored so, and computed with by matmul"
_COMPILED = "known when the model is compiled"
_SHAPE = "changes the shape alone"
_INTERNAL = "brought in by a pass, and part of the operator that it was"
MISSING: Mapping[str, str] = {
    **{name: _INTERNAL for name, operator in OPERATORS.items() if operator.has("internal")},
    **dict.fromkeys(("constant", "full", "iota", "eye", "triangular_mask"), _COMPILED),
    **dict.fromkeys(("linspace", "tril_indices", "triu_indices"), _COMPILED),
    **dict.fromkeys(("reshape", "flatten", "squeeze", "unsqueeze", "size_value"), _SHAPE),
    **dict.fromkeys(("quantize_blocks", "dequantize_blocks"), _STORED),
    **dict.fromkeys(("parameter", "repeat", "fusion", "if", "while", "scan", "custom"), "structure of a graph"),
    **dict.fromkeys(("linear_recurrence", "fixed_point_multiply"), "neither peer has it"),
    **dict.fromkeys(
        ("mask_after", "mask_before", "cached_attention", "gather_pages", "paged_attention"), "neither peer has it"
    ),
    **dict.fromkeys(("lstm", "gru", "rnn"), "measured by `recurrent.py`"),
    **dict.fromkeys(("tree_ensemble", "tree_leaves", "tree_sum", "linear_tree_sum"), "measured by `trees.py`"),
    **dict.fromkeys(("oblivious_leaves", "feature_ranks", "ranked_trees"), "measured by `trees.py`"),
    **dict.fromkeys(("row_ranks", "ranked_rows"), "measured by `trees.py`"),
    **dict.fromkeys(("leaf_indices_by_masks", "leaf_indices_by_borders", "add_leaf_values"), "measured by `trees.py`"),
    **dict.fromkeys(("roi_align", "nms"), "PyTorch has it in another package"),
}
