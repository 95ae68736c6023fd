"""The formatter: it keeps the meaning and every comment, and its output is what it makes of its output.

What the canonical form looks like is shown by the file tests under tests/files/format.
"""

import random
import re
from pathlib import Path

import pytest
from nacre.compiler.readers.language.format import format_source
from nacre.compiler.readers.language.layout import WIDTH
from nacre.compiler.readers.language.parse import parse
from nacre.dialect.diagnostics import DiagnosticError
from random_source import RandomSource

SAMPLES = sorted((Path(__file__).parents[3] / "samples").rglob("*.nacre"))


def comment_numbers(text: str) -> list[str]:
    return sorted(re.findall(r"note (\d+)", text))


def check(text: str) -> str:
    formatted = format_source(text, "test")
    assert parse(formatted, "test") == parse(text, "test")
    assert format_source(formatted, "test") == formatted
    assert comment_numbers(formatted) == comment_numbers(text)
    assert not re.search(r"[ \t]$|\t|\r|\n\n\n|\A\n|\n\n\Z", formatted, re.MULTILINE)
    return formatted


@pytest.mark.parametrize("seed", range(30))
def test_random_sources(seed: int) -> None:
    check(RandomSource(random.Random(seed), width=1 + seed % 2).file())


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_samples_are_in_canonical_form(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert check(text) == text


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_samples_survive_the_loss_of_their_layout(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert check(re.sub(r"(?m)^[ ]+", "", text)) == text
    strings_apart = re.split(r'("[^"\n]*"|#.*)', text)
    strings_apart[::2] = [re.sub(r"(?<=[\w),\]]) |(?<=,)", "   ", part) for part in strings_apart[::2]]
    assert check("".join(strings_apart)) == text


def test_lines_fit_where_they_can_be_broken() -> None:
    arguments = ", ".join(f"argument_{n}=value_{n}" for n in range(12))
    text = f"y = function({arguments}) + other({arguments})\nz = " + " + ".join(f"term_{n}" for n in range(30))
    for line in check(text).splitlines():
        assert len(line) <= WIDTH or line.count("term_") > 1
    header = ", ".join(f"input_{n}: f32[B, T, width]" for n in range(9))
    formatted = check(f"block A<width>({header}) -> f32[B, T, width] {{ return input_0 }}")
    assert all(len(line) <= WIDTH for line in formatted.splitlines())


def test_a_faulty_source_is_not_formatted() -> None:
    with pytest.raises(DiagnosticError):
        format_source("y = (1\n", "test")


def test_an_empty_source_stays_empty() -> None:
    assert format_source("") == "" == format_source(" \n\n\t\n")
