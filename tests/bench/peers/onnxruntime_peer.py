"""ONNX Runtime's CPU provider, all its optimisations on, as it is by default."""

from __future__ import annotations

import onnxruntime
from measure import Contender
from prepare import Model

from .onnx_forms import ONNXRUNTIME


def prepare(model: Model, threads: int) -> Contender:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    # Without VNNI, products of 8-bit codes would saturate in 16 bits: the results would be those of another model.
    options.add_session_config_entry("session.x64quantprecision", "1")
    path = ONNXRUNTIME[model.workload.precision](model)
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs = dict(model.inputs)
    return Contender("onnxruntime", lambda: session.run(None, inputs), list)
