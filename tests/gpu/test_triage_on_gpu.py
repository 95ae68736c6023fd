"""Planted faults of code for GPUs: `nacre diff` names the first wrong value, and `nacre bisect` the cause.

Each call of `diff` has inputs that show the fault; a fault that lets a kernel read or write elsewhere ends the call.
"""

from __future__ import annotations

import json
from pathlib import Path

import nacre
import numpy as np
import pytest
from fake_driver import Machine
from nacre.compiler.base.environment import CHECK_PASSES
from nacre.compiler.cli.main import run
from planted.in_gpu import FAULTS
from planted.planted import Planted
from planted.planting import plant, write_model

SHOWING = {
    "finite-maximum": ("--input", "x=x.npy"),
    "early-end": ("--at", "T=65"),
    "lost-copy": ("--input", "x=x.npy", "--states", "states"),
}
"""The arguments of `diff`, if random inputs of usual sizes do not show the fault."""
FIRST_WRONG = {"stale-memory": 9, "lost-copy": None}
"""The line of the first value that is wrong, if it is not that of the cause: a state that is not copied has none."""
RUN = {"lost-elements", "finite-maximum", "lost-copy", "next-iteration"}
"""The faults that `diff` compares by default; --variants compares all."""
FOUND = {"lost-choice", "lost-copy", "lost-power"}
"""The faults whose cause `bisect` finds by default; --variants has all of them."""


def chosen(fault: Planted, names: set[str], request: pytest.FixtureRequest) -> None:
    if fault.name not in names and not request.config.getoption("--variants"):
        pytest.skip("a further fault; --variants runs all of them")


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_diff_names_the_first_wrong_value(
    machine: Machine,
    fault: Planted,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    chosen(fault, RUN, request)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(CHECK_PASSES, raising=False)  # which would not compile what a wrong pass has changed
    model = write_model(fault, tmp_path)
    if fault.name == "finite-maximum":
        np.save("x.npy", np.full((2, 40), -np.inf, np.float32))
    with plant(fault, tmp_path / "cache"):
        assert run(["compile", str(model), "--target", str(fault.target), "--no-cache", "-o", "m.so"]) == 0
    if fault.name == "lost-copy":
        np.save("x.npy", np.ones(8, np.float32))
        session = nacre.load("m.so").session()
        session.states.update({"a": np.arange(8, dtype=np.float32), "b": np.full(8, 2, np.float32)})
        session.save("states")
    capsys.readouterr()
    assert run(["diff", "m.so", str(model), "-O0", "--json", *SHOWING.get(fault.name, ())]) == 1
    compared = json.loads(capsys.readouterr().out)
    assert compared["diverges"]
    first = next(point for point in compared["points"] if point["diverges"])
    line = FIRST_WRONG.get(fault.name, fault.line)
    if first["at"] is None:
        assert first["point"].startswith("result " if line is not None else "state "), first
    else:
        assert first["at"].split(":")[1] == str(line), first


def test_diff_of_a_call_that_the_device_ends(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Values before the kernel are compared, and the kernel is named with the message of the driver."""
    monkeypatch.chdir(tmp_path)
    text = """language 1
model m(x: f32[4, 8]) -> y: f32[4, 8] {
  first = cumsum(x, axis=1)
  second = cumsum(first, axis=0)
  return cumsum(second, axis=1)
}
"""
    Path("m.nacre").write_text(text)
    assert run(["compile", "m.nacre", "--target", "cuda", "-o", "m.so"]) == 0
    capsys.readouterr()
    machine.fail("cuLaunchKernel", 2)
    assert run(["diff", "m.so", "m.nacre", "-O0", "--json"]) == 1
    compared = json.loads(capsys.readouterr().out)
    points = {point["point"]: point for point in compared["points"]}
    assert not points["first"]["diverges"] and compared["first_divergence"] == "second"
    assert "the call of A fails" in points["second"]["mismatch"] and "injected failure" in points["second"]["mismatch"]
    machine.fail("cuLaunchKernel", 2)
    assert run(["diff", "m.so", "m.nacre", "-O0"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "first divergence: second at" in said and "the call of A fails: the device could not launch" in said


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_bisect_names_the_cause(
    machine: Machine,
    fault: Planted,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    chosen(fault, FOUND, request)
    model, small = write_model(fault, tmp_path), tmp_path / "small.nacre"
    # A device gives wrong numbers where two tensors overlap, and reports no race.
    machine.find_races(False)
    with plant(fault, tmp_path / "cache"):
        given = ("--target", str(fault.target), "--effort", "0", "--json", "-o", str(small))
        assert run(["bisect", str(model), *given]) == 1
    report = json.loads(capsys.readouterr().out)
    culprit = report["culprit"]
    assert (culprit["stage"], culprit["at"]) == (fault.stage, [f"{model}:{fault.line}"]), culprit
    assert small.exists() == (fault.name != "lost-copy") == bool(report["written"])


def test_bisect_names_the_kernel_at_which_a_call_ends(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A race of two overlapping tensors ends the call here, before a wrong value is seen."""
    fault = next(each for each in FAULTS if each.name == "lost-power")
    model = write_model(fault, tmp_path)
    with plant(fault, tmp_path / "cache"):
        given = ("--target", str(fault.target), "--effort", "0", "--json", "-o", str(tmp_path / "small.nacre"))
        assert run(["bisect", str(model), *given]) == 1
    culprit = json.loads(capsys.readouterr().out)["culprit"]
    assert (culprit["stage"], culprit["at"]) == ("entry", [f"{model}:{fault.line}"])
    assert "the call ends at the kernel of `%y`: the device could not complete a kernel" in culprit["message"]
