"""Notes by which artifacts in one process find each other: read to their end, and not beyond it."""

from __future__ import annotations

from pathlib import Path

import pytest
from c_programs import build_program, run_check

PROGRAM = Path(__file__).with_name("notes_program.c")
STEMS = ("park",)


@pytest.mark.parametrize("kind", ["plain", "address"])
def test_notes(kind: str, tmp_path: Path) -> None:
    run_check(build_program(kind, PROGRAM, STEMS, tmp_path, "notes"), "notes")
