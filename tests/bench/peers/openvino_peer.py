"""OpenVINO's CPU plugin. It is set to float32, since it would use bfloat16 on processors that have it."""

from __future__ import annotations

import openvino
from measure import Contender
from prepare import Model
from workloads.precision import BF16

from .onnx_forms import OPENVINO


def prepare(model: Model, threads: int) -> Contender:
    core = openvino.Core()
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "bf16" if model.workload.precision == BF16 else "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,
    }
    path = OPENVINO[model.workload.precision](model)
    request = core.compile_model(core.read_model(path), "CPU", settings).create_infer_request()
    inputs = dict(model.inputs)
    return Contender(
        "openvino",
        lambda: request.infer(inputs, share_inputs=True, share_outputs=True),
        lambda results: [results[i].copy() for i in range(len(results))],
    )
