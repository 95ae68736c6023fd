"""Chooses the schedule of a structured op on a GPU by its loops, maps and the way in which it combines values."""

from __future__ import annotations

from math import prod

from ....dialect.lazy_dataclass import dataclass
from ...lower.part_memory import LEAST_OF_BLOCK, LEAST_OF_DEPTH, LEAST_OF_THREAD
from ...lower.parts import PLAIN
from . import (
    channel_windows,
    column_parts,
    contraction,
    decoded_weights,
    few_rows,
    join_parts,
    plain,
    row_windows,
    rows,
    scan_parts,
    tensor_cores,
    tile_maps,
    transposes,
    vectors,
    warpgroups,
    wide_products,
)
from .mma import product_of
from .nest import Nest
from .plain_reasons import explain_plain


@dataclass(frozen=True, slots=True)
class Schedule:
    """The text of a schedule: the function of the threads, named as the nest, and the one that counts the blocks."""

    name: str
    threads: int
    text: str
    blocks_at_once: int = 0
    map_words: int = 0
    """The numbers of its tensor maps, which a function on the host returns."""
    persistent: bool = False
    """Whether blocks loop over tiles: the function that counts blocks counts tiles then."""
    reason: str = ""
    """The reason why the schedule is plain."""


def choose_schedule(nest: Nest, *, tf32: bool = False) -> Schedule | None:
    """Returns the schedule of an op; None where parallel iterations may write the same element."""
    if not nest.is_independent():
        return None
    if nest.parts is not None and scan_parts.is_scan(nest):
        name = "scan in parts" if nest.parts.joins else "totals of parts"
        return Schedule(name, plain.THREADS, scan_parts.write_scan(nest))
    if nest.parts is not None and nest.parts.joins:
        return Schedule("joined parts", plain.THREADS, join_parts.write_join(nest))
    product = product_of(nest, tf32=tf32)
    # Tensor cores read the matrix of a product of several rows with more copies in flight than threads alone.
    is_skinny = product is not None and few_rows.fits_few_rows(nest) and few_rows.fits_tensor_cores(nest)
    groups = contraction.find_groups(nest, 2) if is_skinny else contraction.find_groups(nest)
    if groups is not None and product is not None:
        text = tensor_cores.write_tensor_cores(nest, groups, product)
        name = "tensor cores" if nest.parts is None else "tensor cores in parts"
        return Schedule(name, tensor_cores.THREADS, text, tensor_cores.BLOCKS_AT_ONCE)
    if groups is not None and decoded_weights.fits_decoded(nest, groups):
        text = decoded_weights.write_decoded(nest, groups)
        return Schedule("decoded tensor cores", tensor_cores.THREADS, text, tensor_cores.BLOCKS_AT_ONCE)
    if groups is not None:
        wide = wide_products.fits_wide(nest, groups) and bool(wide_products.is_wide(nest, groups))
        return _contraction(nest, groups, wide=wide, always=True)
    if few_rows.fits_few_rows(nest):
        name = "few rows" if nest.parts is None else "few rows in parts"
        return Schedule(name, plain.THREADS, few_rows.write_few_rows(nest), few_rows.blocks_at_once(nest))
    width = row_windows.width_of_row(nest)
    if width > 1:
        text = channel_windows.write_windows(nest, width, row_windows.RowWindow)
        return Schedule("row windows", plain.THREADS, text, row_windows.blocks_at_once(nest))
    lanes = rows.lanes_of(nest)
    if lanes is not None:
        in_parts = "" if nest.parts is None else " in parts"
        return Schedule(rows.NAMES[lanes] + in_parts, plain.THREADS, rows.write_rows(nest, lanes))
    width = channel_windows.width_of_channels(nest)
    if width > 1 and nest.parts is None:
        text = channel_windows.write_windows(nest, width, channel_windows.Window)
        return Schedule("windows", plain.THREADS, text, plain.blocks_at_once(nest))
    if vectors.can_vectorize(nest) or vectors.is_linear(nest):
        return Schedule("vectors", plain.THREADS, vectors.write_vectors(nest), vectors.blocks_at_once(nest))
    crossing = transposes.find_crossing(nest)
    if crossing is not None:
        return Schedule("transpose", plain.THREADS, transposes.write_transpose(nest, crossing))
    if nest.parts is not None:
        return Schedule("columns in parts", plain.THREADS, column_parts.write_column_parts(nest))
    text, blocks = plain.write_plain(nest), plain.blocks_at_once(nest)
    return Schedule(PLAIN, plain.THREADS, text, blocks, reason=explain_plain(nest))


def _contraction(nest: Nest, groups: contraction.Groups, *, wide: bool, always: bool) -> Schedule:
    if wide:
        text, blocks = wide_products.write_wide(nest, groups), wide_products.BLOCKS_AT_ONCE
        return Schedule("wide contraction", contraction.THREADS, text, blocks)
    write = contraction.write_contraction if always else wide_products.write_others
    return Schedule("contraction", contraction.THREADS, write(nest, groups), contraction.blocks_at_once(nest, groups))


def choose_schedule_of_tiles(nest: Nest, *, wide: bool) -> Schedule:
    """Returns one of the two schedules of a contraction whose calls may have many wide tiles: that for these calls, or
    that for the others."""
    groups = contraction.find_groups(nest)
    assert groups is not None, nest.name
    return _contraction(nest, groups, wide=wide, always=False)


_FEW_CHANNELS = 64


def _fewest_results(nest: Nest) -> int:
    """Returns the number of results where each size of a call is 1."""
    return prod(nest.static_extent(loop) or 1 for loop in nest.outer)


def least_of_part(nest: Nest, *, tf32: bool = False) -> int:
    """Returns the fewest elements of a part of a reduction, if its schedule lets blocks share it where there is memory
    for the totals of parts; else 0."""
    if nest.static_count(nest.reductions) is not None:
        return 0
    if scan_parts.is_scan(nest):
        return LEAST_OF_THREAD
    (result, *others), (combine, *_) = nest.results, nest.combines
    if others or nest.has_loops or result.loops() & set(nest.reductions):
        return 0
    if rows.neutral_of(combine, result.element) is None:
        return 0
    product, is_few = product_of(nest, tf32=tf32), few_rows.fits_few_rows(nest)
    is_skinny = product is not None and is_few and few_rows.fits_tensor_cores(nest)
    if contraction.find_groups(nest, 2 if is_skinny else contraction.FEWEST) is not None:
        return 0 if product is None else LEAST_OF_DEPTH
    if is_few:
        return LEAST_OF_DEPTH
    if row_windows.width_of_row(nest) > 1:
        return 0
    lanes = rows.lanes_of(nest)
    if lanes is not None:
        return 0 if lanes == rows.WARP else LEAST_OF_BLOCK
    # Parts of the reductions of a few channels are faster than vectors of their elements.
    has_windows = channel_windows.width_of_channels(nest) > 1 and _fewest_results(nest) > _FEW_CHANNELS
    is_other = has_windows or vectors.can_vectorize(nest) or vectors.is_linear(nest)
    return 0 if is_other or transposes.find_crossing(nest) is not None else LEAST_OF_THREAD


def choose_schedule_of_warpgroups(nest: Nest, *, fitting: bool) -> Schedule:
    """Returns one of the two schedules of a contraction whose calls may fit products of warpgroups: that for `fitting`
    calls, or that for the others."""
    groups, product = contraction.find_groups(nest), product_of(nest, tf32=False)
    assert groups is not None and product is not None, nest.name
    if not fitting:
        text = tensor_cores.write_tensor_cores(nest, groups, product, beside_warpgroups=True)
        return Schedule("tensor cores", tensor_cores.THREADS, text, tensor_cores.BLOCKS_AT_ONCE)
    text = warpgroups.write_warpgroups(nest, groups)
    persistent = warpgroups.is_persistent(nest, groups)
    words = 2 * tile_maps.WORDS
    return Schedule("warpgroups", warpgroups.THREADS, text, warpgroups.BLOCKS_AT_ONCE, words, persistent)
