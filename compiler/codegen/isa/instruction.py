"""The record of an instruction: its LLVM intrinsic, and its semantics as numpy code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ....dialect.lazy_dataclass import dataclass
from ....dialect.types import COMPUTED

Meaning = Callable[..., npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Instruction:
    """operation: the name by which the tiler looks it up.
    lanes: the 32-bit lanes of the vectors.
    needs: the features of the CPU, in LLVM's names.
    intrinsic: the name of the LLVM intrinsic.
    operands: the element type of each vector operand; a type of n bits has 32 / n elements in a lane.
    result: the element type of the result.
    trailing: further operands that are constants, each as `value : type`; `zero` is a vector like the result.
    meaning: computes the result of operands of these types.
    """

    operation: str
    lanes: int
    needs: frozenset[str]
    intrinsic: str
    operands: tuple[str, ...]
    result: str
    meaning: Meaning
    trailing: tuple[str, ...] = ()

    def vector_type(self, element: str) -> str:
        """Returns the MLIR type of a vector register of this element type."""
        return f"vector<{self.lanes * 32 // WIDTHS[element]}x{element}>"

    def call(self, operands: Sequence[str], trailing: Sequence[str] = ()) -> str:
        """Returns the operation that calls the intrinsic. `trailing` are the values of the constant operands, in
        order."""
        types = [
            *map(self.vector_type, self.operands),
            *(self.vector_type(self.result) if t == ZERO else t.split(" : ")[1] for t in self.trailing),
        ]
        values = ", ".join((*operands, *trailing))
        signature = f"({', '.join(types)}) -> {self.vector_type(self.result)}"
        return f'llvm.call_intrinsic "{self.intrinsic}"({values}) : {signature}'


ZERO = "zero"
WIDTHS = {dtype.mlir: dtype.bits for dtype in COMPUTED}


def nearest(x: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
    """Returns the nearest integers, halves to even. x: f32 below 2**31 in magnitude."""
    return np.rint(x).astype(np.int32)


def multiply_pairs(a: npt.NDArray[np.int16], b: npt.NDArray[np.int16]) -> npt.NDArray[np.int32]:
    """Returns the sums of neighbouring products."""
    products = a.astype(np.int32) * b.astype(np.int32)
    sums: npt.NDArray[np.int32] = products[0::2] + products[1::2]
    return sums


def multiply_bytes(a: npt.NDArray[np.int8], b: npt.NDArray[np.int8]) -> npt.NDArray[np.int16]:
    """Returns the sums of two neighbouring products of bytes, unsigned by signed, saturated to 16 bits."""
    products = a.view(np.uint8).astype(np.int32) * b.view(np.int8).astype(np.int32)
    sums: npt.NDArray[np.int16] = np.clip(products[0::2] + products[1::2], -(1 << 15), (1 << 15) - 1).astype(np.int16)
    return sums


def dot_bytes(total: npt.NDArray[np.int32], a: npt.NDArray[np.uint8], b: npt.NDArray[np.int8]) -> npt.NDArray[np.int32]:
    """Returns the sums of four neighbouring products of bytes, unsigned by signed, added to `total`."""
    products = a.view(np.uint8).astype(np.int32) * b.view(np.int8).astype(np.int32)
    sums: npt.NDArray[np.int32] = products.reshape(-1, 4).sum(axis=1, dtype=np.int32)
    return total + sums


def shuffle_bytes(table: npt.NDArray[np.int8], index: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Returns for each byte that of its group of sixteen in the table at the index, or 0 for a negative index. The
    instructions differ for indices above 15."""
    groups, positions = table.reshape(-1, 16), index.reshape(-1, 16)
    found = np.take_along_axis(groups, (positions & 15).astype(np.intp), axis=1)
    return np.where(positions < 0, np.int8(0), found).reshape(-1)
