"""`import nacre` and `nacre.load` cost numpy and ctypes; the compiler is imported when something is compiled."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parents[2] / "samples"

PROGRAM = """
import json, sys
import ctypes, numpy
before = set(sys.modules)
{statement}
print(json.dumps(sorted(set(sys.modules) - before)))
"""


HELP = """
import contextlib, io
from nacre.compiler.cli.main import run
with contextlib.redirect_stdout(io.StringIO()):
    assert run(["--help"]) == 0"""


def modules_loaded_by(statement: str) -> set[str]:
    program = PROGRAM.format(statement=statement)
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("statement", ["import nacre", "import nacre; nacre.load; nacre.NacreError"])
def test_loading_needs_numpy_alone(statement: str) -> None:
    packages = {name.split(".")[0] for name in modules_loaded_by(statement)}
    assert packages - sys.stdlib_module_names - {"numpy"} == {"nacre"}


def test_root_is_lazy() -> None:
    assert modules_loaded_by("import nacre") & {"nacre.compiler", "nacre.runtime", "nacre.dialect"} == set()


def test_compiling_process_loads_no_mlir(tmp_path: Path) -> None:
    """MLIR and LLVM may abort, so they run in a child; the process of the user never holds them."""
    text = "model same(x: f32[2]) -> f32[2] { return x + x }"
    packages = {
        name.split(".")[0]
        for name in modules_loaded_by(f"import nacre; nacre.compile({text!r}, {str(tmp_path / 'same.so')!r})")
    }
    assert "lark" in packages
    assert packages & {"mlir", "torch_mlir", "llvmlite"} == set()


def test_every_public_name_exists() -> None:
    statement = "import nacre; [getattr(nacre, name) for name in nacre.__all__]"
    assert "nacre.compiler.api" in modules_loaded_by(statement)


def test_the_command_line_imports_the_command_at_hand() -> None:
    """Commands that search, draw or compare bring in half of the compiler."""
    kept = {f"nacre.compiler.cli.{name}" for name in ("main", "reporting")}
    assert {name for name in modules_loaded_by(HELP) if name.startswith("nacre.compiler.cli.")} == kept


CHECK = """
import contextlib, io
from nacre.compiler.cli.main import run
with contextlib.redirect_stderr(io.StringIO()):
    assert run(["check", {model!r}]) == 0"""
BUILDING = (
    "nacre.compiler.pipeline",
    "nacre.compiler.options",
    "nacre.compiler.codegen",
    "nacre.compiler.lower",
    "rich",
)


def test_the_version_needs_no_numpy() -> None:
    program = "import sys, nacre.compiler.cli.main; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_checking_imports_no_part_of_a_build() -> None:
    model = SAMPLES / "digits" / "digits.nacre"
    loaded = modules_loaded_by(CHECK.format(model=str(model)))
    assert not [name for name in loaded if name.startswith(BUILDING)]


MACHINE = 0.15
"""Seconds of processor time in which a machine imports NumPy; a slower one has as much more time for a command."""


@pytest.mark.parametrize(
    ("arguments", "seconds"), [(["--version"], 0.15), (["check", str(SAMPLES / "digits" / "digits.nacre")], 0.4)]
)
def test_a_command_starts_quickly(arguments: list[str], seconds: float, tmp_path: Path) -> None:
    """The model has 59 lines. Modules are compiled to bytecode once, as an installation does."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path), "NACRE_CACHE": str(tmp_path)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "nacre.compiler.cli.main", *arguments]
    cpu_time(command, environment)
    for _ in range(6):
        slower = max(1.0, cpu_time([sys.executable, "-c", "import numpy"], environment) / MACHINE)
        taken = cpu_time(command, environment)
        if taken < seconds * slower:
            return
    pytest.fail(f"{taken:.3f} s of processor time, at most {seconds} on a machine of {slower:.2f} times the time")


def cpu_time(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Returns the processor time of a command, from its start to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
