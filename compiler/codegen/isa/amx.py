"""AMX of x86: eight tile registers of up to 16 rows of 64 bytes, and the sums of products of two of them.

Tile registers are state of the thread: a configuration gives each of them its rows and bytes, and code that leaves a
function releases them. They are not values of LLVM, so these operations have effects instead of results.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from ....dialect.lazy_dataclass import dataclass

ROWS = 16
"""The most rows of a tile."""
WORDS = 16
"""The words of 32 bits in a row."""
SUMS, LEFT, RIGHT = (0, 1, 2), 3, (4, 5, 6)
"""The registers of the sums, of the rows that they share, and of the columns."""


@dataclass(frozen=True, slots=True)
class TileProduct:
    """`sums[m, n] += left[m, k] * right[k, n]` over words of several elements.

    sums: the element type of the sums.
    widenings: how the elements of the left and of the right tile are widened, as in `dots.py`.
    needs: the features of the CPU, in LLVM's names.
    intrinsic: the name of the LLVM intrinsic.
    """

    sums: str
    widenings: tuple[str, str]
    needs: frozenset[str]
    intrinsic: str


def _of_bytes(left: str, right: str, name: str) -> TileProduct:
    widenings = f"arith.ext{left}i", f"arith.ext{right}i"
    return TileProduct("i32", widenings, frozenset({"amx-tile", "amx-int8"}), f"llvm.x86.tdpb{name}d")


PRODUCTS: tuple[TileProduct, ...] = (
    *(_of_bytes(left, right, left + right) for left in "su" for right in "su"),
    # Pairs of products are added in f32; denormal numbers count as zero.
    TileProduct("f32", ("arith.extf", "arith.extf"), frozenset({"amx-tile", "amx-bf16"}), "llvm.x86.tdpbf16ps"),
)


def find_product(sums: str, widenings: tuple[str, str], features: AbstractSet[str]) -> TileProduct | None:
    """Returns the instruction for products of elements that are widened in these ways, if the CPU has one."""
    return next((p for p in PRODUCTS if (p.sums, p.widenings) == (sums, widenings) and p.needs <= features), None)


ROWS_WORD = 12
"""The word of a configuration with the rows of the tiles of sums and of the left one."""
EVERY_TILE = 0x01010101
"""A row in each of the four tiles that a word describes."""
CONFIGURATION = (1, 0, 0, 0, *(0x00400040,) * 4, 0, 0, 0, 0, 0, ROWS * EVERY_TILE, 0, 0)
"""The words of a configuration, without `ROWS_WORD`: 64 bytes in each row, and `ROWS` rows in the right tiles."""


def configure(pointer: str) -> str:
    return f'llvm.call_intrinsic "llvm.x86.ldtilecfg"({pointer}) : (!llvm.ptr) -> ()'


def release() -> str:
    return 'llvm.call_intrinsic "llvm.x86.tilerelease"() : () -> ()'


def load(tile: str, pointer: str, stride: str) -> str:
    """Returns the operation that loads a tile; `stride` is the distance of rows in bytes."""
    return f'llvm.call_intrinsic "llvm.x86.tileloadd64"({tile}, {pointer}, {stride}) : (i8, !llvm.ptr, i64) -> ()'


def store(tile: str, pointer: str, stride: str) -> str:
    return f'llvm.call_intrinsic "llvm.x86.tilestored64"({tile}, {pointer}, {stride}) : (i8, !llvm.ptr, i64) -> ()'


def multiply(product: TileProduct, sums: str, left: str, right: str) -> str:
    return f'llvm.call_intrinsic "{product.intrinsic}"({sums}, {left}, {right}) : (i8, i8, i8) -> ()'
