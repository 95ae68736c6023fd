"""A person gets tables also where the output is piped, within 80 columns and with whole names and figures."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_harness import Cli


@pytest.mark.parametrize("command", [("inspect",), ("run", "--input", "x=[[1, 2], [3, 4.5]]")])
def test_piped_output_is_for_people(cli: Cli, double_so: Path, command: tuple[str, ...]) -> None:
    done = cli(command[0], double_so, *command[1:])
    assert done.code == 0 and not done.out.startswith("{")
    assert all(len(line) <= 80 for line in done.out.splitlines()), done.out
    assert "…" not in done.out
    assert cli(command[0], double_so, *command[1:], "--json").out.startswith("{")
