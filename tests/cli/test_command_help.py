"""Help that teaches, and command lines that are wrong: exit code 2, before anything is done."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_harness import Cli
from nacre.compiler.cli.main import all_commands

GROUP = all_commands()
COMMANDS = sorted(GROUP)


def test_there_are_commands() -> None:
    expected = (
        "accuracy bench bisect chat check compile completion diff dump fmt generate graph help import inspect lsp"
    )
    assert [*expected.split(), "opt", "profile", "quantize", "reduce", "run", "serve", "test", "train"] == COMMANDS


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_the_commands(cli: Cli, flag: str) -> None:
    done = cli(flag)
    assert done.code == 0
    assert all(f"\n  {name} " in done.out for name in COMMANDS)
    assert "Exit codes: 0" in done.out
    assert "nacre check model.nacre" in done.out


@pytest.mark.parametrize("name", COMMANDS)
def test_list_and_help_of_a_command_begin_alike(cli: Cli, name: str) -> None:
    lines = cli("--help").out.partition("Commands:")[2].partition("A first look")[0]
    (summary,) = re.findall(rf"^  {name} +(.*)", lines, re.MULTILINE)
    assert summary and " ".join((GROUP[name].help or "").split()).startswith(summary.rstrip("."))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_teaches(cli: Cli, name: str) -> None:
    done = cli(name, "--help")
    assert done.code == 0
    # An example that can be typed, on a line of its own.
    assert f"\n    nacre {name} " in done.out
    assert max(map(len, done.out.splitlines())) <= 80
    assert not any(line.endswith("...") and "[" not in line for line in done.out.splitlines())
    for option in GROUP[name].params:
        if option.param_type_name == "option":
            assert getattr(option, "help", None), option.name


def test_examples_in_help_are_valid_command_lines(cli: Cli) -> None:
    """Every option that an example uses is one of the command's."""
    for name in COMMANDS:
        known = {flag for option in GROUP[name].params for flag in option.opts}
        for line in cli(name, "--help").out.splitlines():
            if line.startswith(f"    nacre {name} "):
                used = {
                    word.split("=")[0] for word in line.split("|")[0].split() if word.startswith("-") and word != "-"
                }
                assert {u[:2] if not u.startswith("--") else u for u in used} <= known, line


def test_version(cli: Cli) -> None:
    done = cli("--version")
    assert done.code == 0
    assert done.out.startswith("nacre, version ")


def test_help_of_opt_lists_passes_with_their_options(cli: Cli) -> None:
    out = cli("opt", "--help").out
    assert "fold-constants{growth=4096}" in out
    assert "unroll-repeat{limit=none}" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bake"], "No such command 'bake'"),
        (["chek"], "No such command 'chek'. Did you mean `check`?"),
        (["compile"], "Missing argument 'MODEL.nacre'"),
        (["compile", "m.nacre", "-O4"], "4 is not in the range 0<=x<=3"),
        (["compile", "m.nacre", "--emit", "exe"], "'exe' is not one of 'so', 'graph'"),
        (["compile", "m.nacre", "--passes", "cs"], "there is no pass `cs`; did you mean `cse`?"),
        (["compile", "m.nacre", "--timeout", "0"], "0.0 is not in the range 0<x<=1000000.0"),
        (
            ["compile", "m.nacre", "--dump-after", "cze"],
            "there is no stage `cze`; there are graph, inline-custom, decompose",
        ),
        (["compile", "m.nacre", "-o", "m.nacre"], "`m.nacre` is the model itself"),
        (["compile", "m.nacre", "-o", "m.o", "--emit", "so", "--emit", "obj"], "would both be written to `m.o`"),
        (["dump", "m.nacre", "--stage", "linagl"], "there is no stage `linagl`; there are graph"),
        (
            ["dump", "m.nacre", "--passes", "dce", "--stage", "cse"],
            "there is no stage `cse`; there are graph, dce, linalg",
        ),
        (["opt", "m.graph", "--pass", "cse{x=1}"], "`cse` has no option `x`"),
        (["opt", "m.graph", "--rewrite-limit", "-1"], "-1 is not in the range x>=0"),
        (["run", "m.so", "-O1"], "-O is for model files; m.so is already compiled"),
        (["run", "m.so", "--checkpoint", "folder"], "--checkpoint is for model files"),
        (["run", "m.nacre", "--weights", "w.safetensors"], "--checkpoint names the weights of a model file"),
        (["check"], "Missing argument 'FILE...'"),
        (["fmt", "--chek", "m.nacre"], "No such option"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_command_line(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    """None of the files exists: whatever is looked at first is the command line."""
    monkeypatch.chdir(tmp_path)
    done = cli(*arguments)
    assert done.code == 2, done
    assert message in " ".join(done.err.split())
    assert done.out == ""
    assert list(tmp_path.iterdir()) == []


def test_no_command_shows_the_help(cli: Cli) -> None:
    done = cli()
    assert done.code in (0, 2)  # which of them is click's choice, and changed with its versions
    assert "Commands:" in done.out + done.err
