"""The mutants that are found in Python and in C, and the tests that are near a file."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import c_mutants
import forks
import mutate
import probes
import pytest
import python_mutants
import reached
from nearest import nearest_tests
from reach import Reach

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


PROBED = """from __future__ import annotations

def count(values, limit):
    found = 0
    for value in values:
        if value < limit and value != 3:
            found += value // 2
            continue
        found = found - 1
    return found
"""


def test_probes_change_nothing_and_record_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    mutants = list(enumerate(python_mutants.find_mutants(PROBED)))
    text, left = probes.insert_probes(PROBED, mutants)
    assert not left
    plain: dict[str, object] = {}
    exec(compile(PROBED, "plain", "exec", dont_inherit=True), plain)
    for arguments in (([], 5), ([4], 4), ([1, 2, 3], 9)):
        monkeypatch.setattr(reached, "SEEN", seen := bytearray(len(mutants)))
        probed: dict[str, object] = {}
        exec(compile(text, "probed", "exec", dont_inherit=True), probed)
        assert probed["count"](*arguments) == plain["count"](*arguments)  # type: ignore[operator]
        for number, mutant in mutants:
            changed: dict[str, object] = {}
            exec(compile(mutant.apply(PROBED), "mutated", "exec", dont_inherit=True), changed)
            if changed["count"](*arguments) != plain["count"](*arguments):  # type: ignore[operator]
                assert seen[number] == 2, (arguments, mutant)
        compared = next(number for number, mutant in mutants if mutant.replacement == "(value <= limit)")
        assert seen[compared] == {0: 0, 1: 2, 3: 1}[len(arguments[0])]


def test_tests_that_reach_a_mutant_come_by_their_time() -> None:
    seconds = {"far::a": 0.1, "near::b": 3.0, "near::c": 1.0, "far::d": 9.0, "far::e": 0.2}
    reach = Reach(seconds, {7: list(seconds)})
    assert reach.tests_of(7, ["near"], 10) == ["near::c", "near::b", "far::a", "far::e"]
    assert reach.tests_of(8, ["near"], 10) == []
    assert reach.files_within(["near", "far", "unknown"], 5) == ["near"]


@pytest.mark.parametrize(
    ("code", "limit", "idle", "status"),
    [
        ("import time; time.sleep(0.2); raise SystemExit(3)", 60.0, 60.0, 3),
        ("while True: pass", 0.5, 60.0, None),
        ("import time; time.sleep(600)", 60.0, 1.0, None),
        ("import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])", 0.5, 60.0, None),
        ("import subprocess, sys; subprocess.Popen(['sleep', '600'], process_group=0)", 60.0, 5.0, 0),
    ],
    ids=["it ends", "it computes", "it waits", "a child computes", "a child is left"],
)
def test_a_run_ends_by_its_cpu_time(
    code: str, limit: float, idle: float, status: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "IDLE", idle)
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        assert forks.wait(process.pid, limit)[0] == status
    finally:
        forks.end_session(process.pid)
        if status is None:
            process.wait()
        process.returncode = 0
    assert not [pid for pid in forks.times(process.pid) if pid != process.pid]


def test_a_run_that_is_ended_kills_its_mutant() -> None:
    assert forks.Ending(None, "...\n", 1.0).failure == "time"
    assert forks.Ending(0, "...\n", 1.0).failure == forks.Ending(5, "", 1.0).failure == ""
    assert forks.Ending(1, "F\nFAILED tests/test_x.py::test_y - it\n", 1.0).failure.startswith("FAILED tests/test_x.py")


def test_mutants_of_a_line() -> None:
    path = next(path for path in sorted((ROOT / "passes").rglob("*.py")) if mutate.candidates(path))
    line = mutate.candidates(path)[0].line
    found = mutate.mutants_at([f"{path.relative_to(ROOT)}:{line}"])
    assert found and {mutant.line for _, mutant in found} == {line}


def test_a_mutant_without_a_test_has_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = "dialect/dims.py"
    mutant = mutate.candidates(ROOT / file)[0]
    tester = SimpleNamespace(reach=Reach.read(tmp_path / "missing"), tree=SimpleNamespace(root=ROOT))
    log = tmp_path / "log"
    options = argparse.Namespace(log=log, again=False, minutes=1, only=("",), at=None, tests=[], wide=False, budget=20)
    mutate.test_all(tester, [(file, mutant)], options)  # type: ignore[arg-type]  # runs no test
    assert "UNTESTED" in capsys.readouterr().out and not log.read_text()
