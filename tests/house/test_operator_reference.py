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


def test_operators_of_a_model_file_have_dtypes_and_an_example() -> None:
    page = format_page()
    for name, operator in OPERATORS.items():
        if operator.has("structure") or operator.has("internal") or not operator.cases:
            continue
        section = page.partition(f"\n### `{name}(")[2].partition("\n### ")[0]
        assert f"- Example: `{name}(" in section
        assert "- Dtypes: " in section or all(spec.name != "dtype" for spec in operator.attributes)
    assert "`iota(shape=7)` gives `i64[7]`" in page


def test_facts_come_from_the_records() -> None:
    assert decomposition(OPERATORS["relu"]) == ["maximum"]
    assert "maximum" not in decomposition(OPERATORS["sigmoid"])
    assert gradient(OPERATORS["subtract"]) == ["negate"]
