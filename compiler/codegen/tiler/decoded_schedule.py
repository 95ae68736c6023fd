"""The choice of a writer for block-quantized weights that are dequantized once for all rows of a work item."""

from __future__ import annotations

from dataclasses import replace

from .byte_pairs import MOST_WORDS, BytePairs, find_byte_pairs
from .decoded import DecodedTiles, share_rows_of, words_of
from .decoded_bytes import DecodedBytes
from .evaluate import Evaluator
from .order import Order
from .roles import Roles
from .single_row_bytes import MOST_VECTORS, SingleRowBytes, takes_single_rows
from .split_bytes import SplitBytes, takes_split_rows
from .structure import Op
from .tiles import rows_from, tile_work_items


def decoded_roles(evaluator: Evaluator, op: Op, roles: Roles) -> Roles | None:
    """Returns the roles with work items of many rows, where blocks are dequantized for all of them; else None. A single
    row takes all columns of a panel at once."""
    shared, scaled = share_rows_of(evaluator.stage, op, roles), op.scaled
    if shared is None or scaled is None or shared.block > 1 or _pairs_of(evaluator, op) is None:
        return shared
    is_wide = takes_single_rows(op, scaled) and shared.step <= MOST_VECTORS * evaluator.writer.lanes
    return replace(shared, width=shared.step) if is_wide else shared


def decoded_tiles(evaluator: Evaluator, op: Op, roles: Roles) -> DecodedTiles:
    """Returns the writer of blocks of rows."""
    pairs, scaled = _pairs_of(evaluator, op), op.scaled
    if pairs is None or scaled is None:
        return DecodedTiles(evaluator, op, roles)
    writer = DecodedBytes
    if roles.block == 1 and takes_single_rows(op, scaled):
        writer = SingleRowBytes
    elif roles.block > 1 and takes_split_rows(evaluator, op, scaled):
        writer = SplitBytes
    return writer(evaluator, op, roles, pairs)


def _pairs_of(evaluator: Evaluator, op: Op) -> BytePairs | None:
    scaled = op.scaled
    if scaled is None or scaled.quantized is None or words_of(op, scaled) > MOST_WORDS:
        return None
    return find_byte_pairs(evaluator.writer)


def write_decoded(evaluator: Evaluator, op: Op, order: Order, begin: str, end: str) -> None:
    stage, roles = evaluator.stage, order.roles

    # A panel is dequantized once for many rows, so it is prefetched a little ahead, independently of its next reader.
    tiles = decoded_tiles(evaluator, op, roles)
    with tile_work_items(evaluator, order, begin, end) as (iteration, row, column, _):
        rows = 1 if roles.row is None else rows_from(evaluator.writer, stage.sizes[roles.row], roles.block, row)
        tiles.cover_block(iteration, row, column, rows, evaluator.finish)
