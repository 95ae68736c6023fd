"""The order of the tiles of a product: TOGETHER rows of tiles come first, column by column.

    3 rows and 4 columns of tiles, 2 rows together      0 2 4 6
                                                        1 3 5 7
                                                        8 9 10 11

Blocks that run at once have neighbouring numbers. They then read about as many rows as columns, and share most of what
they read in the L2 cache. Row by row, they would read all columns of a wide matrix: on an A100, 324 blocks of a product
with 16384 columns and a depth of 4096 would read 136 MB at once, which takes as long as their products, and 27 MB in
this order. The second cache holds 40 MB.
"""

from __future__ import annotations

from .text import Text

TOGETHER = 16


def find_tile(text: Text, number: str, rows: str, columns: str) -> tuple[str, str, str]:
    """Returns the batch, the row and the column of a tile, by its number and the rows and columns of tiles of a
    product."""
    whole = text.multiply(rows, columns)
    batch, number = (text.index(operation, number, whole) for operation in ("divui", "remui"))
    together = text.constant(TOGETHER)
    band = text.multiply(together, columns)
    first = text.multiply(text.index("divui", number, band), together)
    number = text.index("remui", number, band)
    height = text.index("minui", text.index("subi", rows, first), together)
    return batch, text.add(first, text.index("remui", number, height)), text.index("divui", number, height)
