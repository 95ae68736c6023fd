"""Names of arguments and results: words made of the names of a file, each used once."""

from __future__ import annotations

import re


def identifier(name: str) -> str:
    """Returns a name as a word of letters, digits and underscores; it may be empty."""
    word = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    return f"_{word}" if word[:1].isdigit() else word


def unique(name: str, taken: set[str]) -> str:
    """Returns the name, with a number if it is among those taken, and adds it to them."""
    wanted, number = name, 1
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    taken.add(name)
    return name
