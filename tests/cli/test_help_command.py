"""`nacre help` and `nacre completion`: every word has a page, in 80 columns; every diagnostic code is explained."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_harness import Cli
from nacre.compiler.cli.main import all_commands, run
from nacre.compiler.readers.language import check_source
from nacre.compiler.tools.help.sections import DOCS, LANGUAGE, OTHERS, names_of, read_sections
from nacre.dialect.ops import OPERATORS
from nacre.passes.registry import PASSES

ROOT = Path(__file__).parents[2]
READERS = ROOT / "compiler" / "readers" / "language"
_REPORTED = re.compile(r"(?:report|error|warning|stop|Diagnostic|WrongError)\(\s*\"([a-z0-9]+(?:-[a-z0-9]+)*)\"")
NAMED = names_of("diagnostics")
EXAMPLES = {
    code: example[0]
    for code, section in NAMED.items()
    if (example := re.findall(r"^```nacre\n(.*?)^```$", "\n".join(section.lines) + "\n", re.MULTILINE | re.DOTALL))
}


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["help", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_example_of_a_diagnostic_gives_it(code: str) -> None:
    found = {d.code for d in check_source(EXAMPLES[code], "example.nacre", ROOT)}
    assert found == {code}


def test_every_code_of_the_language_is_explained() -> None:
    found = {code for path in READERS.glob("*.py") for code in _REPORTED.findall(path.read_text(encoding="utf-8"))}
    assert {"shape-mismatch", "unclosed-string", "bad-range"} <= found
    missing = found - NAMED.keys() - {"unsupported"}
    assert not missing


def test_every_operator_pass_and_construct_has_a_section() -> None:
    assert set(OPERATORS) <= names_of("operators").keys()
    assert set(PASSES) <= names_of("passes").keys()
    assert LANGUAGE.keys() <= {section.heading for section in read_sections("language")}
    for page, heading in OTHERS.values():
        assert heading in {section.heading for section in read_sections(page)}


@pytest.mark.parametrize("word", ["softmax", "shape-mismatch", "repeat", "cse", "native", "int8", "|>", "fmt"])
def test_a_word_is_explained(capsys: pytest.CaptureFixture[str], word: str) -> None:
    text = shown(capsys, word)
    assert word in text
    assert [line for line in text.splitlines() if len(line) > 80 and not line.startswith("    ")] == []


def test_without_a_word_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys)
    assert {*OPERATORS, *PASSES, *NAMED} <= set(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_a_command_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--emit" in shown(capsys, "compile")


def test_an_unknown_word_has_a_proposal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "sofmax"]) == 1
    assert "did you mean `softmax`" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_completes_in_each_shell(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    assert run(["completion", shell]) == 0
    assert "_NACRE_COMPLETE" in capsys.readouterr().out


def test_commands_are_completed() -> None:
    variables = {"COMP_WORDS": "nacre co", "COMP_CWORD": "1", "_NACRE_COMPLETE": "bash_complete"}
    command = [sys.executable, "-m", "nacre.compiler.cli.main"]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
    expected = sorted(name for name in all_commands() if name.startswith("co"))
    assert sorted(line.partition(",")[2] for line in done.stdout.splitlines()) == expected


def test_the_pages_are_those_of_the_documentation() -> None:
    assert (DOCS / "diagnostics.md").is_file() and DOCS == ROOT / "compiler" / "docs"


@pytest.mark.parametrize(("word", "shown"), [("pixel_shuffle", "depth_to_space"), ("LayerNorm", "layer_norm")])
def test_names_of_other_libraries(cli: Cli, word: str, shown: str) -> None:
    done = cli("help", word)
    assert done.code == 0 and done.out.startswith(f"`{word}` of other libraries is `{shown}` here.\n")
    assert f"`{shown}(" in done.out


@pytest.mark.parametrize("word", ["quantile", "median", "cross"])
def test_words_without_an_operator_are_explained(cli: Cli, word: str) -> None:
    done = cli("help", word)
    assert done.code == 0 and done.out.startswith(f"There is no operator `{word}`: ")
    assert all(len(line) <= 80 for line in done.out.splitlines())
