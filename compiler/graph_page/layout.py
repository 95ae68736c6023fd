"""The layered layout of one body: a row and a column for every box, and where edges turn.

Rows are whole numbers, columns are fractions of a box's place: two boxes in a row are at least 1 apart. How large boxes
are is not asked, so what is unfolded later changes nothing here. igraph finds the order in which rows cross least;
where boxes stand in that order is decided here, so that what follows each other stands in a straight line.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from .straight import Link, straighten
from .tree import Body

_CROSSING_ROUNDS = 60

# How much an edge wants to be straight: the only part of a short one, a part of a long one, the ends of a long one, and
# what leads from a port. They are so far apart that the lesser does not bend the greater.
_SHORT, _LONG, _END, _PORT = 1e3, 30.0, 1.0, 0.03

Edges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """By box: its row and column. By edge, in the order of the body's: its column in every row that it passes."""

    rows: tuple[int, ...]
    columns: tuple[float, ...]
    turns: tuple[tuple[float, ...], ...]


def check_layout_package() -> None:
    """Raises DiagnosticError where what finds layouts is not installed."""
    if find_spec("igraph") is None:
        raise DiagnosticError(
            [
                Diagnostic(
                    "missing-package", "a layout needs igraph", help="`pip install 'nacre[graph]'`, or -o FILE.dot"
                )
            ]
        )


def lay_out(body: Body) -> Grid:
    ports = tuple(number for number, item in enumerate(body.items) if item.is_port)
    return arrange(len(body.items), body.edges, ports)


@lru_cache(maxsize=4096)
def arrange(count: int, edges: Edges, ports: tuple[int, ...] = ()) -> Grid:
    """The grid of `count` boxes, each of which stands after those from which edges lead to it."""
    if count == 0:
        return Grid((), (), ())
    places = _Places(count, _find_rows(count, edges))
    for source, target in edges:
        places.add_edge(source, target, is_port=source in ports or target in ports)
    columns = straighten(*places.order(), places.links)
    turns = tuple(tuple(columns[turn] for turn in turns) for turns in places.turns)
    return Grid(tuple(places.rows[:count]), tuple(columns[:count]), turns)


@dataclass
class _Places:
    """The rows of boxes, then those of the turns of edges: every link leads from one row to the next."""

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
        """Columns to begin with, and the points of each row from left to right."""
        igraph: Any = importlib.import_module("igraph")
        # Turns are vertices too: igraph can find them itself, but mixes them up where a graph has several parts.
        graph = igraph.Graph(len(self.rows), [(link.above, link.below) for link in self.links], directed=True)
        columns = [x for x, _ in graph.layout_sugiyama(layers=self.rows, maxiter=_CROSSING_ROUNDS)]
        rows: list[list[int]] = [[] for _ in range(max(self.rows) + 1)]
        for point, row in enumerate(self.rows):
            rows[row].append(point)
        return columns, [sorted(row, key=columns.__getitem__) for row in rows]


def _find_rows(count: int, edges: Edges) -> list[int]:
    """Every box as high as what it reads lets it, then as near to its readers as makes edges shorter."""
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
