"""compiler/docs/graph.md: its graphs parse, give the stated diagnostics and read back; its tables are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.ops import OPERATORS
from nacre.dialect.parser import parse_module, parse_text
from nacre.dialect.printer import print_module
from nacre.dialect.types import BLOCK_SIZES, DTYPES
from nacre.dialect.verifier import KINDS, verify

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "compiler" / "docs" / "graph.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```graph\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
CODES = r"// error\[([\w-]+)\]"


def name(example: str) -> str:
    return example.split("\n", 1)[0].removeprefix("module ")


@pytest.mark.parametrize("example", EXAMPLES, ids=name)
def test_example_gives_the_stated_diagnostics(example: str) -> None:
    stated = [(n, code) for n, line in enumerate(example.splitlines(), 1) for code in re.findall(CODES, line)]
    found = []
    try:
        parsed = parse_text(example, "example.graph")
        verify(parsed.module, parsed.locate)
    except DiagnosticError as error:
        found = [(d.span.line if d.span else 0, d.code) for d in error.diagnostics]
    assert found == stated


@pytest.mark.parametrize("example", [e for e in EXAMPLES if "error[" not in e], ids=name)
def test_text_reads_back_as_an_equal_graph(example: str) -> None:
    module = parse_module(example)
    assert parse_module(print_module(module)) == module


def test_every_rule_of_the_verifier_has_a_row() -> None:
    source = (ROOT / "dialect" / "verifier.py").read_text(encoding="utf-8")
    codes = set(re.findall(r'(?:report|Diagnostic)\(\s*"([a-z-]+)"', source))
    assert len(codes) > 12
    table = TEXT.split("## Validity")[1].split("```")[0]
    assert set(re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)) == codes


def test_every_kind_of_attribute_has_a_row() -> None:
    table = TEXT.split("### Attributes")[1].split("```")[0]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert {kind for cell in cells for kind in re.findall(r"`(\w+)`", cell)} == set(KINDS)


def test_every_dtype_is_listed() -> None:
    table = TEXT.split("## Types")[1].split("```")[0]
    assert set(DTYPES) <= set(re.findall(r"`(\w+)`", table))
    assert f"blocks of {', '.join(map(str, BLOCK_SIZES[:-1]))} or {BLOCK_SIZES[-1]} elements" in table


def test_every_structural_operator_is_described() -> None:
    structural = {op.name for op in OPERATORS.values() if op.has("structure")}
    section = TEXT.split("## Regions")[1].split("\n## ")[0]
    assert structural <= set(re.findall(r"`(\w+)`", section))
