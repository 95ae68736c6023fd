"""Index maps, as both code generators read them."""

from __future__ import annotations

import pytest
from nacre.compiler.base.mlir import ir
from nacre.compiler.codegen.structured.positions import (
    Other,
    Panel,
    Position,
    loops_of,
    plain,
    read_map,
    shifted,
    write_position,
)
from nacre.dialect.emitter import ZERO, Index, loop

KNOWN: dict[str, Position] = {
    "d1": loop(1),
    "0": ZERO,
    "d0 * 2 + d2 + 3": Index(((0, 2), (2, 1)), 3),
    "(d0 + d1) floordiv 32": Panel(Index(((0, 1), (1, 1))), 32, within=False),
    "d2 mod 16": Panel(loop(2), 16, within=True),
    "d0 floordiv 2 + d1 mod 3": Other("d0 floordiv 2 + d1 mod 3"),
    "d0 + s0": Other("d0 + s0"),
}


def map_of(text: str) -> object:
    return ir.AffineMapAttr(ir.Attribute.parse(f"affine_map<(d0, d1, d2)[s0] -> ({text})>")).value


@pytest.mark.parametrize("text", KNOWN)
def test_positions_are_read_and_written(text: str) -> None:
    with ir.Context():
        (found,) = read_map(map_of(text))
        assert found == KNOWN[text]
        assert map_of(write_position(found)) == map_of(text)
        assert map_of(write_position(shifted(found, -3))) == map_of(f"{text} - 3")


def test_loops_of_positions() -> None:
    assert [plain(each) for each in KNOWN.values()] == [1, None, None, None, None, None, None]
    assert [sorted(loops_of(each)) for each in KNOWN.values()] == [[1], [], [0, 2], [0, 1], [2], [0, 1], [0]]
