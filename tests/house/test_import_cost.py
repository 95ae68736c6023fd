"""`import nacre` and `nacre.load` cost numpy and ctypes; the compiler is imported when something is compiled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
    model = Path(__file__).parents[2] / "samples" / "digits" / "digits.nacre"
    loaded = modules_loaded_by(CHECK.format(model=str(model)))
    assert not [name for name in loaded if name.startswith(BUILDING)]


def test_the_version_takes_little_time() -> None:
    """Of processor time, relative to the start of Python with click, which any command needs."""
    ratio = min(cpu_time("nacre.compiler.cli.main") / cpu_time("click, importlib.metadata") for _ in range(5))
    assert ratio < 2.5


def cpu_time(module: str) -> float:
    program = f"import {module}, time; print(time.process_time())"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return float(done.stdout)
