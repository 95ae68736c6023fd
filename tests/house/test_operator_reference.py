"""compiler/docs/operators.md equals the generated page and covers every operator."""

from __future__ import annotations

from nacre.compiler.tools.reference.operators import PAGE, decomposition, format_page, gradient
from nacre.dialect.ops import OPERATORS


def test_committed_page_is_the_generated_one() -> None:
    message = "run python -m nacre.compiler.tools.reference.operators"
    assert PAGE.read_text(encoding="utf-8") == format_page(), message


def test_every_operator_has_a_section() -> None:
    page = format_page()
    assert all(f"\n### `{name}(" in page for name in OPERATORS)


def test_facts_come_from_the_records() -> None:
    assert decomposition(OPERATORS["relu"]) == ["maximum"]
    assert "maximum" not in decomposition(OPERATORS["sigmoid"])
    assert gradient(OPERATORS["subtract"]) == ["negate"]
