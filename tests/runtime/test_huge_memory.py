"""Memory on huge pages by itself, in a C program: also where the system has no huge pages."""

from __future__ import annotations

from pathlib import Path

from c_programs import build_program, run_check

PROGRAM = Path(__file__).with_name("huge_pages_program.c")


def test_memory_that_is_not_needed_is_given_back(tmp_path: Path) -> None:
    run_check(build_program("plain", PROGRAM, ("error", "no_device"), tmp_path, "pages"), "pages")
