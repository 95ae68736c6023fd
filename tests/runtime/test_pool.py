"""The pool of threads by itself, in a C program: plain, without futexes, and under the sanitizers that there are."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from nacre.compiler.artifact.link import RUNTIME_FOLDER

PROGRAM = Path(__file__).with_name("pool_program.c")
SOURCES = [str(RUNTIME_FOLDER / f"{stem}.c") for stem in ("pool", "helpers", "workers", "share", "park", "error")]
CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
BUILDS = {
    "plain": ["-O2"],
    "without-futexes": ["-O2", "-DNACRE_NO_FUTEX"],
    "address": ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-O1", "-g", "-fsanitize=thread"],
}
CHECKS = [
    "every-unit-once",
    "many-sessions",
    "fork",
    "one-cpu",
    "sessions-come-and-go",
    "little-work-stays",
    "workers-are-shared",
    "workers-round-as-the-caller",
]
# It does not support threads in the child of a fork.
EXCEPT = {("thread", "fork")}


@pytest.fixture(scope="module", params=BUILDS)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """How the program was built, and where it is."""
    assert CC
    kind: str = request.param
    path = tmp_path_factory.mktemp("pool") / kind
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-Wpedantic", "-pthread", f"-I{RUNTIME_FOLDER}"]
    command = [CC, *flags, *BUILDS[kind], str(PROGRAM), *SOURCES, "-o", str(path), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode and kind in ("address", "thread") and "cannot find" in done.stderr:
        pytest.skip(f"the C compiler has no sanitizer of kind {kind}")
    assert done.returncode == 0, done.stderr
    if kind == "thread" and subprocess.run([path, "one-cpu"], capture_output=True).returncode == 66:
        pytest.skip("the thread sanitizer cannot run with this kernel's memory layout")
    return kind, path


@pytest.mark.parametrize("check", CHECKS)
def test_pool(program: tuple[str, Path], check: str) -> None:
    kind, path = program
    if (kind, check) in EXCEPT:
        pytest.skip("the sanitizer does not support it")
    done = subprocess.run([path, check], capture_output=True, text=True, timeout=120, env={**os.environ})
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stdout + done.stderr


def test_every_check_is_run(program: tuple[str, Path]) -> None:
    shown = subprocess.run([program[1]], capture_output=True, text=True).stdout
    assert shown.split() == CHECKS
