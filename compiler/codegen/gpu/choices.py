"""Launches among which a call chooses: some have blocks, and the others have none.

    rows one after another       short or many: one launch for all operations        otherwise: one for each operation
    a product with a matrix      one row: the schedule that reads the matrix once    otherwise: tiles
    a product on Hopper          tensors that have maps: warpgroups                  otherwise: warps
    a reduction of any length    short: a launch computes the results                otherwise: parts, and their totals
    a product of f32             many blocks of 128 x 128 results: wide tiles        otherwise: smaller ones

The first two are chosen by functions on the host, which take the operands of an operation and the number of blocks. The
schedules of the others count no blocks by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..structured.operations import GENERIC
from . import joined_rows, one_row, wide_products
from .bodies import describe_nest, is_fill
from .contraction import find_groups
from .groups import Group
from .schedules import least_of_part
from .warpgroups import fits_warpgroups


def split_reduction(computing: Sequence[Any], group: Group, elements: Sequence[str], *, tf32: bool) -> list[Group]:
    """Returns the launches of a group: two if blocks share a reduction in some calls, since there is memory for totals.
    `elements` are the types of these memories."""
    if group.attention or group.rows or group.padded or group.on_warpgroups is not None or group.in_one_row is not None:
        return [group]
    main = computing[group.members[-1 - group.has_epilogue]] if group.members else None
    if main is None or main.name != GENERIC or is_fill(main) or len(group.members) < 2:
        return [group]
    nest = describe_nest(main, "", [True])
    if nest.results[0].element not in elements or not least_of_part(nest, tf32=tf32):
        return [group]
    shared = replace(group, parts=elements.index(nest.results[0].element))
    return [shared, replace(shared, joins=True)]


def split_calls(computing: Sequence[Any], group: Group, *, has_warpgroups: bool, tf32: bool) -> list[Group]:
    """Returns the launches of a group: several where some calls have one row of a product, fit products of warpgroups,
    or have many wide tiles."""
    members = group.members[: len(group.members) - group.has_epilogue]
    if group.attention or group.rows or len(members) != 2 or computing[members[-1]].name != GENERIC:
        return [group]
    nest = describe_nest(computing[members[-1]], "", [True])
    if not nest.is_independent():
        return [group]
    parts, own = [group], find_groups(nest)
    if has_warpgroups and fits_warpgroups(nest, own):
        parts = [replace(group, on_warpgroups=flag) for flag in (True, False)]
    can_be_wide = not tf32 and not group.padded and own is not None and wide_products.fits_wide(nest, own)
    if can_be_wide and own is not None and wide_products.is_wide(nest, own) is None:
        parts = [replace(group, in_wide_tiles=flag) for flag in (True, False)]
    if not group.padded and one_row.fits_one_row(nest, own):
        several = [replace(part, chosen_by=members[-1], in_one_row=False) for part in parts]
        parts = [replace(group, chosen_by=members[-1], in_one_row=True), *several]
    return parts


def write_choices(computing: Sequence[Any], groups: Sequence[Group], symbol: str) -> Iterator[str]:
    """Yields the texts of the functions by which calls choose launches."""
    for group in groups:
        # The launches of a choice share its functions; the first of them is joined, or for one row.
        if group.chosen_by is None or not (group.rows or group.in_one_row):
            continue
        nest, name = describe_nest(computing[group.chosen_by], "", [True]), name_choice(symbol, group)
        if group.rows:
            yield joined_rows.write_choice(nest, name)
        else:
            own = find_groups(nest)
            assert own is not None, name
            yield one_row.write_choice(nest, own.rows, name)


def name_choice(symbol: str, group: Group) -> str:
    """Returns the begin of the names of the functions by which a call chooses launches; empty if none does."""
    return "" if group.chosen_by is None else f"{symbol}_rows{group.chosen_by}"


def name_count(symbol: str, group: Group) -> str:
    """Returns the name of the function that counts the blocks which a launch has in a call."""
    if group.in_one_row is not None:
        kind = one_row.ONE if group.in_one_row else one_row.SEVERAL
    else:
        kind = joined_rows.JOINED if group.rows else joined_rows.SEPARATE
    return name_choice(symbol, group) + kind
