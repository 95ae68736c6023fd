"""Writes the table of operations in the page about StableHLO.

    python -m nacre.compiler.tools.reference.stablehlo_operations

The page is `compiler/docs/stablehlo.md`. The table comes from the converters; a test compares it with the page.
"""

from __future__ import annotations

from pathlib import Path

from ...readers.stablehlo.convert import FAMILIES

PAGE = Path(__file__).parents[2] / "docs" / "stablehlo.md"
_BEGIN, _END = "<!-- generated: begin -->\n", "<!-- generated: end -->"


def format_table() -> str:
    """Returns one row for each family."""
    rows = ["| family | operations |", "|---|---|"]
    for family, converters in FAMILIES.items():
        rows.append(f"| {family} | {', '.join(f'`{name}`' for name in sorted(converters))} |")
    return "\n".join(rows) + "\n"


def format_page(page: str) -> str:
    """Returns the page with the current table."""
    head, rest = page.split(_BEGIN)
    return head + _BEGIN + format_table() + _END + rest.split(_END)[1]


def main() -> None:
    PAGE.write_text(format_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
