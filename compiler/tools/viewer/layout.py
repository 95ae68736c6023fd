"""The layered layout of one body: a row and a column for every box, and the bends of edges.

Rows are integers, columns are fractions of a box's width: two boxes in a row are at least 1 apart. The layout does not
depend on the sizes of boxes, so unfolding a box does not change it. igraph finds an order within rows that minimizes
crossings; this module assigns columns in that order, so that chains of boxes are straight.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

from ...base.packages import require_package
from .straight import Link, straighten
from .tree import Body

_CROSSING_ROUNDS = 60

# The weight of an edge's straightness: of a short edge, of an inner part of a long one, of the ends of a long one, and
# of an edge from a port. The weights differ so much that a smaller one never bends an edge with a larger one.
_SHORT, _LONG, _END, _PORT = 1e3, 30.0, 1.0, 0.03

Edges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """The row and column of each box, and for each edge of the body, in order, its column in each row that it
    passes."""

    rows: tuple[int, ...]
    columns: tuple[float, ...]
    turns: tuple[tuple[float, ...], ...]


def check_layout_package() -> None:
    """Raises DiagnosticError if the layout package is not installed."""
    require_package("igraph", "a layout needs igraph", "`pip install 'nacre[graph]'`, or -o FILE.dot")


def lay_out(body: Body) -> Grid:
    ports = tuple(number for number, item in enumerate(body.items) if item.is_port)
    return arrange(len(body.items), body.edges, ports)


@lru_cache(maxsize=4096)
def arrange(count: int, edges: Edges, ports: tuple[int, ...] = ()) -> Grid:
    """Returns the grid of `count` boxes; each is below the boxes from which edges lead to it."""
    if count == 0:
        return Grid((), (), ())
    slots = _Slots(count, _find_rows(count, edges))
    for source, target in edges:
        slots.add_edge(source, target, is_port=source in ports or target in ports)
    columns = straighten(*slots.order(), slots.links)
    turns = tuple(tuple(columns[turn] for turn in turns) for turns in slots.turns)
    return Grid(tuple(slots.rows[:count]), tuple(columns[:count]), turns)


@dataclass
class _Slots:
    """The rows of boxes, then those of the bends of edges: every link leads from one row to the next."""

    count: int
    rows: list[int]
    links: list[Link] = field(default_factory=list)
    turns: list[range] = field(default_factory=list)

    def add_edge(self, source: int, target: int, is_port: bool) -> None:
        first = len(self.rows)
        self.rows += range(self.rows[source] + 1, self.rows[target])
        self.turns.append(range(first, len(self.rows)))
        end = _PORT if is_port else _END if self.turns[-1] else _SHORT
        for above, below in pairwise([source, *self.turns[-1], target]):
            inner = above >= self.count and below >= self.count
            self.links.append(Link(above, below, _LONG if inner else end))

    def order(self) -> tuple[list[float], list[list[int]]]:
        """Returns initial columns, and the points of each row from left to right."""
        igraph: Any = importlib.import_module("igraph")
        # Bends are vertices too: igraph can insert them itself, but mixes them up if a graph has several components.
        graph = igraph.Graph(len(self.rows), [(link.above, link.below) for link in self.links], directed=True)
        columns = [x for x, _ in graph.layout_sugiyama(layers=self.rows, maxiter=_CROSSING_ROUNDS)]
        rows: list[list[int]] = [[] for _ in range(max(self.rows) + 1)]
        for point, row in enumerate(self.rows):
            rows[row].append(point)
        return columns, [sorted(row, key=columns.__getitem__) for row in rows]


def _find_rows(count: int, edges: Edges) -> list[int]:
    """Returns each box's row: as high as its sources permit, then closer to its readers if that shortens more edges."""
    sources: list[list[int]] = [[] for _ in range(count)]
    readers: list[list[int]] = [[] for _ in range(count)]
    for source, reader in edges:
        assert source < reader, (source, reader)
        sources[reader].append(source)
        readers[source].append(reader)
    rows = [0] * count
    for number in range(count):
        rows[number] = max((rows[s] + 1 for s in sources[number]), default=0)
    for number in reversed(range(count)):
        if readers[number] and len(readers[number]) > len(sources[number]):
            rows[number] = min(rows[r] for r in readers[number]) - 1
    used = {row: number for number, row in enumerate(sorted(set(rows)))}
    return [used[row] for row in rows]
