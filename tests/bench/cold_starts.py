"""A fresh process for each start: the seconds from after the imports until a model has given its first result.

Files are in the page cache. ONNX Runtime and OpenVINO start twice: from the ONNX file, and from what they saved of an
earlier start so that this one is quicker.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from measure import Contender
from peers import PEERS
from prepare import Model

_FRAME = """
import sys, time
import numpy as np
{imports}
with np.load(sys.argv[2]) as file:
    inputs = {{name: file[name] for name in file.files}}
start = time.perf_counter()
{body}
seconds = time.perf_counter() - start
np.save(sys.argv[3], result)
print(seconds)
"""
_NACRE = "import nacre; nacre.load", "result = nacre.load(sys.argv[1], threads={threads})(*inputs.values())"
_ONNXRUNTIME = (
    "import onnxruntime",
    """
options = onnxruntime.SessionOptions()
options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = {threads}, 1, 3
{more}
result = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"]).run(None, inputs)[0]
""",
)
_OPENVINO = (
    "import openvino",
    """
settings = {{"INFERENCE_NUM_THREADS": {threads}, "INFERENCE_PRECISION_HINT": "f32", {more}}}
result = openvino.Core().compile_model(sys.argv[1], "CPU", settings).create_infer_request().infer(inputs)[0]
""",
)


def contenders(model: Model, artifacts: Mapping[str, Path], threads: int) -> Iterator[Contender]:
    """Those of the installed peers that can start so."""
    for name, path in artifacts.items():
        yield _contender(model, name, path, _NACRE, threads)
    if PEERS["onnxruntime"].missing() and PEERS["openvino"].missing():
        return
    onnx, saved, cache = str(model.onnx), str(model.folder / "saved.onnx"), str(model.folder / "cache")
    if not PEERS["onnxruntime"].missing():
        yield _contender(model, "onnxruntime", onnx, _ONNXRUNTIME, threads)
        save = f"options.optimized_model_filepath = {saved!r}"
        _contender(model, "onnxruntime, saved", onnx, _ONNXRUNTIME, threads, save).call()
        off = "options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL"
        yield _contender(model, "onnxruntime, saved", saved, _ONNXRUNTIME, threads, off)
    if not PEERS["openvino"].missing():
        yield _contender(model, "openvino", onnx, _OPENVINO, threads)
        kept = _contender(model, "openvino, saved", onnx, _OPENVINO, threads, f'"CACHE_DIR": {cache!r}')
        kept.call()
        yield kept


def _contender(
    model: Model, name: str, path: Path | str, program: tuple[str, str], threads: int, more: str = ""
) -> Contender:
    imports, body = program
    code = _FRAME.format(imports=imports, body=body.format(threads=threads, more=more))
    inputs, result = model.folder / "inputs.npz", model.folder / "result.npy"
    if not inputs.exists():
        np.savez(inputs, **dict(model.inputs))

    def start() -> float:
        command = [sys.executable, "-c", code, str(path), str(inputs), str(result)]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def fetch(_: Any) -> list[Any]:
        return [np.load(result)]

    clock: Callable[[int], float] = lambda count: sum(start() for _ in range(count))  # noqa: E731
    return Contender(name, start, fetch, clock)
