"""What graphs cost, against counts by hand and against the report of a build."""

import json
from pathlib import Path

import nacre
import pytest
from click.testing import CliRunner
from example_graphs import LOOP, branch, loop
from nacre.compiler.cli.main import cli
from nacre.compiler.pipeline import Build
from nacre.compiler.readers.language import load_module
from nacre.dialect.dims import DimError
from nacre.graph import Graph, Machine

DIGITS = Path(__file__).parents[3] / "samples" / "digits" / "digits.nacre"
SLOW = Machine(flops_per_second=1e3, bytes_per_second=1e3)


def test_counts_by_hand() -> None:
    graph = loop()
    costs = graph.costs(B=2)
    first, inner = graph.find("matmul")
    assert costs[first.name].flops == 2 * 2 * 16 * 16
    assert costs[first.name].bytes == 4 * (2 * 16 + 16 * 16 + 2 * 16)
    # What stands in a loop counts for all its rounds.
    assert (costs[inner.name].calls, costs[inner.name].flops) == (3, 3 * costs[first.name].flops)
    assert costs.flops == sum(c.flops for c in costs.nodes) > 0
    assert "repeat" not in {c.node.op for c in costs.nodes}
    # A matrix and a vector of the first layer, and three of each of the loop's.
    assert costs.parameter_bytes == 4 * 4 * (16 * 16 + 16)


def test_views_and_weights_move_nothing() -> None:
    text = "language 1\nmodel f(x: f32[4, 6]) -> f32[24] { return reshape(exp(x), (24,)) }"
    costs = nacre.graph.read(text).costs()
    assert {c.node.op: c.bytes for c in costs.nodes} == {"exp": 2 * 96, "reshape": 0}
    assert costs.peak_memory == 96


def test_costs_of_the_optimized_graph_are_those_of_the_report() -> None:
    build = Build(load_module(LOOP, text=True))
    build.optimize()
    (report,) = build.report({"B": 5})
    costs = nacre.graph.read(LOOP, level=2).costs(B=5)
    assert costs.flops == sum(k.calls * report.value(k.flops) for k in report.kernels)
    assert costs.bytes == sum(k.calls * report.value(k.bytes) for k in report.kernels)


def test_memory_is_that_of_living_tensors() -> None:
    costs = branch().costs(B=1)
    # a; a and b; these and c; d in the place of b and c, which is a result; e, a and c
    assert [c.memory for c in costs.nodes] == [16, 32, 48, 64, 64]
    assert costs.peak_memory == 64


def test_memory_around_a_loop_is_there_in_it() -> None:
    text = """
        language 1
        model f(x: f32[8]) -> f32[8] {
          kept = exp(x)
          h = tanh(x)
          repeat i in 0..4 { h = relu(h) }
          return h + kept
        }
    """
    costs = nacre.graph.read(text).costs()
    (relu,) = (c for c in costs.nodes if c.node.op == "relu")
    # `kept`, the loop's first value and its last, and what the round makes.
    assert relu.memory == 4 * 32


def test_roofline() -> None:
    graph = loop()
    costs = graph.costs(Machine(1e9, 1e6), B=1)
    assert {c.bound for c in costs.nodes} <= {"memory", "nothing"}
    assert all(c.seconds == c.bytes / 1e6 for c in costs.nodes)
    costs = graph.costs(Machine(1e6, 1e12), B=1)
    (matmul, _) = graph.find("matmul")
    assert (costs[matmul.name].bound, costs[matmul.name].seconds) == ("compute", 512 / 1e6)
    assert [c.seconds for c in costs.bottlenecks(4)] == sorted((c.seconds for c in costs.nodes), reverse=True)[:4]


def test_critical_path() -> None:
    costs = branch().costs(SLOW, B=1)
    assert [c.name for c in costs.critical_path()] == ["a", "b", "d", "e"]
    slow_right = costs.measured({"a": 1.0, "b": 1.0, "c": 3.0, "d": 1.0, "e": 1.0})
    assert [c.name for c in slow_right.critical_path()] == ["c", "d", "e"]
    assert slow_right.seconds == 7.0 and slow_right["c"].bound == "measured"


def test_critical_path_leads_through_loops() -> None:
    path = [c.node.op for c in loop().costs(SLOW, B=1).critical_path()]
    assert path.count("matmul") == 2 and path[-1] == "softmax" and "gelu" in path


def profile(graph: Graph, **changed: object) -> dict[str, object]:
    """As `nacre profile --json` writes it: the first value of each kernel with its time, as far as that is read."""
    costs = [c for c in graph.costs(B=2).nodes if c.flops]
    calls = [{"values": [c.name], "seconds": 1e-6 * (n + 1), "flops": c.flops} for n, c in enumerate(costs)]
    peak = {"flops_per_second": 1e11, "bytes_per_second": 1e10}
    message = {"entry": "f", "dims": {"B": 2}, "calls": calls, "peak": peak}
    return message | {"threads": 1, "processor": "?", "runs": 3, "seconds": 1.0} | changed


def test_measured(tmp_path: Path) -> None:
    graph = nacre.graph.read(LOOP, level=2)
    (tmp_path / "profile.json").write_text(json.dumps(profile(graph)))
    costs = graph.measured(tmp_path / "profile.json")
    assert costs.dims == {"B": 2} and costs.machine == Machine(1e11, 1e10)
    last = [c.name for c in graph.costs(B=2).nodes if c.flops][-1]
    assert costs.bottlenecks(1) == (costs[last],) and costs[last].bound == "measured"
    assert graph.measured(profile(graph)).nodes == costs.nodes


def test_profiles_of_the_command_are_read() -> None:
    command = ["profile", str(DIGITS), "--at", "B=4", "--seconds", "0", "--peak", "100,20", "--json"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    message = json.loads(done.stdout)
    costs = nacre.graph.read(DIGITS, level=2).measured(message)
    assert costs.dims == {"B": 4} and costs.machine == Machine(100e9, 20e9)
    assert costs.seconds == pytest.approx(sum(call["seconds"] for call in message["calls"]))


@pytest.mark.parametrize(
    "changed",
    [
        {"entry": "g"},
        {"calls": []},
        {"calls": [{"values": ["nothing"], "seconds": 1.0, "flops": 1}]},
        {"peak": 3},
        {"dims": None},
    ],
)
def test_profile_of_something_else_is_refused(changed: dict[str, object]) -> None:
    graph = nacre.graph.read(LOOP, level=2)
    with pytest.raises(nacre.DiagnosticError, match=r"error\[bad-profile\]: `profile` cannot be used"):
        graph.measured(profile(graph, **changed))


def test_missing_profile_is_a_fault() -> None:
    with pytest.raises(nacre.DiagnosticError, match="no such file"):
        branch().measured("nowhere.json")


def test_dims() -> None:
    assert loop().costs().dims == {"B": 8}
    with pytest.raises(TypeError, match="no dim 'T'"):
        loop().costs(T=1)
    with pytest.raises(DimError, match="multiple of 4"):
        nacre.graph.read("language 1\ndim M in 4..8 multiple 4\nmodel f(x: f32[M]) -> f32[M] { return x + 1 }").costs(
            M=6
        )
