"""A model in the precision that its policies ask for: the f32 graph becomes one that rounds where a policy says so.

That graph is what the quantised model means. The interpreter runs it, every level compiles it, and nothing behind this
step knows of policies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...dialect.graph import Module, Parameter
from ...passes.fold_batch_norm import FoldBatchNorm
from ...passes.manager import Pass, PassManager
from ...passes.narrow_contractions import NarrowContractions
from ...passes.pipeline import parse_pipeline
from ...passes.quantize_activations import QuantizeActivations
from ...passes.quantize_weights import QuantizeWeights
from .policy import F32, Policy, Subject

_BEFORE = "unroll-repeat,decompose{having=attention}"
"""Layers of a loop may differ, and what is multiplied has to be seen."""


def without_loops(module: Module) -> Module:
    """The graph that policies are applied to."""
    return PassManager(parse_pipeline(_BEFORE)).run(module)


def passes_of(policy: Policy) -> tuple[Pass, ...]:
    """The passes that make of a graph without loops what a policy says."""
    return (FoldBatchNorm(), *_quantizers(policy, "weights"), *_quantizers(policy, "activations"), NarrowContractions())


def _quantizers(policy: Policy, subject: Subject) -> list[Pass]:
    rules = [rule for rule in policy.rules if rule.subject in (None, subject)]
    made: list[Pass] = []
    for number, rule in enumerate(rules):
        if rule.scheme == F32:
            continue
        # Later rules win: what they speak of is left to them.
        only, but = (str(rule.selector),), tuple(str(later.selector) for later in rules[number + 1 :])
        if subject == "weights":
            made.append(QuantizeWeights(rule.scheme.dtype, only, but))
        else:
            made.append(QuantizeActivations(rule.scheme.dtype, only=only, but=but))
    return made


def quantized(module: Module, policies: Mapping[str, Policy]) -> Module:
    """The graph after policies, by the names of functions; the others stay as they are."""
    if not any(policy.rules for policy in policies.values()):
        return module
    module = without_loops(module)
    parameters: dict[str, Parameter] = {}
    functions = []
    for function in module.functions:
        alone = replace(module, functions=(function,))
        if function.name in policies:
            alone = PassManager(passes_of(policies[function.name])).run(alone)
        parameters |= alone.parameter_index
        functions.append(alone.functions[0])
    return replace(module, parameters=tuple(parameters.values()), functions=tuple(functions))
