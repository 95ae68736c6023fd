"""The report of kernels: `nacre compile -v` and `--json`, what it counts, and what it says of neighbours."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_harness import Cli
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.readers.language import load_module
from nacre.compiler.report import FunctionReport, format_report, usual_size
from nacre.dialect.dims import INFINITY, Symbol, format_size

TEXT = """dim T in 1..512

block Layer(x: f32[T, 8]) -> f32[T, 8] {
  param weight: f32[8, 8]
  return layer_norm(tanh(x @ weight) + x)
}

model m(ids: i64[T]) -> f32[T, 8] {
  use layer[3] = Layer
  param table: f32[100, 8]
  x = embedding(table, ids)
  repeat i in 0..3 { x = layer[i](x) }
  return x
}
"""
PASSES = "check-indices,canonicalize,unroll-repeat,fold-constants,cse,dce,fuse"


def report(text: str, passes: str = PASSES, **dims: int) -> FunctionReport:
    build = Build(load_module(text, text=True), Options(passes=passes))
    build.optimize()
    (only,) = build.report(dims)
    return only


def test_kernels_with_their_costs_and_calls() -> None:
    found = report(TEXT, T=10)
    assert found.dims == {"T": 10} and found.calls == 8
    message = [(k.kind, [o.op for o in k.operations], k.calls) for k in found.kernels]
    assert message == [
        ("check", ["check_indices"], 1),
        ("movement", ["embedding"], 1),
        ("contraction", ["matmul", "tanh", "add"], 3),
        ("rows", ["layer_norm"], 3),
    ]
    _, gather, product, _ = found.kernels
    # Of the table only the rows that are asked for, their numbers, and the result.
    assert (format_size(gather.bytes), gather.flops) == ("72*T", 0)
    # x and the result, 8 floats a row, and the weight; 8 products and sums for each of 8 elements, tanh and sum.
    assert (format_size(product.bytes), format_size(product.flops)) == ("64*T + 256", "144*T")
    assert found.value(product.flops) == 1440
    assert {(o.scope, o.span.line) for o in product.operations if o.span} == {("layer.0", 5)}


def test_neighbours_are_listed_once_with_their_kernel() -> None:
    _, gather, product, norm = report(TEXT).kernels
    assert [(n.kernel, n.source, n.reader, n.reason) for n in norm.neighbours] == [
        (product.name, "add", "layer_norm", "would place a reduction after a contraction")
    ]
    assert [(n.kernel, n.source, n.reader) for n in product.neighbours] == [
        (gather.name, "embedding", "matmul"),
        (gather.name, "embedding", "add"),
        (norm.name, "layer_norm", "matmul"),
        (norm.name, "layer_norm", "add"),
    ]
    assert gather.neighbours == ()


def test_without_fusion_there_are_kernels_and_no_reasons() -> None:
    found = report(TEXT, "check-indices,unroll-repeat,fold-constants")
    names = [k.operations[0].op for k in found.kernels]
    assert names == ["check_indices", "embedding", "matmul", "tanh", "add", "layer_norm"]
    assert not any(k.neighbours for k in found.kernels)


def test_results_that_are_arguments_are_copies() -> None:
    (only,) = report("model m(x: f32[3]) -> f32[3] { return x }\n").kernels
    assert (only.kind, only.operations, only.bytes, only.calls) == ("copy", (), 24, 1)


@pytest.mark.parametrize(
    ("low", "high", "multiple", "size"),
    [(1, 512, 1, 128), (1, 64, 1, 64), (0, INFINITY, 1, 128), (8, 500, 24, 120), (200, 500, 1, 200), (0, 0, 1, 0)],
)
def test_usual_sizes_are_admitted(low: int, high: int, multiple: int, size: int) -> None:
    assert usual_size(Symbol("T", low, high, multiple)) == size


def test_text_of_a_report() -> None:
    lines = format_report([report(TEXT, T=1000)]).splitlines()
    assert lines[0] == "m at T=1000: 4 kernels in 8 calls, 564 kflop, 465 kB"
    assert lines[1].split() == ["calls", "flop", "bytes", "kind", "kernel"]
    product = next(i for i, line in enumerate(lines) if "contraction" in line)
    assert lines[product].split()[:6] == ["3", "144", "k", "64.3", "k", "contraction"]
    assert lines[product + 1].split() == ["matmul", "model.nacre:5,", "tanh", ":5,", "add", ":5"]
    assert lines[product + 2].strip() == "flop = 144*T; bytes = 64*T + 256"
    assert lines[product + 3].strip().startswith("matmul reads embedding from embedding_")


def test_workspace_beside_its_lower_bound() -> None:
    build = Build(load_module(TEXT, text=True), Options(passes=PASSES))
    build.generate(build.lower(build.optimize()))
    (found,) = build.report({"T": 10})
    # The norm lies where the product lay, whose operand is read as long as it is written.
    assert found.workspace is not None and format_size(found.workspace.formula) == "128*((32*T + 63)//64)"
    assert (found.workspace.value, found.workspace.lower_bound, found.workspace.ratio) == (640, 640, 1.0)
    assert format_report([found]).splitlines()[1] == (
        "workspace: 128*((32*T + 63)//64) = 640 B, 1.000 times the lower bound of 640 B"
    )


def test_command_shows_and_writes_it(cli: Cli, double: Path) -> None:
    done = cli("compile", double, "--emit", "graph", "-v", "--json", "--at", "N=3")
    assert done.code == 0
    (function,) = done.json["functions"]
    (kernel,) = function["kernels"]
    assert (function["function"], function["dims"], kernel["kind"], kernel["calls"]) == (
        "double",
        {"N": 3},
        "elements",
        1,
    )
    assert kernel["flops"] == {"formula": "2*N", "value": 6}
    assert kernel["bytes"] == {"formula": "16*N", "value": 48}
    assert [(o["op"], o["at"].rpartition("/")[2]) for o in kernel["operations"]] == [("add", "double.nacre:4:10")]
    assert kernel["not_fused"] == [] and function["workspace"] is None
    assert f"1         6        48  elements     {kernel['name']}" in done.err


def test_command_tells_the_workspace(cli: Cli, double: Path) -> None:
    done = cli("compile", double, "-v", "--json")
    (function,) = done.json["functions"]
    assert function["workspace"] == {"formula": "0", "value": 0, "lower_bound": 0, "ratio": 1.0}
    assert "workspace: 0 B" in done.err


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("N", "`N` is not a dim and its size"),
        ("N=x", "`N=x` is not a dim and its size"),
        ("M=3", "there is no dim `M`; there are N"),
        ("N=65", "`N` cannot be 65"),
    ],
)
def test_sizes_that_cannot_be(cli: Cli, double: Path, at: str, words: str) -> None:
    done = cli("compile", double, "-v", "--at", at)
    assert done.code == 2 and words in " ".join(done.err.split())
    assert not double.with_suffix(".so").exists()
