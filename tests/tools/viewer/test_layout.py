"""Layouts: nothing overlaps, edges lead down and cross no box, whatever is unfolded."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from itertools import pairwise

import pytest
from graph_models import build, decoder
from nacre.compiler.tools.viewer.layout import arrange, lay_out
from nacre.compiler.tools.viewer.placement import Box, Drawing, draw, stretch
from nacre.compiler.tools.viewer.straight import Link, straighten
from nacre.compiler.tools.viewer.tree import Body, Item, build_tree


def random_body(seed: int) -> Body:
    """Boxes of all sizes, some of which hold bodies."""
    rng = random.Random(seed)
    items, edges = [], set()
    for number in range(rng.randrange(1, 40)):
        inner = random_body(seed * 100 + number + 1) if seed < 100 and rng.random() < 0.15 else None
        title, lines = "x" * rng.randrange(1, 30), ("y" * rng.randrange(36),) * rng.randrange(5)
        items.append(Item(f"{number}", "block" if inner else "node", title, lines=lines, body=inner))
        for _ in range(rng.randrange(4) if number else 0):
            edges.add((rng.randrange(max(0, number - 12), number), number))
    return Body(tuple(items), tuple(sorted(edges)))


def drawings_of(drawing: Drawing) -> list[Drawing]:
    return [drawing, *(d for box in drawing.boxes if box.inside is not None for d in drawings_of(box.inside))]


def overlap(one: Box, other: Box) -> bool:
    return (
        one.x < other.x + other.width
        and other.x < one.x + one.width
        and one.y < other.y + other.height
        and other.y < one.y + one.height
    )


def passes_through(box: Box, x: float, top: float, bottom: float) -> bool:
    return box.x < x < box.x + box.width and top < box.y + box.height and box.y < bottom


def assert_clear(drawing: Drawing, body: Body) -> None:
    for number, one in enumerate(drawing.boxes):
        assert one.x >= 0 and one.x + one.width <= drawing.width, one
        assert one.y >= 0 and one.y + one.height <= drawing.height, one
        assert not any(overlap(one, other) for other in drawing.boxes[number + 1 :])
    for (source, target), points in zip(body.edges, drawing.edges, strict=True):
        assert all(a[1] <= b[1] for a, b in pairwise(points)), points
        # Edges cross boxes nowhere: straight parts pass beside them, curves lie between the rows.
        for (x, top), (below, bottom) in zip(points[::2], points[1::2], strict=True):
            assert x == below
            others = [box for n, box in enumerate(drawing.boxes) if n not in (source, target)]
            assert not any(passes_through(box, x, top, bottom) for box in others)
        for (x, top), (end, bottom) in zip(points[1::2], points[2::2], strict=False):
            span = Box(drawing.boxes[0].item, min(x, end), top, abs(end - x) + 1e-6, bottom - top)
            assert not any(overlap(span, box) for box in drawing.boxes)


@pytest.mark.parametrize("seed", range(60))
def test_nothing_overlaps(seed: int) -> None:
    body = random_body(seed)
    rng = random.Random(seed)
    choice: dict[tuple[str, ...], bool] = {}
    drawing = draw(body, lambda path, item: choice.setdefault(path, rng.random() < 0.6))

    def check(drawing: Drawing, body: Body) -> None:
        assert_clear(drawing, body)
        for box in drawing.boxes:
            if box.inside is not None:
                assert box.item.body is not None and box.inside.width <= box.width
                check(box.inside, box.item.body)

    check(drawing, body)


def test_a_whole_model_unfolded() -> None:
    tree = build_tree(build(decoder(6)).stages[-1].module)
    drawing = draw(tree, lambda path, item: True)
    assert len(drawings_of(drawing)) > 30
    assert_clear(drawing, tree)


@pytest.mark.parametrize("seed", range(20))
def test_grid_keeps_rows_apart_and_edges_downwards(seed: int) -> None:
    body = random_body(seed + 100)
    grid = lay_out(body)
    for row in set(grid.rows):
        columns = [c for c, r in zip(grid.columns, grid.rows, strict=True) if r == row]
        columns += [
            turns[row - grid.rows[source] - 1]
            for (source, target), turns in zip(body.edges, grid.turns, strict=True)
            if grid.rows[source] < row < grid.rows[target]
        ]
        columns.sort()
        assert all(b - a >= 1 for a, b in pairwise(columns))
    for (source, target), turns in zip(body.edges, grid.turns, strict=True):
        assert len(turns) == grid.rows[target] - grid.rows[source] - 1


def test_a_chain_stays_straight_beside_ports_and_residuals() -> None:
    """Boxes 4 to 9 follow each other; each of the first four is read by one of them, and two edges go around."""
    edges = tuple(sorted([(n, n + 1) for n in range(4, 9)] + [(n, n + 5) for n in range(4)] + [(4, 7), (6, 9)]))
    grid = arrange(10, edges, ports=(0, 1, 2, 3))
    assert len({grid.columns[n] for n in range(4, 10)}) == 1


def test_positions_are_the_means_of_wishes() -> None:
    links = [Link(0, n, 4.0) for n in (1, 2, 3)]
    assert straighten([1.0, 0.0, 1.0, 2.0], [[0], [1, 2, 3]], links) == [1.0, 0.0, 1.0, 2.0]
    # A strong link pushes a weak one aside.
    assert straighten([0.0, 0.0, 0.0, 1.0], [[0, 1], [2, 3]], [Link(0, 2, 0.25), Link(0, 3, 1e6)])[3] == 0.0


def test_stretch_makes_room_and_keeps_the_order() -> None:
    across = stretch({0.0: 100.0, 0.5: 300.0, 4.0: 10.0})
    assert across(0.5) - across(-0.5) >= 100 and across(1.0) - across(0.0) == pytest.approx(300)
    assert across(4.5) - across(3.5) == pytest.approx(10)
    # Between 1 and 3.5 there is nothing, and it takes no room.
    assert across(1.0) == across(3.5)


def test_layouts_do_not_depend_on_the_process() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_layout import random_body\n"
        "from nacre.compiler.tools.viewer.layout import lay_out\n"
        "print([lay_out(random_body(n)) for n in range(100, 110)])"
    )
    folder = os.path.dirname(__file__)
    printed = {
        subprocess.run(
            [sys.executable, "-c", program, folder],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1 and "Grid" in printed.pop()
