"""`nacre test`: tests that hold and fail, budgets of every metric, and compilation that a missed budget ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli_harness import Cli
from safetensors.numpy import save_file

MODEL = """dim N in 1..64

block Linear<n, m>(x: f32[N, n]) -> f32[N, m] {
  param weight: f32[m, n]
  return x @ weight.T
}

model net(x: f32[N, 4]) -> f32[N, 4] {
  weights "w.safetensors"
  use first, second = Linear<4, 4>
  return second(relu(first(x)))
}

model same(x: i64[N]) -> i64[N] {
  return x + 0
}
"""

PASSING = """
test net "the identity of what is positive" {
  given x = [[1, -2, 3, 4]]
  expect [[1, 0, 3, 4]]
}
test net "close" {
  given x = [[1, 1, 1, 1]]
  expect [[1, 1, 1, 1.5]] within 0.6
}
"""
FAILING = """
test net "wrong by one" {
  given x = [[1, 2, 3, 4]]
  expect [[1, 2, 3, 5]] within 0.5
}
test same "wrong by one in 2**60" {
  given x = [1152921504606846977]
  expect [1152921504606846976]
}
test same "another shape" {
  given x = file "two.npy"
  expect [1]
}
test net "a file of the wrong dtype" {
  given x = file "x.npy"
  expect [[1, 2, 3, 4]]
}
test net "a size out of range" {
  given x = file "long.npy"
  expect [[1, 2, 3, 4]]
}
"""
HOLDING = """
budget net {
  memory(N=1) <= 1 KiB
  memory(N=64) <= 8 KiB
  weights <= 128 B
  parameters == 32
  operations(N=2) <= 140 FLOP
  size <= 1 MB
  time(N=64) <= 1 s
}
""".replace("  parameters == 32\n", "  parameters <= 32\n  parameters >= 32\n")
# Two products of N * 4 * 4 multiplications and additions, and N * 4 times relu.
MISSED = {
    "memory(N=64) <= 1 B": "B, the budget is <= 1 B",
    "weights < 128 B": "is 128 B, the budget is < 128 B",
    "parameters <= 20": "is 32, the budget is <= 20",
    "operations(N=3) <= 100 FLOP": "is 204 FLOP, the budget is <= 100 FLOP",
    "operations(N=3) >= 1 MFLOP": "is 0.000204 MFLOP, the budget is >= 1 MFLOP",
}


@pytest.fixture
def net(tmp_path: Path) -> Path:
    identity = np.eye(4, dtype=np.float32)
    save_file({"first.weight": identity, "second.weight": identity}, tmp_path / "w.safetensors")
    np.save(tmp_path / "x.npy", np.zeros((1, 4)))
    np.save(tmp_path / "long.npy", np.zeros((65, 4), np.float32))
    np.save(tmp_path / "two.npy", np.array([1, 2]))
    return tmp_path / "net.nacre"


def test_everything_holds(cli: Cli, net: Path) -> None:
    net.write_text(MODEL + PASSING + HOLDING)
    done = cli("test", net)
    assert done.code == 0, done
    lines = done.sentences.splitlines()
    assert lines[0] == (
        "passed  net: the identity of what is positive (interpreter): `result` differs by 0, 0 is allowed"
    )
    assert lines[1].startswith("passed  net: the identity of what is positive (artifact)")
    assert "passed  net: budget weights: 128 B, the budget is <= 128 B" in lines
    assert sum("budget" in line for line in lines) == 8 + 0
    assert lines[-1] == "12 passed, 0 failed"


def test_all_failures_are_reported(cli: Cli, net: Path) -> None:
    budgets = (
        "".join(f"budget net {{ {budget} }}\n" for budget in MISSED) + "budget net { size <= 1 B\n time(N=1) <= 0 s }\n"
    )
    net.write_text(MODEL + PASSING + FAILING + budgets)
    done = cli("test", net, "--json")
    assert done.code == 1, done.err
    failed = [o for o in done.json if not o["passed"]]
    assert sum(o["passed"] for o in done.json) == 4
    for title, message in {
        "wrong by one": "`result` differs by 1, 0.5 is allowed",
        "wrong by one in 2**60": "`result` differs by 1, 0 is allowed",
        "another shape": "`result` has the shape [2], expected [1]",
        "a file of the wrong dtype": "`x` is f32[N, 4], and",
        "a size out of range": "`N` is 65, outside 1..64",
    }.items():
        means = {o["means"]: o["detail"] for o in failed if o["title"] == title}
        assert set(means) == {"interpreter", "artifact"}, title
        assert all(message in detail for detail in means.values()), means
    wrong = {o["title"]: (o["at"], o["wrong"]) for o in failed if o["wrong"]}
    assert wrong["wrong by one"] == (
        f"{net}:29:10",
        {"index": [0, 3], "expected": 5.0, "got": 4.0, "elements": 1},
    )
    assert wrong["wrong by one in 2**60"][1]["expected"] == 2**60
    assert all(o["at"].startswith(f"{net}:") for o in done.json)
    for_people = " ".join(cli("test", net).out.split())
    assert f"allowed {net}:29:10 at [0, 3]: expected 5.0, got 4.0 " in for_people
    budgets_missed = [o["detail"] for o in failed if o["means"] == "budget"]
    assert len(budgets_missed) == len(MISSED) + 2
    assert all("missed by" in detail for detail in budgets_missed)


@pytest.mark.parametrize("budget", MISSED)
def test_a_missed_budget_ends_the_compilation(cli: Cli, net: Path, budget: str) -> None:
    output = net.with_suffix(".so")
    output.write_text("the one before")
    net.write_text(f"{MODEL}\nbudget net {{ {budget} }}\n")
    done = cli("compile", net)
    assert done.code == 1
    assert "error[budget]" in done.err and MISSED[budget] in done.err
    assert "missed by" in done.err and f"| budget net {{ {budget} }}" in done.err
    assert output.read_text() == "the one before"


def test_by_how_much(cli: Cli, net: Path) -> None:
    net.write_text(MODEL + "\nbudget net {\n  weights <= 96 B\n  parameters <= 20\n}\n")
    err = cli("compile", net).err
    assert "missed by 32 B (33.3%)" in err
    assert "missed by 12 (60.0%)" in err
    assert "2 errors" in err


def test_weights_of_a_loop_are_all_counted(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "loop.nacre"
    path.write_text(
        "block Scale<n>(x: f32[n]) -> f32[n] {\n  param w: f32[n]\n  return x * w\n}\n"
        'model m(x: f32[5]) -> f32[5] {\n  weights "w.npz"\n  use layer[3] = Scale<5>\n'
        "  repeat i in 0..3 { x = layer[i](x) }\n  return x\n}\n"
        "budget m {\n  parameters <= 14\n  weights <= 59 B\n  operations <= 14 FLOP\n}\n"
    )
    np.savez(tmp_path / "w.npz", **{f"layer.{i}.w": np.ones(5, np.float32) for i in range(3)})
    err = cli("compile", path).err
    assert "`parameters` of `m` is 15, the budget is <= 14" in err
    assert "`weights` of `m` is 60 B, the budget is <= 59 B" in err
    assert "`operations` of `m` is 15 FLOP, the budget is <= 14 FLOP" in err


def test_a_file_without_tests(cli: Cli, double: Path) -> None:
    done = cli("test", double, "-O0")
    assert (done.code, done.out.splitlines()[1:]) == (0, ["0 passed, 0 failed"])
    assert "no test and no budget" in done.out


def test_errors_of_the_source_are_reported(cli: Cli, net: Path) -> None:
    net.write_text(MODEL + 'test nett "t" { expect [1] }\n')
    done = cli("test", net)
    assert done.code == 1 and "did you mean `net`?" in done.err
