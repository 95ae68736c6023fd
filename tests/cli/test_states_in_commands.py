"""Every command with a model that has states: what it computes, or the error by which it refuses them."""

from __future__ import annotations

import re
from pathlib import Path

import nacre
import numpy as np
import pytest
from cli_harness import Cli

TEXT = """language 1

dim T in 1..8
dim S in 1..32

block Cache(k: f32[T, 4], at: i64) -> f32[S, 4] {
  state rows: f32[S, 4]
  rows[at:at+T] = k
  return rows
}

model step(x: f32[T, 4]) -> total: f32[4] {
  state n: i64
  state a: f32 = 1.0
  state b: f32 = 2.0
  use cache = Cache
  total = sum(cache(x, n), axis=0) + a
  n = n + T
  a, b = b, a
  return total
}

test step "from given states" {
  given x = [[1, 2, 3, 4]], n = 0
  expect total = [2, 3, 4, 5]
  expect n = 1
  expect a = 2.0
}
"""


PEAK = ("--peak", "1000,100")
"""The peak rates of the machine. `nacre profile` would measure them for a second."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("states") / "step.nacre"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def artifact(file: Path) -> Path:
    nacre.compile(file, file.with_suffix(".so"))
    return file.with_suffix(".so")


def test_run_prints_results_and_states(cli: Cli, artifact: Path) -> None:
    done = cli("run", "--json", artifact, "--at", "S=3", "--input", "x=[[1, 2, 3, 4], [1, 1, 1, 1]]")
    assert done.code == 0, done.err
    assert done.json["total"]["first"] == [3, 4, 5, 6]
    assert done.json["state.n"]["first"] == [2] and done.json["state.cache.rows"]["shape"] == [3, 4]
    assert (done.json["state.a"]["first"], done.json["state.b"]["first"]) == ([2.0], [1.0])


def test_run_wants_the_dims_of_the_session(cli: Cli, artifact: Path) -> None:
    done = cli("run", "--json", artifact, "--input", "x=[[1, 2, 3, 4]]")
    assert done.code == 2 and "give the dims of its session that no input has, --at S=..." in done.err


@pytest.mark.parametrize("level", ["0", "2"])
def test_test_compile_and_bisect(cli: Cli, file: Path, level: str) -> None:
    done = cli("test", file, "-O", level)
    assert done.code == 0 and "6 passed, 0 failed" in done.out + done.err, done.out + done.err
    done = cli("compile", file, "-O", level, "--check-passes", "-o", file.with_name("checked.so"))
    assert done.code == 0, done.err
    done = cli("bisect", file, "-O", level)
    assert done.code == 0 and "no error found" in done.out + done.err, done.out + done.err


def test_a_failed_expectation_of_a_state(cli: Cli, file: Path) -> None:
    wrong = file.with_name("wrong.nacre")
    wrong.write_text(TEXT.replace("expect n = 1", "expect n = 3"))
    done = cli("test", wrong)
    assert done.code == 1 and "`state.n` differs by 2" in done.out + done.err


def test_diff_compares_states(cli: Cli, file: Path, artifact: Path) -> None:
    changed = file.with_name("changed.nacre")
    changed.write_text(TEXT.replace("n = n + T", "n = n + 2*T"))
    done = cli("diff", file, "--at", "T=2,S=5")
    assert done.code == 0 and "state cache.rows" not in done.err, done.out + done.err
    done = cli("diff", artifact, changed, "--at", "T=2,S=5")
    assert done.code == 1 and "state n" in done.out, done.out + done.err


def test_inspect_and_the_report(cli: Cli, artifact: Path, file: Path) -> None:
    described = cli("inspect", artifact, "--json").json
    assert described["session"]["bytes"] == "64*((16*S + 63)//64) + 192"
    assert [s["name"] for s in described["session"]["states"]] == ["n", "a", "b", "cache.rows"]
    done = cli("compile", file, "-v", "-o", file.with_name("told.so"))
    assert "states: 2 of 4 are written in place, 0 bytes copied" in done.out + done.err
    assert re.search(r"state `a`: 4 B copied, since its new value is .* the old value of a state", done.out + done.err)
    done = cli("compile", file, "--json", "-o", file.with_name("told.so"))
    (function,) = done.json["functions"]
    assert {s["name"]: s["copied"] for s in function["states"]} == {"n": "0", "a": "4", "b": "4", "cache.rows": "0"}


def test_measured_calls_begin_with_the_initial_states(cli: Cli, artifact: Path) -> None:
    """A second call without a restart would write rows 5 to 9 of 8, and fail."""
    done = cli("bench", "--json", artifact, "--at", "T=5,S=8", "--seconds", "0.05", "--warm-up", "0.01")
    assert done.code == 0 and done.json["calls"] > 1 and done.json["dims"] == {"S": 8, "T": 5}, done.err
    assert done.json["bytes"]["states"] == 3 * 64 + 128
    done = cli("profile", "--json", artifact, "--at", "T=5,S=8", "--seconds", "0.05", *PEAK)
    assert done.code == 0 and done.json["runs"] > 1 and done.json["kernels"], done.err


def test_measured_calls_begin_with_the_states_of_a_file(cli: Cli, artifact: Path, tmp_path: Path) -> None:
    session = nacre.load(artifact).session(S=8)
    for name, n in (("fits", 3), ("full", 4)):
        session.states["n"] = n
        session.save(tmp_path / name)
    for command, peak in (("bench", ()), ("profile", PEAK)):
        measured = (command, artifact, "--at", "T=5,S=8", "--seconds", "0.02", *peak)
        assert cli(*measured, "--states", tmp_path / "fits").code == 0
        done = cli(*measured, "--states", tmp_path / "full")
        assert done.code == 1 and "a window of 5 that starts at 4 is out of range" in done.err, done.err
        done = cli(command, artifact, "--at", "T=5,S=9", "--states", tmp_path / "fits", *peak)
        assert done.code == 1 and "holds F32[8, 4] for the state `cache.rows`, expected F32[9, 4]" in done.err, done.err


def test_random_inputs_determine_no_dim_of_a_session(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "free.nacre"
    file.write_text("dim S in 1..9\nmodel f(x: f32) -> f32[S] {\n  state a: f32[S]\n  a = a + x\n  return a\n}\n")
    done = cli("profile", "--json", file, "--seconds", "0.01", *PEAK)
    assert done.code == 0 and done.json["dims"] == {"S": 9}, done.err
    done = cli("bench", "--json", file, "--input", "x=1", "--seconds", "0.01")
    assert done.code == 2 and "--at S=..." in done.err
    stateless = tmp_path / "plain.nacre"
    stateless.write_text("model f(x: f32) -> f32 { return x }\n")
    done = cli("bench", "--json", stateless, "--states", tmp_path / "fits")
    assert done.code == 2 and "--states is for entries with states" in done.err


def test_budgets_of_states(cli: Cli, file: Path) -> None:
    def with_budget(text: str) -> Path:
        path = file.with_name("limited.nacre")
        path.write_text(TEXT + f"\nbudget step {{ {text} }}\n")
        return path

    done = cli("test", with_budget("states(S=8) <= 320 B\n  time(S=8, T=5) <= 10 s"))
    assert done.code == 0 and "8 passed, 0 failed" in done.out + done.err, done.out + done.err
    done = cli("compile", with_budget("states(S=8) <= 319 B"), "-o", file.with_name("limited.so"))
    assert done.code == 1 and "`states(S=8)` of `step` is 320 B, the budget is <= 319 B" in done.err, done.err
    done = cli("check", with_budget("states <= 1 KiB"))
    assert done.code == 1 and "`states` depends on `S`" in done.err
    done = cli("check", with_budget("states(S=8, T=5) <= 1 KiB"))
    assert done.code == 1 and "a session has no dim `T`" in done.err, done.err


def test_accuracy_compares_states(cli: Cli, file: Path, tmp_path: Path) -> None:
    """Every call begins with the initial states: the second one would find a full cache."""
    np.savez(tmp_path / "x.npz", x=np.ones((3, 2, 4), np.float32))
    changed = tmp_path / "changed.nacre"
    changed.write_text(TEXT.replace("rows[at:at+T] = k", "rows[at:at+T] = k * 2"))
    measured = ("accuracy", file, "--data", tmp_path / "x.npz", "--at", "S=3", "--json")
    done = cli(*measured, "--reference", changed)
    assert done.code == 0 and done.json["calls"] == 3, done.err
    errors = {point["point"]: point["error"] for point in done.json["points"]}
    assert errors["state n"] == 0 and errors["state cache.rows"] == 0.5, done.out
    done = cli("accuracy", file, "--reference", file, "--data", tmp_path / "x.npz")
    assert done.code == 2 and "give the dims of its session that no input has, --at S=..." in done.err, done.err


def test_calibration_and_quantize_call_models_with_states(cli: Cli, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "x.npz", x=rng.standard_normal((8, 64)).astype(np.float32))
    np.savez(tmp_path / "w.npz", w=rng.standard_normal((64, 64)).astype(np.float32))
    file = tmp_path / "model.nacre"
    file.write_text(
        """dim B in 1..8
model f(x: f32[B, 64]) -> f32[B, 64] {
  weights "w.npz"
  param w: f32[64, 64]
  state last: f32[B, 64]
  state calls: i64
  last = tanh((x + last) @ w)
  calls = calls + 1
  return last
}
"""
    )
    done = cli("accuracy", file, "--precision", "int8", "--data", tmp_path / "x.npz", "--json")
    assert done.code == 0 and 0 < done.json["error"] < 0.2, done.out + done.err
    done = cli("quantize", file, "--data", tmp_path / "x.npz", "--budget", "error <= 0.2", "--threads", "1")
    assert done.code == 0, done.out + done.err


def test_the_text_of_the_graph_is_compiled(cli: Cli, file: Path) -> None:
    done = cli("compile", file, "--emit", "graph", "-o", file.with_suffix(".graph"))
    assert done.code == 0 and 'state "cache.rows" : f32[S, 4]' in file.with_suffix(".graph").read_text()
    done = cli("compile", file.with_suffix(".graph"), "-o", file.with_name("again.so"))
    assert done.code == 0, done.err
