"""`import nacre` and `nacre.load` cost numpy and ctypes; the compiler is imported when something is compiled."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from nacre.compiler.base.environment import BLAS_THREADS, CHECK_PASSES

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


def test_the_classes_of_a_build_make_their_methods_late() -> None:
    """The standard decorator compiles them at the import, which took a quarter of the time until a build begins."""
    loaded = modules_loaded_by("import nacre.compiler.cli.build, nacre.compiler.codegen.workers.kernel_worker")
    ours = sorted(name for name in loaded if name.startswith(("nacre.compiler.", "nacre.dialect.", "nacre.passes.")))
    assert len(ours) > 300
    standard = [n for n in ours if getattr(importlib.import_module(n), "dataclass", None) is dataclasses.dataclass]
    assert standard == [], "import `dataclass` from nacre.dialect.lazy_dataclass"


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


THREADS = """
import os, sys
from nacre.compiler.cli.main import main
sys.argv = ["nacre", *{arguments!r}]
try:
    main()
except SystemExit as end:
    assert end.code == 0, end.code
import numpy
print(len(os.listdir("/proc/self/task")))"""
CHECK_DIGITS = ["check", str(SAMPLES / "digits" / "digits.nacre")]


def _threads_after(arguments: list[str], **variables: str) -> int:
    """The threads of a process that has run a command and imported NumPy, whose library for matrices starts a thread
    for each CPU, unless the environment says otherwise."""
    removed = (BLAS_THREADS, "OMP_NUM_THREADS", CHECK_PASSES)
    environment = {name: value for name, value in os.environ.items() if name not in removed}
    program = THREADS.format(arguments=arguments)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment | variables)
    return int(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "arguments", [CHECK_DIGITS, ["compile", "--check-passes", "--help"], ["bisect", "--help"], ["reduce", "--help"]]
)
def test_checking_starts_no_threads(arguments: list[str]) -> None:
    assert _threads_after(arguments) == 1


def test_checks_that_a_variable_enables_start_no_threads() -> None:
    assert _threads_after(["compile", "--help"], **{CHECK_PASSES: "1"}) == 1


@pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="on one CPU, NumPy's library starts no further thread")
def test_other_commands_multiply_on_all_threads() -> None:
    assert _threads_after(["compile", "--help"]) > 1
    assert _threads_after(["bisect", "--help"], **{BLAS_THREADS: "2"}) == 2


COUNT = """
import sys
import click, lark, numpy
calls = 0
def count(frame, event, argument):
    global calls
    calls += event == "call"
sys.setprofile(count)
{statement}
sys.setprofile(None)
print(calls)"""
VERSION_CALLS, CHECK_CALLS = 8000, 166_000
"""With Python 3.11 and NumPy 2.4, 5970 and 132 415."""
VERSION = """
import contextlib, io
from nacre.compiler.cli.main import run
with contextlib.redirect_stdout(io.StringIO()):
    assert run(["--version"]) == 0"""


def _run(statement: str, folder: Path, **variables: str) -> str:
    environment = {**os.environ, "NACRE_CACHE": str(folder), **variables}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", statement]
    return subprocess.run(command, check=True, env=environment, capture_output=True, text=True).stdout


def calls_of(statement: str, folder: Path, **variables: str) -> int:
    """Returns the number of calls of Python functions, also those that import modules."""
    return int(_run(COUNT.format(statement=statement), folder, **variables))


def test_a_command_starts_with_few_calls(tmp_path: Path) -> None:
    """Counts do not depend on the machine and its load; `python tests/bench/command_starts.py` prints seconds. The
    limits leave a quarter for other versions of Python and of the packages. The model has 59 lines."""
    check = CHECK.format(model=str(SAMPLES / "digits" / "digits.nacre"))
    for statement in (VERSION, check):
        _run(statement, tmp_path)  # compiles modules to bytecode, as an installation does, and fills the cache
    assert calls_of(VERSION, tmp_path) < VERSION_CALLS
    assert calls_of(check, tmp_path) < CHECK_CALLS
    assert calls_of(check, tmp_path, NACRE_NO_CACHE="1") > 2 * CHECK_CALLS  # derives the parser


def test_the_version_imports_few_modules() -> None:
    packages = {name.split(".")[0] for name in modules_loaded_by(VERSION)}
    assert packages - sys.stdlib_module_names == {"nacre", "click"}
    assert len([name for name in modules_loaded_by(VERSION) if name.startswith("nacre.")]) < 20
