"""The tables of converters: one entry for each name."""

from __future__ import annotations

import pytest
from nacre.compiler.readers.writing.families import by_name


def test_entries_of_all_families_are_in_one_table() -> None:
    assert by_name({"Unary": {"abs": 1, "exp": 2}, "Binary": {"add": 3}}) == {"abs": 1, "exp": 2, "add": 3}


def test_two_families_cannot_convert_one_operator() -> None:
    with pytest.raises(AssertionError, match=r"Binary and another family convert \['exp'\]"):
        by_name({"Unary": {"abs": 1, "exp": 2}, "Binary": {"exp": 3}})
