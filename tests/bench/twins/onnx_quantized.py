"""The ONNX twin in fewer bits, by ONNX Runtime's own tools where it has some. Each form is written once, beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper
from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

Array = npt.NDArray[Any]
VISION = ["Conv", "MatMul", "Gemm", "Add", "GlobalAveragePool", "MaxPool"]
"""The operators that networks for images keep in 8 bits."""
BLOCK = 32
ACTIVATIONS_F32, ACTIVATIONS_INT8 = 1, 4
"""The `accuracy_level` of a product whose activations stay in f32, and of one that quantizes them by blocks."""


def dynamic_int8(twin: Path) -> Path:
    """Weights per column, activations with scales from each call."""

    def write(path: Path) -> None:
        quantize_dynamic(twin, path, ["MatMul"], per_channel=True, weight_type=QuantType.QInt8)

    return _beside(twin, "dynamic", write)


def static_int8(twin: Path, samples: Sequence[Mapping[str, Array]], *, weights_only: bool = False) -> Path:
    """Weights per channel, activations with scales from samples, written as pairs of quantization and its inverse.

    weights_only: activations are in 8 bits only where they meet weights, which transformers bear better.
    """

    def write(path: Path) -> None:
        folded = path.with_name("folded.onnx")
        # Norms go into the convolutions before scales are chosen. Sizes are known where models are compared.
        quant_pre_process(twin, folded, skip_symbolic_shape=True)
        quantize_static(
            folded,
            path,
            _Reader(iter(samples)),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=["MatMul"] if weights_only else VISION,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            extra_options={"MatMulConstBOnly": weights_only},
        )

    return _beside(twin, "static", write)


def blocks_int4(twin: Path, *, activations_int8: bool = False) -> Path:
    """Weights in blocks with a scale each, as ONNX Runtime's `MatMulNBits` has them, and activations in f32 or i8."""

    def write(path: Path) -> None:
        model = onnx.load(twin)
        graph = model.graph
        weights = {tensor.name: tensor for tensor in graph.initializer}
        nodes = []
        for node in graph.node:
            weight = weights.get(node.input[1]) if node.op_type == "MatMul" else None
            if weight is None:
                nodes.append(node)
                continue
            codes, scales = pack_blocks(numpy_helper.to_array(weight))
            inputs = [node.input[0]]
            for name, array in ((f"{weight.name}_codes", codes), (f"{weight.name}_scales", scales)):
                graph.initializer.append(numpy_helper.from_array(array, name))
                inputs.append(name)
            size, columns = weight.dims
            attributes = {"K": size, "N": columns, "bits": 4, "block_size": BLOCK}
            attributes["accuracy_level"] = ACTIVATIONS_INT8 if activations_int8 else ACTIVATIONS_F32
            made = helper.make_node("MatMulNBits", inputs, list(node.output), domain="com.microsoft", **attributes)
            nodes.append(made)
            graph.initializer.remove(weight)
        del graph.node[:]
        graph.node.extend(nodes)
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        onnx.save(model, path)

    return _beside(twin, "blocks-of-codes" if activations_int8 else "blocks", write)


def pack_blocks(weight: Array) -> tuple[Array, Array]:
    """A matrix [inputs, outputs]: codes [outputs, blocks, BLOCK / 2], the first of two in the low bits, and scales."""
    inputs, outputs = weight.shape
    assert inputs % BLOCK == 0, weight.shape
    blocks = weight.T.reshape(outputs, inputs // BLOCK, BLOCK)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(-1)[..., None], -1)
    # The largest number becomes code 0, which stands for -8.
    scales = (largest / np.float32(-8)).astype(np.float32)
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales != 0)
    codes = np.clip(np.rint(blocks * inverse) + 8, 0, 15).astype(np.uint8)
    return codes[..., ::2] | codes[..., 1::2] << 4, scales.reshape(-1)


@dataclass(frozen=True)
class _Reader:
    """What is asked for samples until there are no more."""

    samples: Iterator[Mapping[str, Array]]

    def get_next(self) -> Mapping[str, Array] | None:
        return next(self.samples, None)


def _beside(twin: Path, form: str, write: Callable[[Path], None]) -> Path:
    path = twin.with_name(f"{form}.onnx")
    if not path.exists():
        write(path)
    return path
