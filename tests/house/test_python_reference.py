"""The reference in compiler/docs/python.md equals the generated one."""

from __future__ import annotations

from nacre.compiler.tools.reference.python_api import FUNCTIONS, PAGE, format_page, format_reference


def test_committed_page_is_the_generated_one() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert format_page(page) == page, "run python -m nacre.compiler.tools.reference.python_api"


def test_every_function_has_a_description() -> None:
    sections = format_reference().split("### `")[1:]
    assert len(sections) == len(FUNCTIONS) + 1
    assert all(len(section.split("\n\n", 1)[1].strip()) > 20 for section in sections)
