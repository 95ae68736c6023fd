"""A module as kernels and entries: every node (or fused group) of a function becomes one kernel, equal ones once."""

from __future__ import annotations

from ...dialect.graph import Module
from ..artifact.spec import c_identifier
from .function import FunctionLowering, Shared
from .lowered import Lowered, LoweredEntry, LoweredKernel, LoweredWeight

__all__ = ["Lowered", "LoweredEntry", "LoweredKernel", "LoweredWeight", "lower_module"]


def lower_module(module: Module) -> Lowered:
    """Every function of the module as an entry."""
    lowering = Shared(module)
    entries: list[LoweredEntry] = []
    taken: set[str] = set()
    for function in module.functions:
        symbol = stem = f"nacre_entry_{c_identifier(function.name)}"
        while symbol in taken:
            symbol = f"{stem}_{len(taken)}"
        taken.add(symbol)
        entries.append(FunctionLowering(lowering, function).lower(symbol))
    kernels = tuple(
        LoweredKernel(name, kernel, tuple(dict.fromkeys(lowering.origins[name])))
        for name, kernel in lowering.kernels.values()
    )
    return Lowered(module.name, kernels, tuple(entries), tuple(lowering.weights.values()))
