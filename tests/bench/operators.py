"""Every operator beside PyTorch eager and ONNX Runtime, one thread: `python tests/bench/operators.py [NAME ...]`.

Names are those of `workloads/operators.py`, or patterns. All contenders of an operator run in turn, round after round,
in one process, and the ratio is the median of the rounds' ratios: the peer's time over ours. On a busy machine
`--cpu-time` counts the time of the calling thread alone.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from measure import Contender, Plan, Timing, interleave, summarize
from nacre.compiler.tools.explorer.graph import Graph
from nacre.compiler.tools.profile.machine import processor
from nacre.dialect.graph import Constant, Function, Module, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import BF16, Array, TensorType
from nacre.runtime.loader import Entry
from workloads.operators import USUAL, VARIANTS, Usual

OURS, TORCH, ONNXRUNTIME = "nacre", "torch", "onnxruntime"
OPSET = 21
BUSY = "Other work ran on the machine at the same time; ratios vary by about 0.1 from run to run.\n"
NEAR = 1e-3
"""A result that is further from PyTorch's, as a share of the largest number, is of another operator."""
BFLOAT = 2**-7
"""The same for results in bf16: two units."""


@dataclass(frozen=True)
class Line:
    """The measurement of one operator. `wrong` is the contender whose results differ from PyTorch's, if one is."""

    name: str
    operands: str
    timings: Mapping[str, Timing]
    wrong: str = ""

    def ratio(self, peer: str) -> float | None:
        return self.timings[peer].ratio if peer in self.timings else None


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


def torch_contender(usual: Usual, arrays: Sequence[Array]) -> Contender:
    operands = [_tensor(array) for array in arrays]

    def call() -> Any:
        with torch.inference_mode():
            return usual.torch(*operands)

    return Contender(TORCH, call, lambda results: [_array(tensor) for tensor in _listed(results)])


def _tensor(array: Array) -> torch.Tensor:
    """The tensor shares the array's memory: the speed of the caches depends on the pages by 5%."""
    if array.dtype == BF16.numpy:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _array(tensor: torch.Tensor) -> Array:
    return tensor.view(torch.int16).numpy().view(BF16.numpy) if tensor.dtype == torch.bfloat16 else tensor.numpy()


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


def _listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (tuple, list)) else [results]


def is_near(contender: Contender, expected: Sequence[Array], *, signed: bool = True) -> bool:
    """Returns whether the results are those of another contender, but for their signs unless they are `signed`."""
    results = contender.results()
    if len(results) < len(expected):
        return False
    for result, wanted in zip(results, expected, strict=False):
        if result.shape != wanted.shape:
            return False
        got, exact = (a.astype(np.float64) if signed else np.abs(a, dtype=np.float64) for a in (result, wanted))
        # A code may be rounded the other way, a bfloat be off by a unit.
        step = 1.0 if wanted.dtype == np.int8 else 0.0
        near = BFLOAT if wanted.dtype == BF16.numpy else NEAR
        allowed = step + near * np.abs(exact).max(initial=1e-30)
        if not np.abs(got - exact).max(initial=0.0) <= allowed:
            return False
    return True


def measure(name: str, usual: Usual, entry: Entry, plan: Plan, *, cpu_time: bool) -> Line:
    arrays = make_arrays(usual)
    shapes = ", ".join(f"{given.dtype}{list(given.shape)}" for given in usual.operands)
    passed = _passed(usual, arrays)
    peer = torch_contender(usual, arrays)
    contenders = [Contender(OURS, lambda: entry(*passed), _listed), peer]
    contenders += [c for c in (_if_known(lambda: onnx_contender(usual, arrays)),) if c is not None]
    expected = peer.results()
    wrong = [c.name for c in contenders if not is_near(c, expected, signed=usual.signed)]
    if cpu_time:
        contenders = [c.timed_by(time.thread_time) for c in contenders]
    times = interleave([c for c in contenders if c.name not in wrong or c.name == OURS], plan)
    return Line(name, shapes, summarize(times.seconds, OURS), ", ".join(wrong))


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
    for line in sorted(lines, key=lambda line: line.ratio(TORCH) or 0.0):
        cells = [_ratio(line.ratio(peer)) for peer in (TORCH, ONNXRUNTIME)]
        own = line.timings[OURS].median * 1e6
        yield f"| {line.name} | {line.operands} | {own:.1f} us | {cells[0]} | {cells[1]} |"
    for line in lines:
        if line.wrong:
            yield ""
            yield f"`{line.name}`: the results of {line.wrong} differ from those of {TORCH}."


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--rounds", type=int, default=9, metavar="N")
    parser.add_argument("--slot", type=float, default=0.01, metavar="SECONDS", help="of each contender in each round")
    parser.add_argument("--cpu-time", action="store_true", help="time of the calling thread, not of the clock")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    known = all_usual()
    given.chosen = [name for name in known if not given.names or any(fnmatch.fnmatch(name, p) for p in given.names)]
    if not given.chosen:
        parser.error(f"no operator is called {' or '.join(given.names)}")
    return given


def main() -> int:
    given = parse()
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    known, lines = all_usual(), []
    with TemporaryDirectory(prefix="nacre-bench-") as folder:
        entries = compile_all(given.chosen, Path(folder))
    for name in given.chosen:
        line = measure(name, known[name][1], entries[name], Plan(given.rounds, given.slot), cpu_time=given.cpu_time)
        lines.append(line)
        ratios = "  ".join(f"{peer} {_ratio(line.ratio(peer)):>6}" for peer in (TORCH, ONNXRUNTIME))
        wrong = f"  differs: {line.wrong}" if line.wrong else ""
        print(f"{name:28} {line.timings[OURS].median * 1e6:9.1f} us  {ratios}{wrong}", flush=True)
    clock = "thread CPU time" if given.cpu_time else "wall time"
    versions = ", ".join(f"{package} {version(package)}" for package in (TORCH, ONNXRUNTIME))
    note = (
        f"One thread of {processor()}, {clock}, median of {given.rounds} rounds beside {versions}.\n"
        "A number is the peer's time over ours, so that above 1 we are faster.\n"
        f"{BUSY if given.cpu_time else ''}"
        "`python tests/bench/operators.py --markdown FILE` writes this file."
    )
    text = "\n".join(format_lines(lines, note)) + "\n"
    if given.markdown:
        given.markdown.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
