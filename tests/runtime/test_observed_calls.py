"""Observed calls by themselves, in a C program around the whole runtime, also under sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from c_programs import build_program, run_check
from nacre.compiler.targets.system import LINUX

PROGRAM = Path(__file__).with_name("observe_program.c")
STEMS = [stem for stem in LINUX.runtime if stem != "affinity"]
CHECKS = ["alone", "shared", "off", "recorded"]


@pytest.fixture(scope="module", params=["plain", "address", "thread"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_program(request.param, PROGRAM, STEMS, tmp_path_factory.mktemp("observe"), "alone")


@pytest.mark.parametrize("check", CHECKS)
def test_observed_calls(program: Path, check: str) -> None:
    run_check(program, check)


def test_every_check_is_run(program: Path) -> None:
    assert subprocess.run([program], capture_output=True, text=True).stdout.split() == CHECKS
