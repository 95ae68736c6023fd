"""A C program that calls two artifacts through their headers: results, every error, no allocation in a call."""

import shutil
import subprocess
from pathlib import Path

import pytest
from c_models import CC, STRICT, argument, build, entry, zoo
from nacre.compiler.artifact.header import emit_header
from nacre.compiler.artifact.spec import ArtifactSpec
from nacre.dialect.dims import Symbol
from nacre.dialect.types import F32, I64

HERE = Path(__file__).parent


def test_the_program(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    assert CC
    for name, first in (("zoo", 7), ("second", 8)):
        spec = zoo(name, first=first)
        build(spec, tmp_path / f"{name}.so")
        (tmp_path / f"{name}.h").write_text(emit_header(spec))
    command = [CC, *STRICT, "-pthread", "-I.", str(HERE / "program.c"), "./zoo.so", "./second.so", "-o", "program"]
    subprocess.run(command, cwd=tmp_path, check=True)
    shown = subprocess.run(["./program"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    expectation = HERE / "program.expect"
    if request.config.getoption("--update"):
        expectation.write_text(shown)
    assert shown == expectation.read_text()


def test_headers_are_cplusplus_too(tmp_path: Path) -> None:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    (tmp_path / "zoo.h").write_text(emit_header(zoo()))
    (tmp_path / "x.cpp").write_text('#include "zoo.h"\nint main() { return 0; }\n')
    subprocess.run([compiler, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "x.cpp"], cwd=tmp_path, check=True)


def test_the_header_names_no_page_that_it_comes_without() -> None:
    assert "ABI.md" not in emit_header(zoo())


def test_names_that_c_does_not_allow(tmp_path: Path) -> None:
    assert CC
    size = Symbol("int", 1)
    arguments = [argument("for", F32, size.size), argument("session", I64), argument("a.b", I64), argument("a_b", I64)]
    awkward = (
        entry("add", arguments, [argument("é*/", F32)], (size,), doc="*/ #error"),
        entry("add_workspace", arguments, [], (size,)),
    )
    (tmp_path / "x.h").write_text(emit_header(ArtifactSpec("a model-1", awkward)), encoding="utf-8")
    (tmp_path / "x.c").write_text('#include "x.h"\nint main(void) { return a_model_1_add_workspace_(1) != 0; }\n')
    subprocess.run([CC, *STRICT, "-fsyntax-only", "x.c"], cwd=tmp_path, check=True)
