"""The pool of threads by itself, in a C program: plain, without futexes, and under the sanitizers that there are."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from c_programs import BUILDS, build_program, run_check

PROGRAM = Path(__file__).with_name("pool_program.c")
STEMS = ("pool", "helpers", "workers", "share", "park", "error")
CHECKS = [
    "every-unit-once",
    "sides-meet",
    "many-sessions",
    "fork",
    "one-cpu",
    "sessions-come-and-go",
    "little-work-stays",
    "workers-are-shared",
    "workers-round-as-the-caller",
    "the-first-call-rings-for-nobody",
    "a-call-starts-the-workers-of-its-kernel",
    "a-caller-that-waits-offers-its-cpu",
    "workers-are-counted",
    "jobs-keep-their-numbers",
]
# It does not support threads in the child of a fork.
EXCEPT = {("thread", "fork")}


@pytest.fixture(scope="module", params=BUILDS)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """How the program was built, and where it is."""
    kind: str = request.param
    return kind, build_program(kind, PROGRAM, STEMS, tmp_path_factory.mktemp("pool"), "one-cpu")


@pytest.mark.parametrize("check", CHECKS)
def test_pool(program: tuple[str, Path], check: str) -> None:
    kind, path = program
    if (kind, check) in EXCEPT:
        pytest.skip("the sanitizer does not support it")
    run_check(path, check)


def test_every_check_is_run(program: tuple[str, Path]) -> None:
    shown = subprocess.run([program[1]], capture_output=True, text=True).stdout
    assert shown.split() == CHECKS
