"""Tools that look inside a build for a GPU: they run its kernels where a driver is, here the fake one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from fake_driver import Machine
from nacre.compiler.base import cuda_tools
from nacre.compiler.base.cuda_tools import find_cuda_tool
from nacre.compiler.cli.figures import headline
from nacre.compiler.cli.main import run
from nacre.runtime.library import NacreError
from nacre.runtime.loader import load
from nacre.runtime.observe import observe, record

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


def test_kernels_that_read_matrices_in_place_are_checked(
    machine: Machine, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model.write_text("language 1\nmodel m(x: f16[9, 8], w: f16[5, 8]) -> f16[9, 5] { return x @ w.T }\n")
    done = run(["compile", str(model), "--target", "cuda", "--check-passes", "--no-cache", "-o", "m.so"])
    assert done == 0, capsys.readouterr().err


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


@pytest.fixture
def artifact(machine: Machine, model: Path) -> Path:
    assert run(["compile", str(model), "--target", "cuda", "-o", "m.so"]) == 0
    return Path("m.so")


def test_inspect_counts_operations_and_bytes(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "m.so", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["device_calls"]
    (call,) = entry.pop("calls")
    assert entry == {"entry": "m", "dims": {"B": 8}}
    assert (call["kind"], call["flops"], call["bytes"]) == ("elements", 2 * 64, 2 * 4 * 64)
    assert run(["inspect", "m.so"]) == 0
    assert f"128  512 B  {call['kernel']}" in capsys.readouterr().out


def test_machine_code(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["dump", str(model), "--target", "cuda:sm_90a", "--stage", "sass"]
    assert run(command) == 0
    shown = capsys.readouterr().out
    assert "sm_90a" in shown and "FADD" in shown
    assert run([*command, "--filter", "other*"]) == 0
    said = capsys.readouterr()
    assert said.out == "" and "matches `other*`" in said.err
    # Neither program is found in an empty folder, and packages are hidden.
    monkeypatch.setenv("NACRE_PTXAS", str(find_cuda_tool("ptxas")))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(cuda_tools, "find_spec", lambda name: None)
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert run(command) == 1
    assert "`nvdisasm` or `cuobjdump`, which is not installed" in " ".join(capsys.readouterr().err.split())


def test_diff_says_that_it_compares_results(
    machine: Machine, artifact: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["diff", "m.so", str(model), "-O0", "--at", "B=2"]
    capsys.readouterr()
    assert run(command) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "m.so computes on cuda:0, whose kernels cannot be observed: only results are compared" in said, said
    plant(machine)
    assert run([*command, "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["first_divergence"] == "result y" and "only results" in data["note"]


def test_measurements_name_the_device(artifact: Path) -> None:
    loaded = load(artifact)
    x = np.zeros((2, 8), np.float32)
    assert headline(loaded.entries["m"], [x], 1, loaded.device) == "m at B=2, on cuda:0"


def test_observing_a_device_is_an_error(artifact: Path) -> None:
    loaded = load(artifact)
    with pytest.raises(NacreError, match="a session on a device cannot be observed"), observe(loaded, print):
        pass
    with pytest.raises(NacreError, match="a session on a device cannot be observed"), record(loaded):
        pass
