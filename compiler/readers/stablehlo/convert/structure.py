"""Tuples and tokens. The graph has no nodes for them."""

from __future__ import annotations

from collections.abc import Sequence

from ..writing.items import Item, ItemTuple, Token, describe
from ..writing.use import Converters, Use


def _get_tuple_element(use: Use) -> Sequence[Item]:
    (given,) = use.items
    if not isinstance(given, ItemTuple):
        use.fail(f"takes {describe(given)}, not a tuple", code="bad-mlir")
    return [given.items[use.integer("index")]]


CONVERTERS: Converters = {
    "tuple": lambda use: [ItemTuple(use.items)],
    "get_tuple_element": _get_tuple_element,
    "create_token": lambda use: [Token()],
    "after_all": lambda use: [Token()],
    "optimization_barrier": lambda use: use.items,
}
