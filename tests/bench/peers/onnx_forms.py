"""Which file a peer that reads ONNX gets, by precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from prepare import Model
from twins.onnx_quantized import blocks_int4, dynamic_int8, static_int8
from workloads.precision import BF16, F32, INT4, INT4A8, INT8, INT8_STATIC, Precision

Form = Callable[[Model], Path]


def as_it_is(model: Model) -> Path:
    return model.onnx


def dynamic(model: Model) -> Path:
    return dynamic_int8(model.onnx)


def static(model: Model) -> Path:
    return static_int8(model.onnx, model.samples)


def static_weights(model: Model) -> Path:
    return static_int8(model.onnx, model.samples, weights_only=True)


def blocks(model: Model) -> Path:
    return blocks_int4(model.onnx)


def blocks_of_codes(model: Model) -> Path:
    return blocks_int4(model.onnx, activations_int8=True)


ONNXRUNTIME: Mapping[Precision, Form] = {
    F32: as_it_is,
    INT8: dynamic,
    INT8_STATIC: static,
    INT4: blocks,
    INT4A8: blocks_of_codes,
}
OPENVINO: Mapping[Precision, Form] = {F32: as_it_is, BF16: as_it_is, INT8: static_weights, INT8_STATIC: static}
"""It has no kernels for the nodes of dynamic scales, and gets static ones."""
