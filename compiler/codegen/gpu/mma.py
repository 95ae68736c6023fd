"""The products of tensor cores: a warp multiplies fragments of 16 rows and 8 columns.

A fragment has 32 bytes of depth. Its registers are those of `ldmatrix`; see `fragments`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....dialect.lazy_dataclass import dataclass
from .nest import Nest
from .text import Text

DEPTH_BYTES = 32


@dataclass(frozen=True, slots=True)
class Product:
    """An instruction: the end of its intrinsic's name, the dtype of sums, and the type of its input registers."""

    name: str
    sums: str = "f32"
    register: str = "i32"


def _integers(signs: tuple[bool, bool]) -> Product:
    first, second = ("s8" if signed else "u8" for signed in signs)
    return Product(f"m16n8k32.row.col.{first}" + (f".{second}" if first != second else ""), "i32")


_FLOATS = {
    "f16": Product("m16n8k16.row.col.f32.f32", register="vector<2xf16>"),
    "bf16": Product("m16n8k16.row.col.bf16"),
}

TF32 = Product("m16n8k8.row.col.tf32")


def product_of(nest: Nest, *, tf32: bool) -> Product | None:
    """Returns the instruction that computes the products of a nest, and their sums, or None. Those of f32 may be
    `tf32`."""
    if not nest.is_product or len({operand.element for operand in nest.inputs}) != 1:
        return None
    if not all(operand.is_zero_outside for operand in nest.inputs):
        return None
    element = nest.inputs[0].element
    found = _integers(nest.signs) if element == "i8" else TF32 if element == "f32" and tf32 else _FLOATS.get(element)
    return found if found is not None and found.sums == nest.results[0].element else None


def float_product(element: str) -> Product:
    """Returns the instruction for f16 or bf16."""
    return _FLOATS[element]


def multiply(text: Text, product: Product, a: Sequence[str], b: Sequence[str], c: Sequence[str]) -> list[str]:
    """Returns c + a b, whose operands are the registers of `ldmatrix`."""
    result = f"!llvm.struct<({', '.join([product.sums] * 4)})>"
    given = [as_register(text, product, each) for each in (*a, *b)]
    types = ", ".join([product.register] * 6 + [product.sums] * 4)
    name = f"llvm.nvvm.mma.{product.name}"
    made = text.let(f'llvm.call_intrinsic "{name}"({", ".join([*given, *c])}) : ({types}) -> {result}')
    return [text.let(f"llvm.extractvalue {made}[{n}] : {result}") for n in range(4)]


def round_word(text: Text, word: str) -> str:
    """Returns a number of f32, rounded to tf32: the nearest one, the greater of two."""
    number = text.let(f"arith.bitcast {word} : i32 to f32")
    return text.let(f'llvm.call_intrinsic "llvm.nvvm.f2tf32.rna"({number}) : (f32) -> i32')


def as_register(text: Text, product: Product, word: str) -> str:
    return word if product.register == "i32" else text.let(f"llvm.bitcast {word} : i32 to {product.register}")
