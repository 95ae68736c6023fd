"""Programs in C around parts of the runtime: plain, without futexes, and under the sanitizers that there are."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from nacre.compiler.artifact.link import RUNTIME_FOLDER

CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
BUILDS = {
    "plain": ["-O2"],
    "without-futexes": ["-O2", "-DNACRE_NO_FUTEX"],
    "address": ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-O1", "-g", "-fsanitize=thread"],
}


def build_program(kind: str, program: Path, stems: Sequence[str], folder: Path, check: str) -> Path:
    """The program with these sources of the runtime, built in one of the `BUILDS`. Skips the test where there is no
    such sanitizer, or where it cannot run even this check."""
    assert CC
    path = folder / kind
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-Wpedantic", "-pthread", f"-I{RUNTIME_FOLDER}"]
    sources = [str(program), *(str(RUNTIME_FOLDER / f"{stem}.c") for stem in stems)]
    command = [CC, *flags, *BUILDS[kind], *sources, "-o", str(path), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode and kind in ("address", "thread") and "cannot find" in done.stderr:
        pytest.skip(f"the C compiler has no sanitizer of kind {kind}")
    assert done.returncode == 0, done.stderr
    if kind == "thread" and subprocess.run([path, check], capture_output=True).returncode == 66:
        pytest.skip("the thread sanitizer cannot run with this kernel's memory layout")
    return path


def run_check(path: Path, check: str) -> None:
    done = subprocess.run([path, check], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stdout + done.stderr
