"""Vectors of elements that are a few apart, or in reverse: contiguous loads and shuffles, where a gather is slow.

No load leaves the range from the first to the last wanted element. Four lanes two apart, for example, are elements 0,
2, 4 and 6 of memory: one load takes elements 0 to 3, another one elements 3 to 6. Under a mask, each load reads only
the elements of its lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

APART = (2, 3, 4)
STEPS = (*APART, -1)
"""The supported distances of neighbouring lanes."""

Let = Callable[[str], str]
"""A function that names an expression."""


def load_strided(
    let: Let, load: Callable[[int, str | None], str], step: int, lanes: int, element: str, mask: str | None, none: str
) -> str:
    """Returns the vector of `lanes` elements that are `step` apart. `load(offset, mask)` loads a whole vector of
    neighbours at an offset from the first lane; `none` is a mask without lanes."""
    vector, masks = f"vector<{lanes}x{element}>", f"vector<{lanes}xi1>"

    def shuffle(left: str, right: str, picks: Sequence[int], type: str) -> str:
        return let(f"vector.shuffle {left}, {right} {list(picks)} : {type}, {type}")

    if step == -1:
        backward = range(lanes - 1, -1, -1)
        turned = None if mask is None else shuffle(mask, mask, backward, masks)
        loaded = load(1 - lanes, turned)
        return shuffle(loaded, loaded, backward, vector)
    result, position = "", dict[int, int]()
    for first, group in _groups(step, lanes):
        own = {lane: step * lane - first for lane in group}
        wanted = None
        if mask is not None:
            lane_of = {element: lane for lane, element in own.items()}
            wanted = shuffle(mask, none, [lane_of.get(element, lanes) for element in range(lanes)], masks)
        loaded = load(first, wanted)
        if not position:
            result, position = loaded, own
            continue
        position |= {lane: lanes + element for lane, element in own.items()}
        result = shuffle(result, loaded, [position.get(lane, 0) for lane in range(lanes)], vector)
        position = {lane: lane for lane in position}
    return result


def _groups(step: int, lanes: int) -> Iterator[tuple[int, range]]:
    """Yields the offset of each load, and the lanes that it holds."""
    last, begin = (step - 1) * (lanes - 1), 0
    while begin < lanes:
        first = min(step * begin, last)
        end = min(lanes, (first + lanes - 1) // step + 1)
        yield first, range(begin, end)
        begin = end
