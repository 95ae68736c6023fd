"""Lists of names for people, which end with the number of names that they leave out."""

from __future__ import annotations

from collections.abc import Sequence

MOST = 8


def shortened(names: Sequence[object], most: int = MOST) -> str:
    """Returns the first names, and the number of the others: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def shortened_code(names: Sequence[object], most: int = MOST) -> str:
    """Returns the same, with each name marked as code."""
    return shortened([f"`{name}`" for name in names], most)
