"""References: tensors that another program has computed, in a `.npz` or `.safetensors` file by name, or an ONNX model
that is run on the same inputs.

Names are those of points (`encoder.layer.0.output.h`), or of results. Which ones are there is up to whoever made it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ...dialect.types import Array
from ..checkpoint import open_checkpoint
from .capture import Capture, Point, result_point

TENSORS = (".npz", ".safetensors")
ONNX = ".onnx"


def read_reference(path: Path, results: Sequence[str]) -> Capture:
    """The tensors of a file; those that are called as a result of the model are taken for it."""
    checkpoint = open_checkpoint(path)
    return _points({name: checkpoint.read(name) for name in checkpoint.names()}, results)


def run_onnx(path: Path, inputs: Mapping[str, Array], results: Sequence[str]) -> Capture:
    """What ONNX Runtime computes: its outputs, by name where they are called as results, else in order."""
    if find_spec("onnxruntime") is None:
        help_text = "`pip install onnxruntime`, or give the tensors as a .npz file"
        raise _fault(
            "no-onnx-runtime", f"`{path}` cannot be run: the package `onnxruntime` is not installed", help_text
        )
    runtime: Any = import_module("onnxruntime")
    try:
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        takes = [i.name for i in session.get_inputs()]
        missing = [name for name in takes if name not in inputs]
        if missing:
            raise _fault("onnx-input", f"`{path}` takes {', '.join(missing)}, which the model does not")
        outputs = [o.name for o in session.get_outputs()]
        made = session.run(outputs, {name: inputs[name] for name in takes})
    except DiagnosticError:
        raise
    except Exception as error:  # its exceptions have no class in common
        raise _fault("onnx-failed", f"`{path}` cannot be run: {str(error).splitlines()[0]}") from error
    names = outputs if set(outputs) & set(results) else [*results, *outputs[len(results) :]]
    return _points(dict(zip(names, made, strict=False)), results)


def _points(arrays: Mapping[str, Array], results: Sequence[str]) -> Capture:
    names = {name: result_point(name) if name in results else name for name in arrays}
    return Capture({names[name]: Point(names[name], array) for name, array in arrays.items()}, ordered=False)


def _fault(code: str, message: str, help: str = "") -> DiagnosticError:
    return DiagnosticError([Diagnostic(code, message, help=help)])
