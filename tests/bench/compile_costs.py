"""Measures what compiling costs, in CPU time and memory: `python tests/bench/compile_costs.py`.

Each case is compiled without a cache by a process of its own. The CPU time is that of this process and of those it
starts. The memory is the largest resident set of a single process among them, as the system reports it (`ru_maxrss`):
that of the compiler, or of one of the children that generate code. Mapped pages of a checkpoint count.

`--json FILE` and `--markdown FILE` write the figures, so that a series of builds can be compared. The exit status is 1
if a case exceeds its bound.

    layers-96       an encoder of 96 layers of width 64
    layers-384      the same with 384 layers: at most 4.5 times the time
    kernels-2000    a kernel for each of 2,000 small shapes: at most 2 GB
    nodes-20000     20,000 nodes that `repeat` unrolls to: at most 2 GB
    weights-10g     a checkpoint of 10 GB in a sparse file, stored beside the artifact: at most 2 GB
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any

from nacre.compiler.api import read_model
from nacre.compiler.weights.header_checks import elements, stored_shape

GB = 1e9
COMMON = ("--no-cache", "--timeout", "7200")


@dataclass(frozen=True, slots=True)
class Case:
    """A model to compile. Its weights are zeros in a sparse file, so that a large checkpoint takes no space.

    Attributes:
        text: The model.
        memory: The bound of the resident set, in bytes; None if there is none.
        relative: Another case and the bound of this case's CPU time as a multiple of it.
        options: Further arguments of `nacre compile`.
    """

    text: str
    memory: float | None = 2 * GB
    relative: tuple[str, float] | None = None
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU time in seconds and the largest resident set in bytes."""

    case: str
    cpu_seconds: float
    memory_bytes: int


def encoder(layers: int) -> str:
    """A transformer of so many layers: width 64, 4 heads."""
    return f"""language 1
dim B in 1..8
dim T in 1..128

block Linear<inputs, outputs>(x: f32[..., inputs]) -> f32[..., outputs] {{
  param weight: f32[outputs, inputs]
  param bias: f32[outputs]
  return x @ weight.T + bias
}}

block Normalize<width>(x: f32[..., width]) -> f32[..., width] {{
  param weight: f32[width]
  param bias: f32[width]
  return layer_norm(x, weight, bias)
}}

block Layer<width, heads>(x: f32[B, T, width]) -> f32[B, T, width] {{
  use query, key, value, dense = Linear<width, width>
  use before, after = Normalize<width>
  use inner = Linear<width, 4*width>
  use outer = Linear<4*width, width>
  q = query(x) |> rearrange("b t (h d) -> b h t d", h=heads)
  k = key(x) |> rearrange("b t (h d) -> b h t d", h=heads)
  v = value(x) |> rearrange("b t (h d) -> b h t d", h=heads)
  y = softmax(q @ k.mT / sqrt(width / heads)) @ v |> rearrange("b h t d -> b t (h d)")
  x = before(x + dense(y))
  return after(x + outer(gelu(inner(x))))
}}

model encode(x: f32[B, T, 64]) -> f32[B, T, 64] {{
  use layer[{layers}] = Layer<64, 4>
  repeat i in 0..{layers} {{ x = layer[i](x) }}
  return x
}}
"""


_WIDTHS = 47
"""A prime: steps of any size through so many widths visit all of them before one comes again."""


def distinct_kernels(count: int) -> str:
    """Matrix products of so many different shapes, so that no two share a kernel.

    Their operands are small, so that the cost is that of the kernels and not of their weights. A round of steps by 1
    through the widths has products of neighbours, the next round, by 2, those of widths with one between them:

        0 1 2 ... 46 0 2 4 ... 45 0 3 6 ...
    """
    assert count <= _WIDTHS * (_WIDTHS - 1), count
    steps = [1 + number // _WIDTHS for number in range(count)]
    widths = [4 + total % _WIDTHS for total in accumulate(steps, initial=0)]
    uses = [f"  use linear{i} = Linear<{widths[i]}, {widths[i + 1]}>" for i in range(count)]
    calls = [f"  x = linear{i}(x)" for i in range(count)]
    head = f"""language 1
dim B in 1..64

block Linear<inputs, outputs>(x: f32[B, inputs]) -> f32[B, outputs] {{
  param weight: f32[outputs, inputs]
  return relu(x @ weight.T)
}}

model shapes(x: f32[B, 4]) -> f32[B, {widths[-1]}] {{"""
    return "\n".join([head, *uses, *calls, "  return x", "}", ""])


def many_nodes(nodes: int) -> str:
    """A graph of so many nodes: 21 in each turn of a loop, constants and broadcasts among them."""
    return f"""language 1
dim B in 1..64

model turns(x: f32[B, 64]) -> f32[B, 64] {{
  y = x
  repeat i in 0..{nodes // 21} {{
    y = relu(y * (i + 1) + x) - abs(x) * y
    y = y / (sum(abs(y), axis=1, keepdims=true) + 1)
  }}
  return y
}}
"""


def large_table(parameter_bytes: int) -> str:
    """Tables of 1 GB each that together have so many bytes."""
    tables = parameter_bytes // 10**9
    return f"""language 1
dim B in 1..64

block Table<rows, width>(ids: i64[B]) -> f32[B, width] {{
  param weight: f32[rows, width]
  return embedding(weight, ids)
}}

model lookup(ids: i64[B]) -> f32[B, 250] {{
  use table[{tables}] = Table<1000000, 250>
  y = table[0](ids)
  repeat i in 1..{tables} {{ y = y + table[i](ids) }}
  return y
}}
"""


CASES: dict[str, Callable[[], Case]] = {
    "layers-96": lambda: Case(encoder(96)),
    "layers-384": lambda: Case(encoder(384), relative=("layers-96", 4.5)),
    "kernels-2000": lambda: Case(distinct_kernels(2000)),
    "nodes-20000": lambda: Case(many_nodes(20_000)),
    "weights-10g": lambda: Case(large_table(10 * 10**9), options=("--weights", "external")),
}


def write_zeros(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Writes f32 zeros as safetensors. The file is sparse: its data occupies no blocks."""
    header: dict[str, Any] = {}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + 4 * prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": (start, end)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


def compile_case(name: str) -> Cost:
    """Compiles a case in a process of its own.

    Raises:
        subprocess.CalledProcessError: The compilation failed.
    """
    case = CASES[name]()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.nacre"
        model.write_text(case.text)
        command = [sys.executable, "-m", "nacre.compiler.cli.main", "compile", str(model), *COMMON, *case.options]
        parameters = [part for p in read_model(model).module.parameters for part in elements(p)]
        if parameters:
            checkpoint = Path(folder) / "weights.safetensors"
            write_zeros(checkpoint, {p.key: stored_shape(p) for p in parameters})
            command += ["--checkpoint", str(checkpoint)]
        said = Path(folder) / "stderr.txt"
        with said.open("wb") as errors:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        # The usage that wait4 returns covers the processes that the compiler waited for.
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.stderr.write(said.read_text())
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Cost(name, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def exceeded(costs: Sequence[Cost]) -> list[str]:
    """Returns a sentence for each bound that a case exceeds."""
    by_name = {cost.case: cost for cost in costs}
    problems = []
    for cost in costs:
        case = CASES[cost.case]()
        if case.memory is not None and cost.memory_bytes > case.memory:
            problems.append(f"{cost.case}: {cost.memory_bytes / GB:.2f} GB exceed {case.memory / GB:.2f} GB")
        if case.relative and (other := by_name.get(case.relative[0])):
            ratio = cost.cpu_seconds / other.cpu_seconds
            if ratio > case.relative[1]:
                problems.append(f"{cost.case}: {ratio:.2f} times the CPU time of {other.case}, not {case.relative[1]}")
    return problems


def to_markdown(costs: Sequence[Cost]) -> str:
    lines = ["| case | CPU time | memory |", "|---|---:|---:|"]
    lines += [f"| {c.case} | {c.cpu_seconds:.1f} s | {c.memory_bytes / GB:.2f} GB |" for c in costs]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--json", type=Path, help="write the figures as JSON")
    parser.add_argument("--markdown", type=Path, help="write the table to a file")
    options = parser.parse_args(arguments)
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"unknown case: {', '.join(sorted(unknown))}")
    costs = []
    for name in options.cases:
        costs.append(compile_case(name))
        print(to_markdown(costs[-1:]).splitlines()[-1], flush=True)
    if options.json:
        machine = {"processor": platform.machine(), "python": platform.python_version()}
        options.json.write_text(json.dumps({"machine": machine, "costs": [asdict(c) for c in costs]}, indent=1) + "\n")
    if options.markdown:
        options.markdown.write_text(to_markdown(costs))
    for problem in (problems := exceeded(costs)):
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
