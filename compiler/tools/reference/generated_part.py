"""The generated part of a page: the lines between two comments."""

from __future__ import annotations

_BEGIN, _END = "<!-- generated: begin -->\n", "<!-- generated: end -->\n"


def replace_generated(page: str, text: str) -> str:
    """Returns the page with `text`, which ends with a line break, as its generated part."""
    assert text.endswith("\n"), text
    head, rest = page.split(_BEGIN)
    return head + _BEGIN + text + _END + rest.split(_END)[1]
