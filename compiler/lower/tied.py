"""Tied weights: a contraction multiplies by a weight and a table look-up reads its rows, and one stored copy serves
both.

A language model's output product often reads its embedding table, transposed. The product needs panels of columns, the
look-up whole rows. Index arithmetic finds rows of panels:

    table[row, k] == packed[row // width, k, row % width]

A look-up reads few rows, so the distance of `width` between the elements of a row costs next to nothing.

Two contractions of one weight may also choose different packings: one multiplies bytes and reads groups of steps, the
other one multiplies in bf16. Where `reads_groups` of `packing.py` holds, the latter reads the groups too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ...dialect.dims import static_size
from ...dialect.graph import Constant, Module, Parameter
from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import TensorType
from .lowered import LoweredWeight
from .packing import Packing


@dataclass(frozen=True, slots=True)
class Stored:
    """A packed weight by its origin: the packing of the parameter itself, not of a view or a transpose."""

    source: Parameter
    packing: Packing


class Tied:
    """Finds the parameter that a transpose or a view reads. `module` has the definitions of folded parameters."""

    def __init__(self, module: Module) -> None:
        self._by_formula = {p.formula: p for p in module.parameters if p.formula is not None}

    def stored(self, source: Parameter | Constant, packing: Packing, seen: TensorType) -> Stored | None:
        """Returns the packed parameter; None where the weight is not a parameter with permuted axes, or with axes of
        size 1 added."""
        if isinstance(source, Constant):
            return None
        kept = _without_ones(packing, source.type, seen)
        if kept is None:
            return None
        base, order = self._origin(source)
        axes = Packing(
            tuple(order[axis] for axis in kept.batch),
            tuple(order[axis] for axis in kept.summed),
            order[kept.lane],
            kept.width,
            kept.group,
        )
        return Stored(base, axes)

    def _origin(self, source: Parameter) -> tuple[Parameter, tuple[int, ...]]:
        """Returns the parameter that `source` transposes, and for each axis of `source` the axis of this parameter."""
        same = source, tuple(range(source.type.rank))
        formula = source.formula
        if formula is None or formula.body[-1].op != "transpose":
            return same
        *before, last = formula.body
        axes, (inner,) = last.attribute("axes"), last.inputs
        assert isinstance(axes, tuple), last
        order = tuple(static_size(axis) % len(axes) for axis in axes)
        if len(before) == 1 and formula.parameters:
            return formula.parameters[0], order
        base = self._by_formula.get(replace(formula, body=tuple(before), result=inner))
        return same if base is None else (base, order)


def _without_ones(packing: Packing, type: TensorType, seen: TensorType) -> Packing | None:
    """Converts a packing of a tensor seen with additional axes of size 1 to a packing of the tensor."""
    if seen == type:
        return packing
    kept = [axis for axis, size in enumerate(seen.shape) if size != 1]
    if tuple(seen.shape[axis] for axis in kept) != type.shape:
        return None
    if packing.lane not in kept or packing.summed[-1] not in kept:
        return None
    number = {axis: new for new, axis in enumerate(kept)}
    batch, summed = (tuple(number[axis] for axis in axes if axis in number) for axes in (packing.batch, packing.summed))
    return Packing(batch, summed, number[packing.lane], packing.width, packing.group)


def find_tied(module: Module, weights: Iterable[LoweredWeight]) -> Mapping[str, Packing]:
    """Returns the packing of each parameter, by its name, that is stored both unpacked and for a contraction, or for
    several contractions: the one with groups of steps, if there is one."""
    tied, packings = Tied(module), dict[str, list[Packing]]()
    weights = tuple(weights)
    plain = {w.source.name for w in weights if w.packing is None and isinstance(w.source, Parameter)}
    for weight in weights:
        stored = None if weight.packing is None else tied.stored(weight.source, weight.packing, weight.seen)
        if stored is not None:
            packings.setdefault(stored.source.name, []).append(stored.packing)
    grouped = {name: [p for p in found if p.group > 1] for name, found in packings.items()}
    shared = {name: found[0] for name, found in grouped.items() if len(found) == 1 < len(packings[name])}
    return shared | {name: found[0] for name, found in packings.items() if name in plain}
