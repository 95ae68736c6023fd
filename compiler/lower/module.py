"""A module as kernels and calls of them: every node (or fused group) becomes one kernel, and equal ones are one."""

from __future__ import annotations

from ...dialect.graph import Module
from ..artifact.spec import c_identifier
from .function import FunctionLowering, Shared
from .lowered import Lowered, LoweredFunction, LoweredKernel, LoweredWeight
from .tied import find_tied

__all__ = ["Lowered", "LoweredFunction", "LoweredKernel", "LoweredWeight", "lower_module"]


def lower_module(module: Module, *, pack: bool = False, debug: bool = False) -> Lowered:
    """Every function of the module as calls of kernels; `pack` lets weights be stored as contractions read them. With
    `debug`, kernels have names for people, and are shared only where they come from the same lines."""
    lowered = _lower(module, Shared(module, pack, debug))
    tied = find_tied(module, lowered.weights)
    # How a contraction stores a weight is known once it is lowered: what reads rows of it is lowered again.
    return _lower(module, Shared(module, pack, debug, tied)) if tied else lowered


def _lower(module: Module, lowering: Shared) -> Lowered:
    functions: list[LoweredFunction] = []
    taken: set[str] = set()
    for function in module.functions:
        symbol = stem = f"nacre_entry_{c_identifier(function.name)}"
        while symbol in taken:
            symbol = f"{stem}_{len(taken)}"
        taken.add(symbol)
        functions.append(FunctionLowering(lowering, function).lower(symbol))
    kernels = tuple(
        LoweredKernel(symbol, kernel, tuple(dict.fromkeys(lowering.origins[symbol])))
        for symbol, kernel in lowering.kernels.values()
    )
    assert len({kernel.symbol for kernel in kernels}) == len(kernels), [kernel.symbol for kernel in kernels]
    return Lowered(module.name, kernels, tuple(functions), tuple(lowering.weights.values()))
