"""`nacre opt`: passes over the text of a graph."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_harness import Cli
from nacre.compiler.graph_passes import GRAPH_PASSES

GRAPH = """module m

func main(%x: f32[4]) -> (result: f32[4]) {
  %0 = add(%x, %x) : f32[4]
  %1 = add(%x, %x) : f32[4]
  %2 = add(%0, %1) : f32[4]
  %3 = repeat(%2) {count = 2} : f32[4] do (%i: i64, %h: f32[4]) {
    %4 = relu(%h) : f32[4]
    yield %4
  }
  %5 = exp(%x) : f32[4]
  return %3
}
"""


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "m.graph"
    path.write_text(GRAPH)
    return path


def test_without_passes_the_text_stays(cli: Cli, graph: Path) -> None:
    done = cli("opt", graph)
    assert (done.code, done.out, done.err) == (0, GRAPH, "")


def test_passes_in_order_with_options(cli: Cli, graph: Path) -> None:
    merged = cli("opt", graph, "--pass", "cse")
    assert merged.code == 0
    assert merged.out.count("add(") == 2 and "exp(" in merged.out
    assert "exp(" not in cli("opt", graph, "--pass", "cse,dce").out
    assert cli("opt", graph, "--pass", "cse", "--pass", "dce").out == cli("opt", graph, "--pass", "cse,dce").out
    assert "repeat(" in cli("opt", graph, "--pass", "unroll-repeat{limit=1}").out
    assert cli("opt", graph, "--pass", "unroll-repeat{limit=2}").out.count("relu(") == 2


@pytest.mark.parametrize("level", range(4))
def test_levels(cli: Cli, graph: Path, level: int) -> None:
    done = cli("opt", graph, f"-O{level}")
    assert done.code == 0
    assert done.out == cli("opt", graph, "--pass", GRAPH_PASSES[level]).out
    assert "repeat(" not in done.out
    assert ("fusion(" in done.out) == (level >= 2)


def test_rewrite_limit(cli: Cli, graph: Path) -> None:
    texts = [cli("opt", graph, "-O2", "--rewrite-limit", str(n)).out for n in range(4)]
    assert texts[0] == GRAPH
    assert len(set(texts)) == 4


def test_standard_input_and_output_file(cli: Cli, graph: Path) -> None:
    done = cli("opt", "-", "--pass", "dce", "-o", graph.with_name("out.graph"), stdin=GRAPH.encode())
    assert (done.code, done.out) == (0, "")
    assert "exp(" not in graph.with_name("out.graph").read_text()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"module m\n\nfunc f(", "m.graph:3:"),
        (GRAPH.replace("%0, %1", "%0, %9").encode(), "m.graph:6:"),
        (b"\xff", "not UTF-8"),
        (b"", "error["),
    ],
)
def test_faults_of_the_text(cli: Cli, graph: Path, content: bytes, message: str) -> None:
    output = graph.with_name("out.graph")
    output.write_text("the one before")
    graph.write_bytes(content)
    done = cli("opt", graph, "-O2", "-o", output)
    assert done.code == 1
    assert message in done.err
    assert output.read_text() == "the one before"


def test_missing_file_and_folder(cli: Cli, tmp_path: Path) -> None:
    assert cli("opt", tmp_path / "none.graph").code == 1
    assert cli("opt", tmp_path).code == 1
    done = cli("opt", "-", "-o", tmp_path / "none" / "out.graph", stdin=GRAPH.encode())
    assert done.code == 1 and "there is no folder" in done.err


def test_elided_constants_go_through_every_pass(cli: Cli, graph: Path) -> None:
    text = GRAPH.replace(
        "%5 = exp(%x)",
        "%6 = constant() {value = constant<f32[4, 100], #0123456789abcdef>} : f32[4, 100]\n  %5 = exp(%x)",
    )
    text = text.replace("return %3", "%7 = sum(%6) {axis = 1} : f32[4]\n  %8 = add(%3, %7) : f32[4]\n  return %8")
    done = cli("opt", "-", "-O2", stdin=text.encode())
    assert done.code == 0, done.err
    assert "#0123456789abcdef" in done.out
