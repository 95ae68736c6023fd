"""`--check-passes` and `nacre bisect` run the kernels of a GPU target where a driver is, here the fake one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_driver import Machine
from nacre.compiler.cli.main import run

MODEL = """language 1
dim B in 1..8

model m(x: f32[B, 8]) -> y: f32[B, 8] {
  return relu(x) + 1.0
}
"""
LINE = 5


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "m.nacre"
    path.write_text(MODEL)
    return path


def plant(machine: Machine) -> None:
    """Adds 2 instead of 1 in every kernel."""
    machine.edit = lambda text: text.replace("0f3F800000", "0f40000000")


@pytest.mark.parametrize("target", ["cuda", "native,cuda"])
def test_checks_run_the_kernels_of_a_device(
    machine: Machine, model: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["compile", str(model), "--target", target, "--check-passes", "--no-cache", "-o", "m.so"]
    assert run(command) == 0
    assert "unchecked-kernels" not in capsys.readouterr().err
    plant(machine)
    Path("m.so").unlink()
    assert run(command) == 70
    said = " ".join(capsys.readouterr().err.split())
    assert "error[wrong-numbers]" in said and f"m.nacre:{LINE}:" in said and "wrong for cuda:sm_80" in said, said
    assert not Path("m.so").exists()


def test_bisect_names_the_kernel(machine: Machine, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bisect", str(model), "--target", "cuda", "--at", "B=2", "--json", "-o", "small.nacre"]
    assert run(command) == 0
    assert json.loads(capsys.readouterr().out)["culprit"] is None
    plant(machine)
    assert run(command) == 1
    culprit = json.loads(capsys.readouterr().out)["culprit"]
    assert culprit["kernel"] and culprit["at"][0].endswith(f"m.nacre:{LINE}")


def test_bisect_without_a_device(machine: Machine, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine.reset(devices=0)
    assert run(["bisect", str(model), "--target", "cuda"]) != 0
    assert "the CUDA driver has no device" in " ".join(capsys.readouterr().err.split())
