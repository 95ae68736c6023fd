"""The mutants that are found in Python and in C, and the tests that are near a file."""

from __future__ import annotations

from pathlib import Path

import c_mutants
import pytest
import python_mutants
from nearest import nearest_tests

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("text", "mutated"),
    [
        ("a = b < c", {"a = (b <= c)"}),
        ("a = b - c", {"a = ((c) - (b))", "a = ((b) + (c))"}),
        ("f(x)", {"pass"}),
        ("if a:\n    f(3)", {"if (not (a)):\n    f(3)", "if a:\n    pass", "if a:\n    f(4)"}),
        ("a = b and c", {"a = ((b) or (c))"}),
        ("s = f(x, axis=1)", {"s = f(x, axis=0)", "s = f(x, axis=2)"}),
        ("def f(a: int = 3) -> list[int]:\n    '''4'''\n    assert a < 3, a\n    raise ValueError(a + 1)", set()),
        ("Sizes = Mapping[str, int]", set()),
        ("s = 'é' * n", set()),
        ("t = f('é', n * 2)", {"t = f('é', ((n) + (2)))", "t = f('é', n * 3)"}),
    ],
)
def test_mutants_of_python(text: str, mutated: set[str]) -> None:
    assert {mutant.apply(text) for mutant in python_mutants.find_mutants(text)} == mutated


@pytest.mark.parametrize(
    ("text", "mutated"),
    [
        ("if (a < b) return 0;", {"if (a <= b) return 0;", "if (!(a < b)) return 0;", "if (a < b) return 1;"}),
        ("{ f(x); }", {"{ ; }"}),
        ("/* a < b */ #include <x>", set()),
        ('s = "a < 1";', set()),
        ("x = a && b;", {"x = a || b;"}),
    ],
)
def test_mutants_of_c(text: str, mutated: set[str]) -> None:
    found = {" ".join(mutant.apply(text).split()) for mutant in c_mutants.find_mutants(text)}
    assert found == mutated


@pytest.mark.parametrize("area", ["passes", "compiler/codegen/tiler", "runtime"])
def test_files_of_the_product_have_mutants_that_differ(area: str) -> None:
    path = max((ROOT / area).rglob("*.py"), key=lambda file: file.stat().st_size)
    text = path.read_text()
    mutants = python_mutants.find_mutants(text)
    assert len(mutants) > 20
    assert all(mutant.apply(text) != text for mutant in mutants)


def test_nearest_tests() -> None:
    found = nearest_tests(Path("compiler/readers/language/format.py"), ROOT)
    assert found and all((ROOT / test).exists() for test in found)
    assert any(test.startswith("tests/readers/language/") for test in found)
    assert "tests/artifact/test_overlaps.py" not in found
    assert nearest_tests(Path("runtime/check.c"), ROOT)
