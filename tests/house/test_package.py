"""The package: what `pyproject.toml` lists, what the wheel holds, and that a wheel works without the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from nacre.compiler.version import __version__

ROOT = Path(__file__).parents[2]
ROOMS = ("compiler", "dialect", "passes", "runtime")
DATA_SUFFIXES = {".nacre", ".lark", ".c", ".h", ".md", ".txt", ".typed", ".html", ".css", ".js"}


def read_project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def package_of(folder: Path) -> str:
    """The dotted name under which a folder of the checkout is installed."""
    parts = folder.relative_to(ROOT).parts
    return ".".join(("nacre", *(parts[2:] if parts[:2] == ("compiler", "nacre") else parts)))


def package_folders() -> list[Path]:
    return sorted(path.parent for room in ROOMS for path in (ROOT / room).rglob("__init__.py"))


def test_package_list_equals_folders() -> None:
    assert sorted(read_project()["tool"]["setuptools"]["packages"]) == sorted(map(package_of, package_folders()))


def test_every_module_is_in_a_package() -> None:
    packages = set(package_folders())
    stray = [path for room in ROOMS for path in (ROOT / room).rglob("*.py") if path.parent not in packages]
    assert not stray


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, since a build leaves folders behind."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "copy"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, copy)
    for room in ROOMS:
        shutil.copytree(ROOT / room, copy / room, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    done = subprocess.run([*command, str(folder), str(copy)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_wheel_has_one_top_level_name(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"nacre", f"nacre-{__version__}.dist-info"}


def test_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    expected = {
        f"{package_of(folder).replace('.', '/')}/{path.name}"
        for folder in package_folders()
        for path in folder.iterdir()
        if path.suffix in DATA_SUFFIXES | {".py"}
    }
    assert {name for name in expected if not name.endswith(".py")}, "no data files found in the checkout"
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("nacre/")}
    # `nacre help` reads the pages.
    pages = {f"nacre/compiler/docs/{path.name}" for path in (ROOT / "compiler" / "docs").glob("*.md")}
    assert held - {"nacre/compiler/LICENSE"} == expected | pages


def test_wheel_carries_the_license(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.endswith("LICENSE") for name in names)


def test_installed_wheel_compiles_a_model(wheel: Path, tmp_path: Path) -> None:
    """From another folder, with the wheel's files in front of everything: the grammar and the C sources are in it."""
    target, elsewhere = tmp_path / "target", tmp_path / "elsewhere"
    elsewhere.mkdir()
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run([*command, str(wheel)], check=True, capture_output=True)
    program = """
import sys
import nacre, numpy
source = "dim N in 1..8\\nmodel double(x: f32[N]) -> f32[N] { return x + x }"
compiled = nacre.compile(source, "double.so")
print(nacre.load("double.so")(numpy.arange(3, dtype=numpy.float32)).tolist())
ours = [m.__file__ for name, m in sys.modules.items() if name.split(".")[0] == "nacre" and m.__file__]
print(all(path.startswith(sys.argv[1]) for path in ours), len(ours) > 10)
"""
    environment = {**os.environ, "PYTHONPATH": str(target), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program, str(target)], cwd=elsewhere, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[0.0, 2.0, 4.0]", "True True"]
