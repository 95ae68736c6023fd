"""Writes `cases.npz`: small models, random inputs, and the results of LiteRT's reference kernels.

pip install flatbuffers ai-edge-litert
python tests/readers/tflite_files/generate_tflite.py
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from build_tflite import Graph, Operator, Tensor, write_model

CASES = Path(__file__).with_name("cases.npz")
JOINED_OF = 8
"""One of so many models is part of the model that the tests compile."""
_RANGES = {"i1": (-128, 127), "u1": (0, 255)}


def run_reference(model: bytes, inputs: Sequence[Any], kind: OpResolverType = OpResolverType.BUILTIN_REF) -> list[Any]:
    """Returns the results of LiteRT's kernels, by default of the reference ones."""
    interpreter = Interpreter(model_content=model, experimental_op_resolver_type=kind)
    details = interpreter.get_input_details()
    for each, array in zip(details, inputs, strict=True):
        if tuple(each["shape"]) != array.shape:
            interpreter.resize_tensor_input(each["index"], array.shape)
    interpreter.allocate_tensors()
    for each, array in zip(details, inputs, strict=True):
        interpreter.set_tensor(each["index"], array)
    interpreter.invoke()
    return [interpreter.get_tensor(each["index"]) for each in interpreter.get_output_details()]


def drawn(random: Any, tensor: Tensor) -> Any:
    """Returns random elements for an input."""
    if tensor.dtype in _RANGES:
        low, high = _RANGES[tensor.dtype]
        return random.integers(low, high + 1, tensor.shape).astype(tensor.dtype)
    if tensor.dtype == "b1":
        return random.integers(0, 2, tensor.shape).astype(bool)
    if tensor.dtype.startswith("i"):
        return random.integers(-9, 10, tensor.shape).astype(tensor.dtype)
    return random.normal(size=tensor.shape).astype(tensor.dtype)


class Maker:
    """Makes tensors and models of one operator."""

    def __init__(self, random: Any) -> None:
        self.random = random

    def scale(self) -> float:
        return float(np.float32(np.exp(self.random.uniform(-5, 0))))

    def zero(self, dtype: str) -> int:
        low, high = _RANGES[dtype]
        return int(self.random.integers(low, high + 1))

    def tensor(self, shape: Sequence[int], dtype: str, scale: float | None = None, zero: int | None = None) -> Tensor:
        if dtype not in _RANGES:
            return Tensor(tuple(shape), dtype)
        return Tensor(
            tuple(shape),
            dtype,
            None,
            [self.scale() if scale is None else scale],
            [self.zero(dtype) if zero is None else zero],
        )

    def weight(self, shape: Sequence[int], dtype: str, axis: int | None) -> Tensor:
        if dtype == "f4":
            return Tensor(tuple(shape), "f4", self.random.normal(size=shape).astype("f4"))
        low, high = (-127, 128) if dtype == "i1" else (0, 256)
        array = self.random.integers(low, high, shape)
        if axis is not None and dtype == "i1":
            count = shape[axis]
            return Tensor(tuple(shape), dtype, array, [self.scale() * 0.1 for _ in range(count)], [0] * count, axis)
        zero = 0 if dtype == "i1" else int(self.random.integers(100, 156))
        return Tensor(tuple(shape), dtype, array, [self.scale() * 0.1], [zero])

    def bias(self, x: Tensor, weight: Tensor, size: int) -> Tensor:
        if x.dtype == "f4":
            return Tensor((size,), "f4", self.random.normal(size=size))
        # LiteRT requires that the scale of a bias is the product of both others.
        scales = [float(np.float32(x.scales[0]) * np.float32(each)) for each in weight.scales]
        return Tensor((size,), "i4", self.random.integers(-3000, 3000, size), scales, [0] * len(scales), 0)


def const(array: Any, dtype: str = "i4") -> Tensor:
    made = np.asarray(array, dtype)
    return Tensor(made.shape, dtype, made)


def single(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], **options: Any) -> Graph:
    tensors = [*inputs, *outputs]
    numbers = range(len(inputs))
    made = range(len(inputs), len(tensors))
    given = {int(key[1:]) if key.startswith("_") else key: value for key, value in options.items()}
    free = [number for number in numbers if inputs[number].array is None]
    return Graph(tensors, free, list(made), [Operator(name, list(numbers), list(made), given)])


def cases(random: Any) -> Iterator[tuple[str, Graph]]:
    m = Maker(random)
    for dtype in ("i1", "u1", "f4"):
        yield from _contractions(m, dtype)
        yield from _elementwise(m, dtype)
        yield from _images(m, dtype)
        yield from _moves(m, dtype)
    yield from _conversions(m)
    yield from _floats(m)


def _contractions(m: Maker, dtype: str) -> Iterator[tuple[str, Graph]]:
    for number, (activation, padding, stride, dilation, per_channel) in enumerate(
        [(0, 0, 1, 1, True), (1, 1, 2, 1, True), (3, 0, 2, 1, False), (2, 0, 1, 2, True), (0, 1, 1, 1, False)]
    ):
        x = m.tensor((2, 7, 6, 3), dtype)
        w = m.weight((5, 3, 2, 3), dtype, 0 if per_channel else None)
        options = dict(
            padding=padding,
            stride_w=stride,
            stride_h=stride,
            activation=activation,
            dilation_w=dilation,
            dilation_h=dilation,
        )
        size = [
            -(-n // stride) if padding == 0 else -(-(n - (k - 1) * dilation) // stride) for n, k in ((7, 3), (6, 2))
        ]
        y = m.tensor((2, *size, 5), dtype, 0.2)
        yield f"conv_2d_{dtype}_{number}", single("CONV_2D", [x, w, m.bias(x, w, 5)], [y], **options)
        w = m.weight((1, 3, 2, 6), dtype, 3 if per_channel else None)
        y = m.tensor((2, *size, 6), dtype, 0.2)
        yield (
            f"depthwise_{dtype}_{number}",
            single("DEPTHWISE_CONV_2D", [x, w, m.bias(x, w, 6)], [y], multiplier=2, **options),
        )
    for number, (padding, stride, out) in enumerate([(0, 2, (6, 8)), (1, 2, (7, 9)), (1, 1, (5, 6)), (0, 3, (8, 12))]):
        kernel = (3, 3)
        x = m.tensor((1, 3, 4, 3), dtype)
        w = m.weight((2, *kernel, 3), dtype, 0)
        y = m.tensor((1, *out, 2), dtype, 0.3)
        sizes = const([1, *out, 2])
        yield (
            f"transpose_conv_{dtype}_{number}",
            single("TRANSPOSE_CONV", [sizes, w, x], [y], padding=padding, stride_w=stride, stride_h=stride),
        )
    for number, (activation, keep, shape) in enumerate(
        [(0, False, (3, 7)), (1, True, (2, 3, 7)), (3, False, (2, 1, 7))]
    ):
        x = m.tensor(shape, dtype)
        w = m.weight((4, 7), dtype, None)
        rows = shape[:-1] if keep else (int(np.prod(shape[:-1])),)
        y = m.tensor((*rows, 4), dtype, 0.1)
        yield (
            f"fully_connected_{dtype}_{number}",
            single("FULLY_CONNECTED", [x, w, m.bias(x, w, 4)], [y], activation=activation, keep_num_dims=keep),
        )
    if dtype == "i1":
        # So many rows that the number of roundings shows.
        x, w = m.tensor((3000, 8), dtype, 0.1), m.weight((1, 8), dtype, None)
        y = m.tensor((3000, 1), dtype, 0.1 * w.scales[0] * 120, 0)
        yield "fully_connected_rounding", single("FULLY_CONNECTED", [x, w, m.bias(x, w, 1)], [y])
        x, w = m.tensor((3, 7), dtype), m.weight((4, 7), dtype, 0)
        yield (
            "fully_connected_channels",
            single("FULLY_CONNECTED", [x, w, m.bias(x, w, 4)], [m.tensor((3, 4), dtype, 0.1)]),
        )
    if dtype != "u1":
        for number, (adj_x, adj_y) in enumerate([(False, False), (True, False), (False, True)]):
            x = m.tensor((2, 5, 3) if adj_x else (2, 3, 5), dtype)
            y = m.tensor((2, 4, 5) if adj_y else (2, 5, 4), dtype)
            yield (
                f"batch_matmul_{dtype}_{number}",
                single("BATCH_MATMUL", [x, y], [m.tensor((2, 3, 4), dtype, 0.9)], adj_x=adj_x, adj_y=adj_y),
            )


def _elementwise(m: Maker, dtype: str) -> Iterator[tuple[str, Graph]]:
    for name in ("ADD", "SUB", "MUL"):
        for number, (a, b, activation) in enumerate([((3, 5), (3, 5), 0), ((2, 3, 4), (3, 1), 1), ((4,), (), 3)]):
            if name != "MUL" and dtype == "u1" and number == 2:
                continue
            x, y, z = m.tensor(a, dtype), m.tensor(b, dtype), m.tensor(np.broadcast_shapes(a, b), dtype)
            yield f"{name.lower()}_{dtype}_{number}", single(name, [x, y], [z], activation=activation)
    for name in ("MAXIMUM", "MINIMUM"):
        x = m.tensor((3, 5), dtype, 0.1, 3)
        yield (
            f"{name.lower()}_{dtype}",
            single(name, [x, m.tensor((5,), dtype, 0.1, 3)], [m.tensor((3, 5), dtype, 0.1, 3)]),
        )
    for name in ("LESS", "GREATER_EQUAL", "EQUAL", "NOT_EQUAL", "GREATER", "LESS_EQUAL"):
        scale = 0.25
        x, y = m.tensor((3, 40), dtype, scale), m.tensor((3, 40), dtype, 0.3)
        yield f"{name.lower()}_{dtype}", single(name, [x, y], [Tensor((3, 40), "b1")])
    every = (2, 256)
    for name in ("RELU", "RELU6", "RELU_N1_TO_1"):
        yield f"{name.lower()}_{dtype}", single(name, [m.tensor(every, dtype)], [m.tensor(every, dtype)])
    low = {"i1": -128, "u1": 0, "f4": 0}[dtype]
    yield f"logistic_{dtype}", single("LOGISTIC", [m.tensor(every, dtype)], [m.tensor(every, dtype, 1 / 256, low)])
    middle = {"i1": 0, "u1": 128, "f4": 0}[dtype]
    yield f"tanh_{dtype}", single("TANH", [m.tensor(every, dtype)], [m.tensor(every, dtype, 1 / 128, middle)])
    for number, alpha in enumerate((0.1, 0.7)):
        yield (
            f"leaky_relu_{dtype}_{number}",
            single("LEAKY_RELU", [m.tensor(every, dtype)], [m.tensor(every, dtype)], alpha=alpha),
        )
    yield f"hard_swish_{dtype}", single("HARD_SWISH", [m.tensor(every, dtype, 0.05)], [m.tensor(every, dtype, 0.04)])
    yield f"hard_swish_wide_{dtype}", single("HARD_SWISH", [m.tensor(every, dtype, 0.3)], [m.tensor(every, dtype, 0.1)])
    if dtype != "u1":
        for name in ("GELU", "EXP"):
            yield f"{name.lower()}_{dtype}", single(name, [m.tensor(every, dtype, 0.03)], [m.tensor(every, dtype)])
        yield (
            f"squared_difference_{dtype}",
            single(
                "SQUARED_DIFFERENCE", [m.tensor((3, 50), dtype), m.tensor((50,), dtype)], [m.tensor((3, 50), dtype)]
            ),
        )
    alpha = m.weight((1, 1, 5), dtype, None)
    yield f"prelu_{dtype}", single("PRELU", [m.tensor((2, 3, 4, 5), dtype), alpha], [m.tensor((2, 3, 4, 5), dtype)])
    for number, (shape, beta, scale) in enumerate(
        [((3, 10), 1.0, 0.1), ((2, 3, 100), 0.5, 0.4), ((4, 1), 1.0, 0.02), ((3, 200), 1.0, 0.004)]
    ):
        yield (
            f"softmax_{dtype}_{number}",
            single("SOFTMAX", [m.tensor(shape, dtype, scale)], [m.tensor(shape, dtype, 1 / 256, low)], beta=beta),
        )


def _images(m: Maker, dtype: str) -> Iterator[tuple[str, Graph]]:
    for number, (kernel, stride, padding, activation) in enumerate(
        [((3, 2), 2, 0, 0), ((2, 2), 2, 1, 1), ((7, 6), 1, 1, 3)]
    ):
        x = m.tensor((2, 7, 6, 3), dtype, 0.1, 7)
        size = [
            -(-n // stride) if padding == 0 else -(-(n - k + 1) // stride) for n, k in zip((7, 6), kernel, strict=True)
        ]
        y = m.tensor((2, *size, 3), dtype, 0.1, 7)
        options = dict(
            padding=padding,
            stride_w=stride,
            stride_h=stride,
            filter_h=kernel[0],
            filter_w=kernel[1],
            activation=activation,
        )
        for name in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
            yield f"{name.lower()}_{dtype}_{number}", single(name, [x], [y], **options)
    for number, (axes, keep, shape) in enumerate(
        [((1, 2), True, (2, 1, 1, 5)), ((2,), False, (2, 7, 5)), ((0, 3), False, (7, 6))]
    ):
        x = m.tensor((2, 7, 6, 5), dtype, 0.1)
        yield f"mean_{dtype}_{number}", single("MEAN", [x, const(axes)], [m.tensor(shape, dtype, 0.07)], keepdims=keep)
    for number, (corners, half, out) in enumerate(
        [(False, False, (9, 4)), (True, False, (5, 8)), (False, True, (10, 3))]
    ):
        x, y = m.tensor((2, 5, 6, 3), dtype, 0.1, 3), m.tensor((2, *out, 3), dtype, 0.1, 3)
        for name in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"):
            yield (
                f"{name.lower()}_{dtype}_{number}",
                single(name, [x, const(out)], [y], align_corners=corners, half_pixel=half),
            )
    yield (
        f"depth_to_space_{dtype}",
        single(
            "DEPTH_TO_SPACE", [m.tensor((2, 2, 3, 8), dtype, 0.1, 3)], [m.tensor((2, 4, 6, 2), dtype, 0.1, 3)], block=2
        ),
    )
    yield (
        f"space_to_depth_{dtype}",
        single(
            "SPACE_TO_DEPTH", [m.tensor((2, 4, 6, 2), dtype, 0.1, 3)], [m.tensor((2, 2, 3, 8), dtype, 0.1, 3)], block=2
        ),
    )
    yield (
        f"space_to_batch_{dtype}",
        single(
            "SPACE_TO_BATCH_ND",
            [m.tensor((2, 3, 4, 2), dtype, 0.1, 3), const([2, 2]), const([[1, 0], [0, 2]])],
            [m.tensor((8, 2, 3, 2), dtype, 0.1, 3)],
        ),
    )
    yield (
        f"batch_to_space_{dtype}",
        single(
            "BATCH_TO_SPACE_ND",
            [m.tensor((8, 2, 3, 2), dtype, 0.1, 3), const([2, 2]), const([[1, 0], [0, 2]])],
            [m.tensor((2, 3, 4, 2), dtype, 0.1, 3)],
        ),
    )


def _moves(m: Maker, dtype: str) -> Iterator[tuple[str, Graph]]:
    def t(*shape: int) -> Tensor:
        return m.tensor(shape, dtype, 0.1, 3)

    yield f"reshape_{dtype}", single("RESHAPE", [t(2, 6), const([3, -1])], [t(3, 4)], _0=[3, -1])
    yield f"transpose_{dtype}", single("TRANSPOSE", [t(2, 3, 4), const([2, 0, 1])], [t(4, 2, 3)])
    yield f"squeeze_{dtype}", single("SQUEEZE", [t(1, 3, 1, 2)], [t(3, 1, 2)], _0=[0])
    yield f"expand_dims_{dtype}", single("EXPAND_DIMS", [t(3, 2), const(-1)], [t(3, 2, 1)])
    yield f"concatenation_{dtype}", single("CONCATENATION", [t(2, 3), t(2, 1)], [t(2, 4)], axis=-1)
    yield f"pack_{dtype}", single("PACK", [t(2, 3), t(2, 3)], [t(2, 2, 3)], count=2, axis=1)
    yield f"unpack_{dtype}", single("UNPACK", [t(2, 3)], [t(2), t(2), t(2)], count=3, axis=1)
    yield f"split_{dtype}", single("SPLIT", [const(1), t(2, 6)], [t(2, 3), t(2, 3)], num=2)
    yield (
        f"split_v_{dtype}",
        single("SPLIT_V", [t(2, 6), const([1, -1, 2]), const(1)], [t(2, 1), t(2, 3), t(2, 2)], num=3),
    )
    yield f"slice_{dtype}", single("SLICE", [t(4, 5), const([1, 2]), const([2, -1])], [t(2, 3)])
    slices = [
        ([0, 1], [4, 5], [2, 2], (2, 2), {}),
        ([3, 4], [0, 0], [-1, -2], (3, 2), {}),
        ([1, 0], [2, 5], [1, 1], (5,), {"shrink_axis_mask": 1}),
        ([0, 1], [0, 3], [1, 1], (4, 2), {"begin_mask": 1, "end_mask": 1}),
        ([0, -3], [0, -1], [1, 1], (4, 2), {"ellipsis_mask": 1}),
        ([0, 0, 1], [0, 2, 3], [1, 1, 1], (1, 2, 2), {"new_axis_mask": 1}),
    ]
    for number, (begin, end, step, shape, options) in enumerate(slices):
        given = [t(4, 5), const(begin), const(end), const(step)]
        yield f"strided_slice_{dtype}_{number}", single("STRIDED_SLICE", given, [t(*shape)], **options)
    yield f"pad_{dtype}", single("PAD", [t(2, 3), const([[1, 0], [2, 1]])], [t(3, 6)])
    for number, mode in enumerate((0, 1)):
        yield (
            f"mirror_pad_{dtype}_{number}",
            single("MIRROR_PAD", [t(3, 4), const([[1, 2], [2, 0]])], [t(6, 6)], mode=mode),
        )
    yield f"gather_{dtype}", single("GATHER", [t(4, 5), const([[3, 0], [1, 1]])], [t(4, 2, 2)], axis=1)
    yield f"reverse_{dtype}", single("REVERSE_V2", [t(4, 5), const([1])], [t(4, 5)])
    yield f"tile_{dtype}", single("TILE", [Tensor((2, 3), "f4"), const([2, 1])], [Tensor((4, 3), "f4")])
    yield f"arg_max_{dtype}", single("ARG_MAX", [t(4, 5), const(1)], [Tensor((4,), "i4")], output_type=2)
    yield f"reduce_max_{dtype}", single("REDUCE_MAX", [t(4, 5), const([0])], [t(5)])


def _conversions(m: Maker) -> Iterator[tuple[str, Graph]]:
    for a in ("f4", "i1", "u1"):
        for b in ("i1", "u1"):
            yield f"quantize_{a}_{b}", single("QUANTIZE", [m.tensor((3, 256), a)], [m.tensor((3, 256), b)])
    for a in ("i1", "u1"):
        yield f"dequantize_{a}", single("DEQUANTIZE", [m.tensor((3, 256), a)], [Tensor((3, 256), "f4")])
    yield "cast_f4_i4", single("CAST", [Tensor((3, 20), "f4")], [Tensor((3, 20), "i4")])


def _floats(m: Maker) -> Iterator[tuple[str, Graph]]:
    x = Tensor((3, 20), "f4")
    for name in ("ABS", "COS", "FLOOR", "NEG", "SIN", "SQUARE", "SIGN", "LOG_SOFTMAX"):
        yield f"{name.lower()}_f4", single(name, [x], [x])
    for name in ("DIV", "FLOOR_DIV", "FLOOR_MOD", "SQUARED_DIFFERENCE"):
        yield f"{name.lower()}_f4_2", single(name, [x, x], [x])
    i = Tensor((3, 20), "i4")
    nonzero = const(np.resize([-3, -2, -1, 1, 2, 3, 5], (3, 20)))
    for name in ("ADD", "SUB", "MUL", "DIV", "FLOOR_DIV", "FLOOR_MOD"):
        yield f"{name.lower()}_i4", single(name, [i, nonzero], [i])
    for name in ("SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN"):
        yield f"{name.lower()}_f4_2", single(name, [x, const([1])], [Tensor((3, 1), "f4")], keepdims=True)
    yield "l2_normalization", single("L2_NORMALIZATION", [x], [x])
    four = Tensor((1, 2, 3, 8), "f4")
    yield (
        "local_response",
        single("LOCAL_RESPONSE_NORMALIZATION", [four], [four], radius=2, bias=1.0, alpha=0.5, beta=0.75),
    )
    yield "cumsum", single("CUMSUM", [x, const(1)], [x], exclusive=True, reverse=True)
    yield (
        "one_hot",
        single(
            "ONE_HOT",
            [Tensor((2, 3), "i4"), const(4), const(2.0, "f4"), const(-1.0, "f4")],
            [Tensor((2, 3, 4), "f4")],
            axis=-1,
        ),
    )
    yield "select", single("SELECT_V2", [Tensor((3, 1), "b1"), x, x], [x])
    yield "top_k", single("TOPK_V2", [x, const(5)], [Tensor((3, 5), "f4"), Tensor((3, 5), "i4")])
    yield (
        "range",
        Graph(
            [const(2), const(11), const(4), Tensor((3,), "i4"), Tensor((3,), "i4"), Tensor((3,), "i4")],
            [4],
            [5],
            [Operator("RANGE", [0, 1, 2], [3]), Operator("ADD", [3, 4], [5])],
        ),
    )
    batch = Tensor((1, 6), "f4", signature=(-1, 6))
    shaped = [
        batch,
        Tensor((2,), "i4"),
        const([0]),
        const([1]),
        const([1]),
        Tensor((), "i4"),
        const(3),
        const(2),
        Tensor((3,), "i4"),
        Tensor((1, 3, 2), "f4", signature=(-1, 3, 2)),
    ]
    yield (
        "symbolic_batch",
        Graph(
            shaped,
            [0],
            [9],
            [
                Operator("SHAPE", [0], [1], {"output_type": 2}),
                Operator("STRIDED_SLICE", [1, 2, 3, 4], [5], {"shrink_axis_mask": 1}),
                Operator("PACK", [5, 6, 7], [8], {"count": 3, "axis": 0}),
                Operator("RESHAPE", [0, 8], [9]),
            ],
        ),
    )


def join(graphs: Sequence[Graph]) -> Graph:
    """Returns one graph with the tensors and operators of several."""
    tensors: list[Tensor] = []
    inputs: list[int] = []
    outputs: list[int] = []
    operators: list[Operator] = []
    for graph in graphs:
        first = len(tensors)
        tensors += graph.tensors
        inputs += [first + number for number in graph.inputs]
        outputs += [first + number for number in graph.outputs]
        for each in graph.operators:
            given, made = ([first + number for number in side] for side in (each.inputs, each.outputs))
            operators.append(Operator(each.name, given, made, each.options))
    return Graph(tensors, inputs, outputs, operators)


def main() -> None:
    random = np.random.default_rng(0)
    stored: dict[str, Any] = {}
    joined: dict[str, Graph] = {}
    for name, graph in cases(random):
        assert f"{name}/model" not in stored, name
        model = write_model([graph])
        inputs = [drawn(random, graph.tensors[number]) for number in graph.inputs]
        if name == "symbolic_batch":
            inputs = [np.arange(24, dtype=np.float32).reshape(4, 6)]
        try:
            # The reference kernel of this operator leaves out the last channel of each window.
            optimized = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
            outputs = run_reference(model, inputs, *([optimized] if name == "local_response" else []))
        except (RuntimeError, ValueError) as error:
            print(f"{name}: LiteRT refuses it: {error}")
            continue
        if len(stored) % JOINED_OF == 0:
            joined[name] = graph
        stored[f"{name}/model"] = np.frombuffer(model, np.uint8)
        stored |= {f"{name}/input{number}": array for number, array in enumerate(inputs)}
        stored |= {f"{name}/output{number}": array for number, array in enumerate(outputs)}
    stored["joined"] = np.frombuffer(write_model([join(list(joined.values()))]), np.uint8)
    x = Tensor((2,), "f4")
    stored["unknown"] = np.frombuffer(write_model([single("SVDF", [x, x], [x])]), np.uint8)
    stored["joined_names"] = np.array(list(joined))
    np.savez_compressed(CASES, **stored)
    print(f"{sum(name.endswith('/model') for name in stored)} models in {CASES}: {CASES.stat().st_size} bytes")


if __name__ == "__main__":
    main()
