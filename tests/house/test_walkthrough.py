"""The outputs on compiler/docs/walkthrough.md are those of a build."""

from __future__ import annotations

from nacre.compiler.tools.reference.walkthrough import PAGE, format_page


def test_outputs_are_those_of_a_build() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page.count("<!-- stage: ") == 5
    assert format_page(page) == page, "run python -m nacre.compiler.tools.reference.walkthrough"
