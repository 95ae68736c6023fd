"""Examples of compiler/docs/language.md give the diagnostics that their comments state; those without one compile."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.api import read_model
from nacre.compiler.readers.language import check_source
from nacre.compiler.readers.language.format import format_source
from nacre.compiler.weights.header_checks import elements, stored_shape

PAGE = Path(__file__).parents[2] / "compiler" / "docs" / "language.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```nacre\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
GRAMMAR = (PAGE.parents[1] / "readers" / "language" / "nacre.lark").read_text(encoding="utf-8")


def first_line(example: str) -> str:
    return example.splitlines()[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that the examples name: a configuration and a library, as on the page, and arrays."""
    (config,) = re.findall(r"^```json\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    (tmp_path / "config.json").write_text(config)
    (library,) = (example for example in EXAMPLES if example.startswith("# blocks.nacre\n"))
    (tmp_path / "blocks.nacre").write_text(library)
    numbers = np.array([1, 2, 3], np.float32)
    np.save(tmp_path / "x.npy", numbers)
    np.save(tmp_path / "y.npy", numbers * numbers)
    np.savez(tmp_path / "samples.npz", x=np.ones((4, 64), np.float32))
    return tmp_path


def stated(example: str) -> list[tuple[int, str]]:
    """The line and the code of each diagnostic that comments state."""
    lines = enumerate(example.splitlines(), 1)
    return [(number, code) for number, line in lines for code in re.findall(r"# error\[([\w-]+)\]", line)]


@pytest.mark.parametrize("example", EXAMPLES, ids=first_line)
def test_example_gives_the_stated_diagnostics(example: str, folder: Path) -> None:
    diagnostics = check_source(example, "example.nacre", folder)
    found = [(d.span.line if d.span else 0, d.code) for d in diagnostics]
    assert found == stated(example), "\n".join(d.message for d in diagnostics)


@pytest.mark.parametrize("example", [e for e in EXAMPLES if "model " in e and not stated(e)], ids=first_line)
def test_example_compiles(example: str, folder: Path) -> None:
    path = folder / "example.nacre"
    path.write_text(example)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nacre.NacreWarning)  # examples are shorter than good models
        singles = [single for parameter in read_model(path).module.parameters for single in elements(parameter)]
        weights = {single.key: np.ones(stored_shape(single), np.float32) for single in singles}
        model = nacre.compile(path, folder / "example.so", weights=weights, opt_level=0)
    declared = re.findall(r"^ *(?:model|train) (\w+)", example, re.MULTILINE)
    assert set(model.entries) == set(declared)


@pytest.mark.parametrize("example", EXAMPLES, ids=first_line)
def test_example_is_formatted(example: str) -> None:
    assert format_source(example, "example.nacre") == example


def test_every_keyword_is_described() -> None:
    """Keywords are the strings of the grammar that are words."""
    keywords = set(re.findall(r'"([A-Za-z]+)"', GRAMMAR))
    assert {"block", "repeat", "calibrate", "transpose", "None"} <= keywords
    written = set(re.findall(r"\w+", " ".join(EXAMPLES) + TEXT))
    assert keywords <= written, keywords - written
    assert len(EXAMPLES) > 15
