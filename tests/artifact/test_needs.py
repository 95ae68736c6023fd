"""An artifact needs glibc 2.17 and no newer one, wherever it was linked; `nacre inspect` tells it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import nacre
import pytest
from nacre.compiler.artifact.glibc import BASE_VERSIONS, OLDEST, stub_sources
from nacre.compiler.artifact.link import find_linker
from nacre.compiler.artifact.needs import read_needs

pytestmark = pytest.mark.skipif(not find_linker().stubs, reason="the linker uses no stubs of glibc")

FUNCTIONS = """
cbrt exp exp2 expm1 log log2 log1p log10 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc sqrt floor
ceil round trunc
"""
TERMS = " + ".join(f"{name}(x)" for name in FUNCTIONS.split())
MODEL = f"""language 1
model every(x: f64[3], y: f32[3]) -> a: f64[3], b: f32[3] {{
  a = {TERMS} + power(x, x) + atan2(x, x) + remainder(x, x)
  b = {TERMS.replace("(x)", "(y)")} + power(y, y) + atan2(y, y) + remainder(y, y)
  return a, b
}}
"""


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.removeprefix("GLIBC_").split(".")))


@pytest.fixture(scope="module", params=[("native", 0), ("portable", 2)], ids=str)
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target, level = request.param
    path = tmp_path_factory.mktemp("needs") / f"{target}.so"
    nacre.compile(MODEL, path, target=target, opt_level=level)
    return path


def test_no_newer_glibc_is_needed(artifact: Path) -> None:
    needs = read_needs(artifact)
    assert list(needs) == ["libc.so.6", "libpthread.so.0", "libm.so.6"]
    assert all(version and number(version) <= number(OLDEST) for version in needs.values()), needs


def test_requirements_equal_those_of_readelf(artifact: Path) -> None:
    listing = subprocess.run(["readelf", "-VW", str(artifact)], check=True, capture_output=True, text=True).stdout
    expected: dict[str, str] = {}
    for line in listing.splitlines():
        if found := re.search(r"File: (\S+)", line):
            library = found[1]
        elif found := re.search(r"Name: (GLIBC_\S+)", line):
            expected[library] = max(expected.get(library, found[1]), found[1], key=number)
    assert read_needs(artifact) == expected


@pytest.mark.parametrize("machine", BASE_VERSIONS)
def test_stubs_are_no_newer(machine: str) -> None:
    versions = {v for _, script in stub_sources(machine).values() for v in re.findall(r"GLIBC_[\d.]+", script)}
    # Only CPUs without SSE4.1 call `roundeven`.
    assert max(versions - {"GLIBC_2.25"}, key=number) == f"GLIBC_{OLDEST}"
