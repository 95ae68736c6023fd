"""The table of a reader's converters by name, made of the families in its folder `convert`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Entry = TypeVar("Entry")


def by_name(families: Mapping[str, Mapping[str, Entry]]) -> Mapping[str, Entry]:
    """Returns the entries of all families by name. No two families have an entry of one name."""
    table: dict[str, Entry] = {}
    for family, entries in families.items():
        assert not (twice := table.keys() & entries.keys()), f"{family} and another family convert {sorted(twice)}"
        table.update(entries)
    return table
