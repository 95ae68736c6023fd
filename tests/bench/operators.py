"""Every operator beside PyTorch eager and ONNX Runtime, one thread: `python tests/bench/operators.py [NAME ...]`.

Names are those of `workloads/operators.py`, or patterns. All contenders of an operator run in turn, round after round,
in one process, and the ratio is the median of the rounds' ratios: the peer's time over ours. On a busy machine
`--cpu-time` counts the time of the calling thread alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnxruntime
from beside_torch import (
    OURS,
    TORCH,
    Measured,
    Sweep,
    format_note,
    format_ratio,
    listed,
    measure,
    options,
    parse,
    torch_contender,
    use_one_core,
)
from measure import Contender
from nacre.compiler.tools.explorer.graph import Graph
from nacre.dialect.graph import Constant, Function, Module, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import Array, TensorType
from nacre.runtime.loader import Entry
from workloads.operators import USUAL, VARIANTS, Usual

ONNXRUNTIME = "onnxruntime"
OPSET = 21


@dataclass(frozen=True)
class Line:
    """The measurement of one operator."""

    name: str
    operands: str
    measured: Measured


def all_usual() -> dict[str, tuple[str, Usual]]:
    """The operator and its use by the name of the line."""
    return {name: (name, usual) for name, usual in USUAL.items()} | dict(VARIANTS)


def write_function(operator: str, usual: Usual, arrays: Sequence[Array], name: str = "f") -> Function:
    """The operator alone, with the operands that are no weights as arguments."""
    types = [TensorType(given.dtype, given.shape) for given in usual.operands]
    arguments = [Value(f"a{i}", type) for i, type in enumerate(types)]
    b = Builder(OPERATORS, "v")
    operands = [
        b.constant(value=Constant(array)) if given.weight else argument
        for given, argument, array in zip(usual.operands, arguments, arrays, strict=True)
    ]
    results = b.apply(operator, operands, usual.attributes)
    for name, attributes in usual.then:
        results = b.apply(name, results, attributes)
    passed = tuple(a for a, given in zip(arguments, usual.operands, strict=True) if not given.weight)
    return Function(name, passed, tuple(b.nodes), results, tuple(f"r{i}" for i in range(len(results))))


def compile_all(chosen: Sequence[str], folder: Path) -> dict[str, Entry]:
    """The entry of each use, all of one artifact: linking one for each would take most of the time."""
    known, functions = all_usual(), []
    for number, name in enumerate(chosen):
        operator, usual = known[name]
        functions.append(write_function(operator, usual, make_arrays(usual), f"f{number}"))
    module = Module("operators", functions=tuple(functions))
    model = Graph(module, functions[0].name).compile(folder / "operators.so", threads=1)
    return {name: model.entries[function.name] for name, function in zip(chosen, functions, strict=True)}


def make_arrays(usual: Usual) -> list[Array]:
    random = np.random.default_rng(0)
    return [given.array(random) for given in usual.operands]


def onnx_contender(usual: Usual, arrays: Sequence[Array]) -> Contender | None:
    form = usual.onnx
    if form is None or usual.then:
        return None
    inputs, weights = [], []
    for number, (given, array) in enumerate(zip(usual.operands, arrays, strict=True)):
        if given.weight:
            weights.append(onnx.numpy_helper.from_array(array, f"a{number}"))
        else:
            type = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
            inputs.append(onnx.helper.make_tensor_value_info(f"a{number}", type, array.shape))
    names = [f"a{number}" for number in range(len(arrays))]
    for number, constant in enumerate(form.constants):
        names.append("" if constant is None else f"c{number}")
        if constant is not None:
            weights.append(onnx.numpy_helper.from_array(constant, f"c{number}"))
    results = [f"r{i}" for i in range(OUTPUTS.get(form.type, 1))]
    node = onnx.helper.make_node(form.type, names, results, **form.attributes)
    outputs = [onnx.ValueInfoProto(name=name) for name in results]
    graph = onnx.helper.make_graph([node], "operator", inputs, outputs, weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    passed = dict(zip((i.name for i in inputs), _passed(usual, arrays), strict=True))
    return Contender(ONNXRUNTIME, lambda: session.run(None, passed), list)


OUTPUTS: Mapping[str, int] = {"TopK": 2, "Split": 2}
"""The results of an ONNX operator that has several."""


def _passed(usual: Usual, arrays: Sequence[Array]) -> list[Array]:
    return [array for given, array in zip(usual.operands, arrays, strict=True) if not given.weight]


def measure_line(name: str, usual: Usual, entry: Entry, sweep: Sweep) -> Line:
    arrays = make_arrays(usual)
    shapes = ", ".join(f"{given.dtype}{list(given.shape)}" for given in usual.operands)
    passed = _passed(usual, arrays)
    contenders = [Contender(OURS, lambda: entry(*passed), listed), torch_contender(usual.torch, arrays)]
    contenders += [c for c in (_if_known(lambda: onnx_contender(usual, arrays)),) if c is not None]
    return Line(name, shapes, measure(contenders, sweep, signed=usual.signed))


def _if_known(make: Callable[[], Contender | None]) -> Contender | None:
    """None where ONNX Runtime has no kernel for the operands."""
    try:
        contender = make()
        if contender is not None:
            contender.call()
        return contender
    except Exception as reason:
        if type(reason).__module__.startswith(("onnxruntime", "onnx")):
            return None
        raise


def format_lines(lines: Sequence[Line], note: str) -> Iterator[str]:
    """A table in markdown, the lowest ratio to PyTorch first."""
    yield "# Operators"
    yield ""
    yield note
    yield ""
    yield f"| operator | operands | ours | {TORCH} | {ONNXRUNTIME} |"
    yield "|---|---|---|---|---|"
    for line in sorted(lines, key=lambda line: line.measured.ratio(TORCH) or 0.0):
        cells = [format_ratio(line.measured.ratio(peer)) for peer in (TORCH, ONNXRUNTIME)]
        own = line.measured.timings[OURS].median * 1e6
        yield f"| {line.name} | {line.operands} | {own:.1f} us | {cells[0]} | {cells[1]} |"
    for line in lines:
        if line.measured.wrong:
            yield ""
            yield f"`{line.name}`: the results of {', '.join(line.measured.wrong)} differ from those of {TORCH}."


def main() -> int:
    known = all_usual()
    given = parse(options(__doc__), known)
    use_one_core()
    lines = []
    with TemporaryDirectory(prefix="nacre-bench-") as folder:
        entries = compile_all(given.chosen, Path(folder))
    for name in given.chosen:
        line = measure_line(name, known[name][1], entries[name], given.sweep)
        lines.append(line)
        ratios = "  ".join(f"{p} {format_ratio(line.measured.ratio(p)):>6}" for p in (TORCH, ONNXRUNTIME))
        wrong = f"  differs: {', '.join(line.measured.wrong)}" if line.measured.wrong else ""
        print(f"{name:28} {line.measured.timings[OURS].median * 1e6:9.1f} us  {ratios}{wrong}", flush=True)
    note = format_note(given.sweep, (TORCH, ONNXRUNTIME), "operators.py")
    if given.markdown:
        given.markdown.write_text("\n".join(format_lines(lines, note)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
