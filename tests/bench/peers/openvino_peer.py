"""OpenVINO's CPU plugin, in float32: it would take bfloat16 where the processor has it."""

from __future__ import annotations

import openvino
from measure import Contender
from prepare import Model


def prepare(model: Model, threads: int) -> Contender:
    core = openvino.Core()
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,
    }
    request = core.compile_model(core.read_model(model.onnx), "CPU", settings).create_infer_request()
    inputs = dict(model.inputs)
    return Contender(
        "openvino",
        lambda: request.infer(inputs, share_inputs=True, share_outputs=True),
        lambda results: [results[i].copy() for i in range(len(results))],
    )
