"""Lowers a module to kernels and calls of them: every node (or fused group) becomes one kernel, and equal kernels are
merged.
"""

from __future__ import annotations

from ...dialect.graph import Module, State
from ..artifact.spec import c_identifier
from ..targets.vector_unit import PanelSizes
from .function import FunctionLowering, Shared
from .lowered import Lowered, LoweredFunction, LoweredKernel, LoweredWeight, static_bytes
from .state_values import LoweredState
from .tied import find_tied

__all__ = ["Lowered", "LoweredFunction", "LoweredKernel", "LoweredWeight", "lower_module"]


def lower_module(
    module: Module, *, pack: PanelSizes | None = None, debug: bool = False, for_device: bool = False
) -> Lowered:
    """Lowers every function of the module to calls of kernels; `pack` permits packed weights, in panels of these sizes.
    With `debug`, kernels have human-readable names, and are shared only where they come from the same lines.
    Kernels `for_device` read transposed tensors where they are, and have memory for the parts of long reductions."""
    lowered = _lower(module, Shared(module, pack, debug, for_device=for_device))
    tied = find_tied(module, lowered.weights)
    # The packing of a weight is known after its contraction is lowered; its row look-ups are then lowered again.
    return _lower(module, Shared(module, pack, debug, tied, for_device)) if tied else lowered


def _lower(module: Module, lowering: Shared) -> Lowered:
    functions: list[LoweredFunction] = []
    taken: set[str] = set()
    for function in module.functions:
        symbol = stem = f"nacre_entry_{c_identifier(function.name)}"
        while symbol in taken:
            symbol = f"{stem}_{len(taken)}"
        taken.add(symbol)
        functions.append(FunctionLowering(lowering, function).lower(symbol))
    states = tuple(_lower_state(state, module, lowering) for state in module.states)
    kernels = tuple(
        LoweredKernel(symbol, kernel, tuple(dict.fromkeys(lowering.origins[symbol])))
        for symbol, kernel in lowering.kernels.values()
    )
    assert len({kernel.symbol for kernel in kernels}) == len(kernels), [kernel.symbol for kernel in kernels]
    return Lowered(module.name, kernels, tuple(functions), tuple(lowering.weights.values()), states)


def _lower_state(state: State, module: Module, lowering: Shared) -> LoweredState:
    if state.initial is None:
        return LoweredState(state.name, state.type, None, 0)
    initial = module.parameter_index[state.initial]
    weight = lowering.weight(initial, None, initial.type)
    return LoweredState(state.name, state.type, weight.offset, static_bytes(initial.type))
