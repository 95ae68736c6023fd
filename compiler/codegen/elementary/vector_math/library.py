"""The functions of one dtype: their names, their errors, and their text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from inspect import signature

from .....dialect.lazy_dataclass import dataclass
from ...isa import FUSED, supports
from .writer import Lanes, Writer


@dataclass(frozen=True, slots=True)
class Library:
    """element: the element type of operands and results.
    formulas: the available functions, named as the operations of MLIR's math dialect.
    ulp: the largest error of each function against the exact result, in units in the last place.
    requires_fused: whether the formulas need an instruction that computes x * y + z with one rounding.
    """

    element: str
    formulas: Mapping[str, Callable[..., Lanes]]
    ulp: Mapping[str, float]
    requires_fused: bool = False

    def runs_on(self, features: AbstractSet[str]) -> bool:
        """Returns whether a target with these features, by their LLVM names, can compute the functions."""
        return not self.requires_fused or supports("multiply-add", features)

    def symbol(self, name: str, lanes: int | None = None) -> str:
        return f"nacre_{name}_{'' if lanes is None else f'{lanes}x'}{self.element}"

    def _count_operands(self, name: str) -> int:
        return len(signature(self.formulas[name]).parameters)

    def declare(self, name: str, lanes: int | None = None) -> str:
        """Returns a declaration of the function, for a text that is parsed separately."""
        type = Writer(lanes, frozenset()).type_of(self.element)
        operands = ", ".join([type] * self._count_operands(name))
        return f"func.func private @{self.symbol(name, lanes)}({operands}) -> {type}\n"

    def emit(self, name: str, lanes: int | None = None, features: frozenset[str] = FUSED) -> str:
        """Returns the text of `@nacre_<name>_f32(f32) -> f32`, or of `@nacre_<name>_<lanes>xf32` on vectors of that
        many lanes; likewise for other element types.

        features: the target's features, by their LLVM names; `avx512f` makes exponentials of whole registers cheaper.
            Without `fma`, products of f32 are summed in f64 and rounded to f32, which is exact in all but the rarest
            cases.
        """
        writer = Writer(lanes, features)
        names = ("%x", "%y")[: self._count_operands(name)]
        result = self.formulas[name](*(Lanes(writer, operand, self.element) for operand in names))
        type = writer.type_of(self.element)
        arguments = ", ".join(f"{operand}: {type}" for operand in names)
        return (
            f"func.func private @{self.symbol(name, lanes)}({arguments}) -> {type} {{\n"
            f"{writer.body()}\n  return {result.name} : {type}\n}}\n"
        )
