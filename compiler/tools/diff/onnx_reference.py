"""An ONNX model as a reference: its results, and the intermediate values that correspond to points of the build.

ONNX Runtime computes them. A value corresponds to a point if both have the same name, or if both models have the same
number of values with its operator, dtype and shape: these correspond in order. Other values are not matched.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ....dialect.types import Array, dtype_of
from ...comparison.capture import Capture, Point, result_point

ONNX = ".onnx"
_OPERATORS: Mapping[str, str] = {
    "Gemm": "matmul",
    "Conv": "conv2d",
    "MaxPool": "max_pool2d",
    "AveragePool": "avg_pool2d",
    "GlobalAveragePool": "global_avg_pool",
    "LayerNormalization": "layer_norm",
    "Sub": "subtract",
    "Mul": "multiply",
    "Div": "divide",
    "Gather": "embedding",
}
"""The names of ONNX operators in Nacre, if they differ."""

_PROVIDERS = ("CPUExecutionProvider",)
_Kind = tuple[str, str, tuple[int, ...]]
"""An operator, a dtype and a shape."""


def run_onnx(path: Path, inputs: Mapping[str, Array], results: Sequence[str], build: Capture) -> Capture:
    """Runs the model and returns its outputs, by name if they are named as results, else in order, and the values that
    correspond to points of the build. Raises DiagnosticError if the model cannot be run."""
    if find_spec("onnxruntime") is None:
        help_text = "`pip install onnxruntime`, or give the tensors as a .npz file"
        message = f"`{path}` cannot be run: the package `onnxruntime` is not installed"
        raise _error("no-onnx-runtime", message, help_text)
    runtime: Any = import_module("onnxruntime")
    try:
        own = [o.name for o in runtime.InferenceSession(str(path), providers=_PROVIDERS).get_outputs()]
        model, makers = _with_outputs(path) if find_spec("onnx") is not None else (str(path), {})
        session = runtime.InferenceSession(model, providers=_PROVIDERS)
        takes = [i.name for i in session.get_inputs()]
        missing = [name for name in takes if name not in inputs]
        if missing:
            raise _error("onnx-input", f"`{path}` takes {', '.join(missing)}, which the model does not")
        outputs = [o.name for o in session.get_outputs()]
        made = dict(zip(outputs, session.run(outputs, {name: inputs[name] for name in takes}), strict=True))
    except DiagnosticError:
        raise
    except Exception as error:  # its exceptions have no common base class
        raise _error(
            "onnx-failed", f"`{path}` cannot be run: {(str(error).splitlines() or ['it printed nothing'])[0]}"
        ) from error
    names = own if set(own) & set(results) else [*results, *own[len(results) :]]
    points = {result_point(name): made[output] for name, output in zip(names, own, strict=False) if name in results}
    note = "only results are compared: intermediate values require `pip install onnx`"
    if makers:
        found = match_values(made, makers, build)
        points |= {point: made[value] for point, value in found.items()}
        note = f"{len(found)} of {len(_inner(build))} values of A were matched with values of B, by name or order"
    return Capture({name: Point(name, array) for name, array in points.items()}, ordered=False, note=note)


def _inner(build: Capture) -> dict[str, Point]:
    return {name: point for name, point in build.points.items() if not name.startswith(result_point(""))}


def match_values(made: Mapping[str, Array], makers: Mapping[str, str], build: Capture) -> dict[str, str]:
    """Matches the values of an ONNX model with points; `makers` are the operators that compute them, in order."""
    points = _inner(build)
    values = {name: op for name, op in makers.items() if _known(made[name])}
    by_name = {_plain(name): name for name in values}
    found = {
        name: by_name[_plain(name)]
        for name, point in points.items()
        if _plain(name) in by_name and made[by_name[_plain(name)]].shape == point.array.shape
    }
    taken = set(found.values())
    theirs = _by_kind((name, _OPERATORS.get(op, op), made[name]) for name, op in values.items() if name not in taken)
    ours = _by_kind((name, p.op, p.array) for name, p in points.items() if name not in found)
    for kind, names in ours.items():
        if kind[0] and len(names) == len(theirs.get(kind, ())):
            found |= dict(zip(names, theirs[kind], strict=True))
    return found


def _by_kind(values: Iterator[tuple[str, str, Array]]) -> dict[_Kind, list[str]]:
    kinds: dict[_Kind, list[str]] = defaultdict(list)
    for name, op, array in values:
        kinds[op.lower().replace("_", ""), dtype_of(array).name, array.shape].append(name)
    return kinds


def _known(array: object) -> bool:
    """Returns whether the value is an array with a dtype that Nacre supports; it may also be a sequence or strings."""
    try:
        dtype_of(array)  # type: ignore[arg-type]  # that is the question
    except (KeyError, AttributeError):
        return False
    return True


def _plain(name: str) -> str:
    return name.strip("/").replace("/", ".").replace("::", ".").lower()


def _with_outputs(path: Path) -> tuple[bytes, dict[str, str]]:
    """Returns the model with every value as an output, after its own, and the operators that compute them, in order."""
    onnx: Any = import_module("onnx")
    model = onnx.load(str(path))
    makers = {name: node.op_type for node in model.graph.node for name in node.output if name}
    own = {output.name for output in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in makers if name not in own)
    return bytes(model.SerializeToString()), makers


def _error(code: str, message: str, help: str = "") -> DiagnosticError:
    return DiagnosticError([Diagnostic(code, message, help=help)])
