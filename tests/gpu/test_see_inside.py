"""Tools that look inside a build for a GPU: they run its kernels where a driver is, here the fake one."""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from fake_driver import Machine, environment_of
from nacre.compiler.base import cuda_tools
from nacre.compiler.base.cuda_tools import find_cuda_tool
from nacre.compiler.cli.figures import headline
from nacre.compiler.cli.main import run
from nacre.compiler.tools.explorer.measured_times import read_profile
from nacre.dialect.diagnostics import DiagnosticError
from nacre.runtime.loader import load

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


def test_kernel_whose_argument_determines_no_dim_is_checked(
    machine: Machine, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last kernel reads `f32[B*T, 4]` alone, and has a result of both dims."""
    model.write_text("""language 1
dim B in 1..3
dim T in 1..5
model m(x: f32[B, T, 4]) -> f32[B, T, 4] {
  flat = cumsum(reshape(x, (B*T, 4)), axis=0)
  return cumsum(reshape(flat, (B, T, 4)), axis=1)
}
""")
    done = run(["compile", str(model), "--target", "cuda", "--check-passes", "--no-cache", "-o", "m.so"])
    assert done == 0, capsys.readouterr().err


def test_kernels_of_a_single_thread_are_named(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model.write_text("language 1\nmodel m(x: f32[1, 1]) -> f32[1] { u, s, vh = svd(x)\n return s + u[0] * vh[0] }\n")
    command = ["compile", str(model), "--target", "native,cuda", "-o", "m.so"]
    assert run(command) == 0
    said = " ".join(capsys.readouterr().err.split())
    expected = "warning[untiled-kernels]: 1 kernel is computed by one thread of cuda:sm_80"
    assert expected in said and "its loops run step by step" in said, said
    assert run([*command, "-v"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "one thread of cuda:sm_80: its loops" in said and "launches for cuda:sm_80: sequence of 1 threads" in said
    assert run(["inspect", "m.so"]) == 0
    assert "one thread of cuda:sm_80: " in capsys.readouterr().out
    with pytest.warns(nacre.NacreWarning, match="computed by one thread of cuda:sm_80"):
        nacre.compile(model, Path("n.so"), target="native,cuda")
    model.write_text(MODEL)
    assert run([*command, "-v"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "untiled" not in said and "launches for cuda:sm_80: vectors of 256 threads" in said, said


def test_plain_kernels_are_reported_with_reasons(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compile", str(model), "--target", "cuda", "-o", "m.so"]
    model.write_text(
        "language 1\nmodel m(x: bool[8183, 1021], y: bool[1021]) -> bool[1021] { return any(x, axis=0) and y }\n"
    )
    assert run([*command, "-O0"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "note: 2 plain kernels for cuda:sm_80 have 100% of the bytes that `m` reads and writes" in said, said
    assert run([*command, "-O0", "-v"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "plain of 256 threads: elements of one reduction are not neighbours in memory" in said, said
    assert "plain of 256 threads: elements of i1 are not read several at once" in said, said
    model.write_text(MODEL)
    assert run(command) == 0
    assert "plain" not in capsys.readouterr().err


def test_bisect_names_the_kernel(machine: Machine, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bisect", str(model), "--target", "cuda", "--at", "B=2", "--json", "-o", "small.nacre"]
    assert run(command) == 0
    assert json.loads(capsys.readouterr().out)["culprit"] is None
    plant(machine)
    assert run(command) == 1
    culprit = json.loads(capsys.readouterr().out)["culprit"]
    assert culprit["kernel"] and culprit["at"][0].endswith(f"m.nacre:{LINE}")


def test_bisect_where_the_device_meets_an_illegal_address(
    machine: Machine, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the sizes at boundaries, some fail the call; that is the failure, and not one of the tool."""
    machine.edit = lambda text: text.replace("setp.ge.u64", "setp.gt.u64").replace("setp.gt.u64", "setp.lt.u64")
    command = ["bisect", str(model), "--target", "cuda", "--json", "-o", "small.nacre"]
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


def profile_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["profile", "m.so", "--at", "B=8", "--seconds", "0.01", "--json", *arguments]) == 0
    profile: dict[str, Any] = json.loads(capsys.readouterr().out)
    return profile


def test_profile_of_a_known_chip(machine: Machine, artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The shares of the peak are those of the chip's data sheet."""
    machine.library.fake_name(b"NVIDIA H100 80GB HBM3")
    profile = profile_of(capsys, "--trace", "trace.json")
    (kernel,), peak = profile["kernels"], profile["peak"]
    assert profile["processor"] == "NVIDIA H100 80GB HBM3" and profile["threads"] == 0
    assert (peak["flops_per_second"], peak["bytes_per_second"]) == (66.9e12, 3.35e12)
    assert 0 < kernel["seconds"] <= profile["seconds"] and profile["outside_kernels"] >= 0
    assert kernel["bandwidth_share"] == pytest.approx(2 * 4 * 64 / kernel["seconds"] / 3.35e12)
    assert kernel["compute_share"] == pytest.approx(2 * 64 / kernel["seconds"] / 66.9e12)
    (line,) = profile["lines"]
    assert line["at"].endswith(f"m.nacre:{LINE}") and line["seconds"] == kernel["seconds"]
    rows = {event["tid"] for event in json.loads(Path("trace.json").read_text())["traceEvents"]}
    assert rows == {0}
    assert run(["profile", "m.so", "--seconds", "0.01"]) == 0
    said = capsys.readouterr().out
    assert "on cuda:0" in said and "of 6.69e+04" in said and "neither" in said and "balance" not in said


def test_rate_of_products_on_a_chip_is_that_of_the_instructions(
    machine: Machine, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model.write_text("language 1\nmodel m(x: f16[64, 64], w: f16[64, 64]) -> f16[64, 64] { return x @ w }\n")
    assert run(["compile", str(model), "--target", "cuda", "-o", "m.so"]) == 0
    machine.library.fake_name(b"NVIDIA H200")
    assert run(["profile", "m.so", "--seconds", "0.01", "--json"]) == 0
    (call,) = json.loads(capsys.readouterr().out)["calls"]
    assert call["ideal_seconds"] == pytest.approx(2 * 64**3 / 989e12)


def test_profile_of_an_unknown_chip(machine: Machine, artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = profile_of(capsys)
    (kernel,) = profile["kernels"]
    assert profile["peak"] is None and kernel["bound"] is None and kernel["compute_share"] is None
    assert profile["calls"][0]["ideal_seconds"] is None and kernel["seconds"] > 0
    assert profile_of(capsys, "--peak", "1,1")["kernels"][0]["bound"] in ("compute", "memory", "caches", "neither")
    assert run(["profile", "m.so", "--seconds", "0.01"]) == 0
    assert "the peak of `a device in C` is not known, --peak gives it" in capsys.readouterr().out
    assert run(["profile", "m.so", "--peak", "measure"]) == 2
    assert "the peak of a GPU is not measured" in " ".join(capsys.readouterr().err.split())
    Path("p.json").write_text(json.dumps(profile))
    with pytest.raises(DiagnosticError, match="lacks the peak of `a device in C`"):
        read_profile(Path("p.json"))


def test_bench_names_the_chip(
    machine: Machine, artifact: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment_of(machine.folder).items():
        monkeypatch.setenv(name, value)
    assert run(["bench", "m.so", "--seconds", "0.01", "--warm-up", "0", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["device"], figures["processor"]) == ("cuda:0", "a device in C") and figures["calls"] > 0


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


def test_checks_run_where_a_driver_reserves_more_than_the_memory_of_the_machine(
    machine: Machine, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    all_memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    machine.library.fake_reserve(ctypes.c_uint64(2 * all_memory))
    plant(machine)
    assert run(["compile", str(model), "--target", "cuda", "--check-passes", "--no-cache", "-o", "m.so"]) == 70
    assert "wrong for cuda:sm_80" in " ".join(capsys.readouterr().err.split())


def test_measurements_name_the_device(artifact: Path) -> None:
    loaded = load(artifact)
    x = np.zeros((2, 8), np.float32)
    assert headline(loaded.entries["m"], [x], 1, loaded.device) == "m at B=2, on cuda:0"
