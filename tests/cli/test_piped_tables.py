"""A person gets tables also where the output is piped, within 80 columns and with whole names and figures."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_harness import Cli
from nacre.compiler.base.text_tables import Column, table_lines
from nacre.dialect.wrapping import fit


@pytest.mark.parametrize("command", [("inspect",), ("run", "--input", "x=[[1, 2], [3, 4.5]]")])
def test_piped_output_is_for_people(cli: Cli, double_so: Path, command: tuple[str, ...]) -> None:
    done = cli(command[0], double_so, *command[1:])
    assert done.code == 0 and not done.out.startswith("{")
    assert all(len(line) <= 80 for line in done.out.splitlines()), done.out
    assert "…" not in done.out
    assert cli(command[0], double_so, *command[1:], "--json").out.startswith("{")


def test_a_name_of_several_words_continues_on_the_next_line() -> None:
    columns = [Column("time"), Column("line", is_name=True)]
    rows = [("1.25 ms", "return softmax(scores) @ values + shift"), ("7 us", "a" * 30)]
    (_, first, second) = table_lines(columns, rows, width=24)
    assert first == ["return softmax(scores) @", "    values + shift", "  1.25 ms"]
    assert second == ["a" * 30, "     7 us"]


def test_a_number_stays_beside_its_unit() -> None:
    text = "two kernels, 36.7\N{NO-BREAK SPACE}Mflop"
    assert fit(text) == "two kernels, 36.7 Mflop"
    assert fit(text, 18) == "two kernels,\n    36.7 Mflop"


def test_errors_of_the_command_line_fit(cli: Cli, tmp_path: Path) -> None:
    names = [f"a_rather_long_name_of_an_entry_{i}" for i in range(3)]
    path = tmp_path / "entries.nacre"
    path.write_text("".join(f"model {name}(x: f32[2]) -> f32[2] {{ return x }}\n" for name in names))
    done = cli("run", path, "--input", "x=[1, 2]", "-O0")
    assert done.code == 2 and done.err.rstrip().endswith(f"the model has the entries {', '.join(names)}")
