"""The static model that decides between a block for each tile and persistent blocks."""

from __future__ import annotations

import pytest
from nacre.compiler.codegen.gpu.grids import FILL, TileWork, gain_of_persistence, gains_from_persistence
from nacre.compiler.targets.chips import CHIPS

H100 = CHIPS["h100"]


def warpgroups(depth: int | None, columns: int = 128) -> TileWork:
    return TileWork(128, columns, depth, "f16", 2, 2)


def test_the_time_is_that_of_all_waves() -> None:
    """By hand: two waves of one block each wait twice for their first copies, persistent blocks once."""
    work = warpgroups(512)
    products, end = 2 * 128 * 128 * 512 * 132 / 989e12, 128 * 128 * 2 * 132 / 3.35e12
    expected = 2 * (FILL + products + end) / (FILL + 2 * (products + end))
    assert products > end
    assert gain_of_persistence(work, H100, 1, 133) == pytest.approx(expected)
    assert gain_of_persistence(work, H100, 1, 264) == pytest.approx(expected)


def test_one_wave_gains_nothing() -> None:
    assert gain_of_persistence(warpgroups(512), H100, 1, 132) == 1
    assert not gains_from_persistence(warpgroups(512), H100, 1, 132)
    assert gains_from_persistence(warpgroups(512), H100, 1, 133)


@pytest.mark.parametrize(("depth", "columns"), [(64, 128), (1024, 128), (4096, 256), (None, 256)])
def test_tiles_that_fill_a_processor_gain(depth: int | None, columns: int) -> None:
    assert gains_from_persistence(warpgroups(depth, columns), H100, 1)


def test_long_products_hide_the_first_copies() -> None:
    assert not gains_from_persistence(warpgroups(65536), H100, 1)


@pytest.mark.parametrize("chip", ["a100", "l4", "h100"])
@pytest.mark.parametrize(("element", "factor", "result"), [("f16", 2, 2), ("tf32", 4, 4), ("i8", 1, 4)])
@pytest.mark.parametrize("rows", [128, 64, 32])
def test_three_blocks_of_a_processor_hide_their_waits(
    chip: str, element: str, factor: int, result: int, rows: int
) -> None:
    """The gain of the schedule `tensor_cores` would be below 4 %, for products from a depth of 64 on."""
    for depth in (64, 128, 512, 4096):
        work = TileWork(rows, 64, depth, element, factor, result, reads_columns=rows < 128)
        assert gain_of_persistence(work, CHIPS[chip], 3) < 1.04, depth
