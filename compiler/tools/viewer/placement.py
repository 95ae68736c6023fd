"""Positions of boxes on a page, in pixels, for given unfolded boxes: the grid of a body, stretched to their sizes.

`page.js` implements the same functions in the browser for folding and unfolding. No two boxes overlap and no edge
crosses a box: the column interval around a box becomes as wide as the box, and the order of columns is preserved.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .layout import Grid, lay_out
from .tree import Body, Item

CHARACTER = 6.7
"""The width of a character of a line; titles are larger."""
TITLE_CHARACTER = 7.9
LINE_HEIGHT = 15
TITLE_HEIGHT = 18
PADDING = 10
HEADER = 30
MARGIN = 18
GAP = 26
ROW_GAP = 34
EDGE_ROOM = 14
"""The minimum distance between edges."""
RUN = 7
"""The length of an edge's straight end, so that its tip points down."""

Point = tuple[float, float]
Unfolded = Callable[[tuple[str, ...], Item], bool]
"""Whether the box at this path of keys is shown with its contents."""


@dataclass(frozen=True, slots=True)
class Box:
    """A box with its corner, relative to that of the enclosing body, and its contents if it is unfolded."""

    item: Item
    x: float
    y: float
    width: float
    height: float
    inside: Drawing | None = None


@dataclass(frozen=True, slots=True)
class Drawing:
    """A body on a page. The points of an edge form pairs: a straight line down, then a curve to the next pair."""

    boxes: tuple[Box, ...]
    edges: tuple[tuple[Point, ...], ...]
    width: float
    height: float


def folded_size(item: Item) -> tuple[int, int]:
    """Returns the width and height of a box that shows only its text."""
    if item.is_port:
        text = port_text(item)
        return round(len(text) * CHARACTER) + 2 * PADDING, LINE_HEIGHT + 8
    texts = [len(item.title) * TITLE_CHARACTER, *(len(t) * CHARACTER for t in (item.caption, *item.lines))]
    mark = 14 if item.body is not None else 0
    height = TITLE_HEIGHT + LINE_HEIGHT * (len(item.lines) + bool(item.caption)) + 2 * PADDING - 4
    return max(72, round(max(texts)) + mark + 2 * PADDING), height


def heading_width(item: Item) -> int:
    """Returns the width of the heading line of an unfolded box."""
    return round(len(heading(item)) * TITLE_CHARACTER) + 2 * PADDING


def heading(item: Item) -> str:
    return " ".join(filter(None, ("▾", item.caption, item.title)))


def port_text(item: Item) -> str:
    return " ".join(filter(None, (item.title, *item.lines)))


def draw(body: Body, unfolded: Unfolded, path: tuple[str, ...] = ()) -> Drawing:
    """Returns the body with its boxes at their positions."""
    insides = [
        draw(item.body, unfolded, (*path, item.key))
        if item.body is not None and unfolded((*path, item.key), item)
        else None
        for item in body.items
    ]
    sizes = [
        (max(inside.width, heading_width(item)), inside.height + HEADER) if inside is not None else folded_size(item)
        for item, inside in zip(body.items, insides, strict=True)
    ]
    return place(body, lay_out(body), sizes, insides)


def stretch(spans: Mapping[float, float]) -> Callable[[float], float]:
    """Returns a monotonic map from columns to pixels: the unit interval around each key gets its required width.

    For `{0: 100, 0.5: 20}`, the interval [-0.5, 0.5] becomes 100 pixels and [0.5, 1] becomes 10, so 1 maps to 110.
    """
    cuts = sorted({cut for centre in spans for cut in (centre - 0.5, centre + 0.5)})
    ends = [0.0]
    for low, high in pairwise(cuts):
        need = max((s for c, s in spans.items() if c - 0.5 <= low and high <= c + 0.5), default=0.0)
        ends.append(ends[-1] + need * (high - low))

    def position(x: float) -> float:
        number = min(max(bisect_right(cuts, x) - 1, 0), len(cuts) - 2)
        low, high = cuts[number], cuts[number + 1]
        return ends[number] + (x - low) / (high - low) * (ends[number + 1] - ends[number])

    return position


def place(body: Body, grid: Grid, sizes: Sequence[tuple[float, float]], insides: Sequence[Drawing | None]) -> Drawing:
    if not body.items:
        return Drawing((), (), 2.0 * MARGIN, 2.0 * MARGIN)
    needs: dict[float, float] = {}
    for column, (width, _) in zip(grid.columns, sizes, strict=True):
        needs[column] = max(needs.get(column, 0.0), width + GAP)
    for turn in (turn for turns in grid.turns for turn in turns):
        needs[turn] = max(needs.get(turn, 0.0), EDGE_ROOM)
    across = stretch(needs)
    left = GAP / 2 - MARGIN
    right = across(max(needs) + 0.5) - GAP / 2 + MARGIN
    # A box is centred in the interval of its column, so boxes in one column are aligned.
    centres = [across(column) - left for column in grid.columns]
    tops, heights = _bands(grid, sizes)
    boxes = []
    for item, row, centre, (width, height), inside in zip(body.items, grid.rows, centres, sizes, insides, strict=True):
        boxes.append(Box(item, centre - width / 2, tops[row] + (heights[row] - height) / 2, width, height, inside))
    edges = []
    for (source, target), turns in zip(body.edges, grid.turns, strict=True):
        first, last = boxes[source], boxes[target]
        row = grid.rows[source]
        points = [(centres[source], first.y + first.height), (centres[source], tops[row] + heights[row])]
        for number, turn in enumerate(turns, row + 1):
            points += [(across(turn) - left, tops[number]), (across(turn) - left, tops[number] + heights[number])]
        points += [(centres[target], tops[grid.rows[target]] - RUN), (centres[target], last.y)]
        edges.append(tuple(points))
    return Drawing(tuple(boxes), tuple(edges), right - left, tops[-1] + heights[-1] + MARGIN)


def _bands(grid: Grid, sizes: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Returns the top and the height of every row."""
    heights = [0.0] * (max(grid.rows) + 1)
    for row, (_, height) in zip(grid.rows, sizes, strict=True):
        heights[row] = max(heights[row], height)
    tops = [float(MARGIN)]
    for height in heights[:-1]:
        tops.append(tops[-1] + height + ROW_GAP)
    return tops, heights
