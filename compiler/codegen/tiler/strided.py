"""Vectors of elements that are two apart, or in reverse: contiguous loads and a shuffle, where a gather is slow.

No load leaves the range from the first to the last wanted element. Four lanes two apart, for example, are elements 0,
2, 4 and 6 of memory: one load takes elements 0 to 3, another one elements 3 to 6. Under a mask, each load reads only
the elements of its lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

STEPS = (2, -1)
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
    assert step == 2 and lanes % 2 == 0, (step, lanes)
    half, low, high = lanes // 2, None, None
    if mask is not None:
        low = shuffle(mask, none, [lanes if n % 2 else n // 2 for n in range(lanes)], masks)
        high = shuffle(mask, none, [half + n // 2 if n % 2 else lanes for n in range(lanes)], masks)
    parts = load(0, low), load(lanes - 1, high)
    return shuffle(*parts, [2 * n if n < half else lanes + 2 * (n - half) + 1 for n in range(lanes)], vector)
