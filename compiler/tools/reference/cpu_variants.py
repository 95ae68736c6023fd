"""Writes the table of CPU variants in the page about artifacts.

python -m nacre.compiler.tools.reference.cpu_variants
"""

from __future__ import annotations

from pathlib import Path

from ...targets.variants import PORTABLE, VARIANTS
from .generated_part import replace_generated

PAGE = Path(__file__).parents[2] / "docs" / "artifact.md"


def format_table() -> str:
    """Returns a row for each variant: its features beyond those of the row before."""
    rows = ["| CPU variant | adds | features in LLVM's names |", "|---|---|---|"]
    before: tuple[str, ...] = ()
    for variant in VARIANTS.values():
        added = ", ".join(f"`{feature}`" for feature in variant.features if feature not in before) or "none"
        portable = f"; part of `{PORTABLE}`" if variant.portable else ""
        rows.append(f"| `{variant.name}` | {variant.summary}{portable} | {added} |")
        before = variant.features
    return "\n".join(rows) + "\n"


def format_page(page: str) -> str:
    """Returns the page with its table replaced."""
    return replace_generated(page, format_table())


def main() -> None:
    PAGE.write_text(format_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
