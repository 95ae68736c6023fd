"""compiler/docs/passes.md equals the generated page and covers every pass, and every option in its description."""

from __future__ import annotations

import dataclasses
import inspect
import re

import pytest
from nacre.compiler.graph_passes import GRAPH_PASSES, STRICT_PASSES
from nacre.compiler.tools.reference.passes import EXAMPLES, PAGE, RUN, format_page
from nacre.passes.manager import PassManager
from nacre.passes.pass_list import parse_pipeline, read_graph
from nacre.passes.registry import PASSES


def test_committed_page_is_the_generated_one() -> None:
    message = "run python -m nacre.compiler.tools.reference.passes"
    assert PAGE.read_text(encoding="utf-8") == format_page(), message


def test_every_pass_has_a_section() -> None:
    assert re.findall(r"^## `([\w-]+)`$", format_page(), re.MULTILINE) == list(PASSES)


@pytest.mark.parametrize("name", PASSES)
def test_example_is_changed_by_the_pass(name: str) -> None:
    first, text = (EXAMPLES / f"example-{name}.graph").read_text(encoding="utf-8").split("\n", 1)
    manager = PassManager(parse_pipeline(first.removeprefix(RUN)))
    manager.run(read_graph(text, name))
    assert manager.stages[1].changed


@pytest.mark.parametrize("name", PASSES)
def test_description_mentions_every_option(name: str) -> None:
    words = inspect.cleandoc(PASSES[name].__doc__ or "")
    options = [field.name.replace("_", "-") for field in dataclasses.fields(PASSES[name])]
    assert all(f"`{option}`" in words for option in options), options


def test_table_lists_the_passes_of_every_level() -> None:
    """A column of the table, read from top to bottom, is the list of passes."""
    table = format_page().split("| pass |")[1].split("\n\n")[0].splitlines()
    columns = [cell.strip() for cell in table[0].split("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]
    for texts, suffix in ((GRAPH_PASSES, ""), (STRICT_PASSES, " --strict")):
        for level, text in texts.items():
            column = next((i for i, head in enumerate(columns) if f"`-O{level}{suffix}`" in head), None)
            if column is None:
                assert suffix and text == GRAPH_PASSES[level]
                continue
            listed = [re.findall(r"`([\w-]+)`", row[0])[0] for row in rows if row[column + 1]]
            assert listed == [step.name for step in parse_pipeline(text)]
