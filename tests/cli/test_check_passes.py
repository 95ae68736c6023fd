"""`--check-passes`: what the command line says of a compiler that computes something else."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cli_harness import Cli, leftovers, rerun_arguments
from nacre.compiler.base.compiler_errors import WrongNumbersError
from nacre.compiler.base.environment import CHECK_PASSES
from nacre.compiler.checking import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets
from nacre.compiler.validate.checker import choose_observer
from planted.faults import FAULTS
from planted.planting import plant, write_model


@pytest.mark.parametrize("command", [("compile",), ("run", "--input", "x=[[1,2,3,4,5,6]]"), ("test",)])
def test_a_wrong_pass_ends_the_command(command: tuple[str, ...], cli: Cli, tmp_path: Path) -> None:
    fault = FAULTS["wrong-fold"]
    model = write_model(fault, tmp_path)
    with plant(fault, tmp_path / "cache"):
        done = cli(command[0], model, "--check-passes", *command[1:])
    assert done.code == 70 and done.out == ""
    head, place, *rest = done.err.splitlines()
    assert head == "error[wrong-numbers]: pass `fold-constants` changes the result of `f`"
    assert place.strip() == f"--> {model}:{fault.line}:11"
    assert any(re.search(r"rewrite \d+ of it, `fold`", line) for line in rest)
    folder = Path(rest[-1].split()[-1])
    files = {"inputs.npz", "stage.graph", "after.graph", "error.txt", "versions.txt", "rerun.sh", "model"}
    assert {p.name for p in folder.iterdir()} >= files
    assert not model.with_suffix(".so").exists() and leftovers(tmp_path) == []


@pytest.mark.parametrize("name", ["wrong-layer", "wrong-packing", "stale-memory"])
def test_it_is_seen_again_as_long_as_it_is_there(
    name: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass, a kernel and the plan of memory: each is built again from the graph that it was given."""
    fault = FAULTS[name]
    with plant(fault, tmp_path / "cache"):
        folder = Path(cli("compile", write_model(fault, tmp_path), "--check-passes").err.split()[-1])
        monkeypatch.chdir(folder)
        again = cli(*rerun_arguments(folder))
    assert again.code == 70 and "error[wrong-numbers]" in again.err, again.err
    sound = cli(*rerun_arguments(folder))
    assert sound.code == 0, sound.err
    shutil.rmtree(folder)


def test_the_script_of_a_reproducer_checks(cli: Cli, tmp_path: Path) -> None:
    fault = FAULTS["wrong-layer"]
    with plant(fault, tmp_path / "cache"):
        folder = cli("compile", write_model(fault, tmp_path), "--check-passes").err.split()[-1]
        again = subprocess.run(["sh", f"{folder}/rerun.sh"], capture_output=True, text=True)
    assert again.returncode == 70 and "error[wrong-numbers]" in again.stderr, again.stderr
    shutil.rmtree(folder)


def test_a_right_build_says_nothing_of_it(cli: Cli, scaled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = cli("compile", scaled, "--check-passes", "--emit", "header")
    assert done.code == 0 and done.err.startswith("wrote ")
    monkeypatch.setenv(CHECK_PASSES, "1")
    assert cli("run", scaled, "--input", "x=[[1, 2]]").code == 0


def test_without_weights_they_are_made_up(cli: Cli, scaled: Path, tmp_path: Path) -> None:
    (tmp_path / "scale.safetensors").unlink()
    assert cli("compile", scaled, "--check-passes", "--emit", "mlir").code == 0


def test_targets_whose_kernels_are_not_run_are_named(cli: Cli, scaled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NACRE_CUDA_DRIVER", "no-driver.so")
    command = ("compile", scaled, "--target", "native,cuda:sm_80", "--emit", "mlir")
    done = cli(*command)
    assert done.code == 0 and "unchecked" not in done.err
    done = cli(*command, "--check-passes")
    assert done.code == 0
    assert "warning[unchecked-kernels]: checks of the build run no kernel for `cuda:sm_80`" in done.err
    monkeypatch.setenv(CHECK_PASSES, "1")
    assert "warning[unchecked-kernels]" in cli(*command).err


def test_passes_of_a_second_target_are_checked(cli: Cli, tmp_path: Path) -> None:
    """The passes of a GPU are others than those of the CPU."""
    fault = FAULTS["wrong-fold"]
    model = write_model(fault, tmp_path)
    source, options = read_model(model), Options(targets=parse_targets("native,cuda:sm_80"))
    build = Build(source, options, observer=choose_observer(source, options, check=True))
    (further,) = build.further
    with plant(fault, tmp_path / "cache"), pytest.raises(WrongNumbersError, match="fold-constants"):
        further.make("optimized")
