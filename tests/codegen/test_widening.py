"""How long the stretches are in which rows are widened."""

from __future__ import annotations

import pytest
from nacre.compiler.codegen.tiler.widening import MOST_GROUPS, choose_stretch


@pytest.mark.parametrize(
    ("groups", "lanes", "stretch"), [(512, 16, 128), (192, 16, 96), (127, 16, 120), (8, 16, 8), (7, 16, 0), (7, 8, 4)]
)
def test_stretches_leave_little_behind(groups: int, lanes: int, stretch: int) -> None:
    assert choose_stretch(groups, 2, lanes) == stretch


@pytest.mark.parametrize("groups", [*range(1, 40), 130, 300, 1000, 5504])
def test_stretches_are_whole_vectors_and_short(groups: int) -> None:
    stretch = choose_stretch(groups, 2, 16)
    assert stretch % 8 == 0 and stretch <= min(groups, MOST_GROUPS)
    assert groups < 8 or groups % stretch < 8 or groups - groups % stretch > groups * 0.8
