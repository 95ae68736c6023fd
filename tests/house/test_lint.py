"""ruff finds nothing to say and nothing to format; mypy accepts every module in strict mode."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("arguments", [["check", "."], ["format", "--check", "."]], ids=["check", "format"])
def test_ruff(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "ruff", *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_types() -> None:
    script = Path(__file__).with_name("check_types.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


WITHOUT_REASON = r"# type: ignore(?!\[[^]]*\]  # [`\w])"


def test_each_exception_from_types_has_its_reason_beside_it() -> None:
    files = [
        path for room in ("compiler", "dialect", "passes", "runtime") for path in sorted((ROOT / room).rglob("*.py"))
    ]
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(WITHOUT_REASON, line)
    ]
    assert len(files) > 100 and not found, "\n".join(found)


def test_an_exception_without_a_reason_is_found() -> None:
    assert re.search(WITHOUT_REASON, "x = y  # type: ignore[misc]")
    assert not re.search(WITHOUT_REASON, "x = y  # type: ignore[misc]  # y is a tensor")
