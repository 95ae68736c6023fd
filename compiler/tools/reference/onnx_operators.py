"""Writes the table of operators in the page about ONNX: `python -m nacre.compiler.tools.reference.onnx_operators`.

The page is `compiler/docs/onnx.md`. The table comes from the converters; a test compares it with the committed page.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...readers.onnx.convert import FAMILIES
from ...readers.onnx.writing.use import Convert

PAGE = Path(__file__).parents[2] / "docs" / "onnx.md"
_BEGIN, _END = "<!-- generated: begin -->\n", "<!-- generated: end -->"


def _entry(name: str, converter: Convert | Mapping[int, Convert]) -> str:
    if not isinstance(converter, Mapping) or list(converter) == [1]:
        return f"`{name}`"
    return f"`{name}` ({', '.join(map(str, sorted(converter)))})"


def format_table() -> str:
    """Returns one row for each family; numbers are the versions in which the meaning of an operator changed."""
    rows = ["| family | operators |", "|---|---|"]
    for family, converters in FAMILIES.items():
        rows.append(f"| {family} | {', '.join(_entry(name, converters[name]) for name in sorted(converters))} |")
    return "\n".join(rows) + "\n"


def format_page(page: str) -> str:
    """Returns the page with the current table."""
    head, rest = page.split(_BEGIN)
    return head + _BEGIN + format_table() + _END + rest.split(_END)[1]


def main() -> None:
    PAGE.write_text(format_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
