"""Applies precision policies: the f32 graph becomes a graph that rounds where a policy requires it.

The resulting graph defines the semantics of the quantized model. The interpreter runs it, every level compiles it, and
later stages do not use policies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ...dialect import types as dtypes
from ...dialect.graph import Function, Module, Node, Parameter
from ...passes.analysis.factors import Origins, factors_of
from ...passes.analysis.joins import find_joins
from ...passes.fold.fold_batch_norm import FoldBatchNorm
from ...passes.manager import Pass, PassManager
from ...passes.pass_list import parse_pipeline
from ...passes.quantization.narrow_contractions import NarrowContractions
from ...passes.quantization.quantize_activations import QuantizeActivations
from ...passes.quantization.quantize_weights import QuantizeWeights
from ..model.policy import F32, Policy, Subject
from .fits import Fits, with_fits
from .ranges import Ranges

_BEFORE = "unroll-repeat,decompose{having=attention}"
"""Loops are unrolled since layers may have different rules; attention is decomposed to expose its products."""


_NO_RANGES: Mapping[str, Ranges] = MappingProxyType({})
_NO_FITS: Mapping[str, Fits] = MappingProxyType({})


def without_loops(module: Module) -> Module:
    """Returns the graph to which policies are applied."""
    return PassManager(parse_pipeline(_BEFORE)).run(module)


def before_rounding(module: Module) -> Module:
    """Returns the graph whose values are observed on samples: without loops, with batch norms folded into weights."""
    return PassManager([FoldBatchNorm()]).run(without_loops(module))


def static_values(module: Module, function: Function, policy: Policy) -> tuple[str, ...]:
    """Returns the values whose ranges a policy needs, in the graph to which its first rule is applied."""
    definitions: dict[str, Node] = {}
    origins = Origins(definitions, module.parameter_index)
    found: dict[str, None] = {}
    joins = find_joins(function, module.parameter_index)

    def is_static(node: Node, weight: str) -> bool:
        return policy.scheme("activations", node.op, (node.scope, weight)).scale == "static"

    for node in function.body:
        factors = factors_of(node, origins)
        weight = next((factor.parameter for factor in factors if factor.parameter is not None), None)
        if weight is not None and is_static(node, weight):
            found |= {f.value.name: None for f in factors if f.parameter is None and f.value.type.dtype is dtypes.F32}
        definitions.update((value.name, node) for value in node.outputs)
        for join in (joins[value.name] for value in node.outputs if value.name in joins):
            if is_static(join.convolution, join.weight):
                found |= {node.inputs[number].name: None for number in join.others}
    return tuple(found)


def passes_of(policy: Policy, ranges: Sequence[str] = ()) -> tuple[Pass, ...]:
    """Returns the passes that apply a policy to a graph without loops; `ranges` are those of static values, as
    `Ranges.texts`."""
    activations = _quantizers(policy, "activations", ranges)
    return (FoldBatchNorm(), *_quantizers(policy, "weights"), *activations, NarrowContractions())


def _quantizers(policy: Policy, subject: Subject, ranges: Sequence[str] = ()) -> list[Pass]:
    rules = [rule for rule in policy.rules if rule.subject in (None, subject)]
    made: list[Pass] = []
    for number, rule in enumerate(rules):
        if rule.scheme == F32:
            continue
        # Later rules override this one: the layers that they match are excluded.
        only, but = (str(rule.selector),), tuple(str(later.selector) for later in rules[number + 1 :])
        if subject == "weights":
            made.append(QuantizeWeights(rule.scheme.dtype, only, but))
        elif rule.scheme.scale != "static":
            made.append(QuantizeActivations(rule.scheme.dtype, only=only, but=but))
        elif ranges:
            made.append(QuantizeActivations(rule.scheme.dtype, tuple(ranges), only, but))
    return made


def with_weights(module: Module, policy: Policy) -> Module:
    """Returns a graph before rounding in which only the weights are rounded as a policy requires."""
    return PassManager(_quantizers(policy, "weights")).run(module)


def quantized(
    module: Module,
    policies: Mapping[str, Policy],
    ranges: Mapping[str, Ranges] = _NO_RANGES,
    fits: Mapping[str, Fits] = _NO_FITS,
) -> Module:
    """Returns the module after its policies, which are keyed by function name, as are the ranges of static values and
    the quantized values of fitted weights; other functions are unchanged."""
    if not any(policy.rules for policy in policies.values()):
        return module
    module = without_loops(module)
    parameters: dict[str, Parameter] = {}
    functions = []
    for function in module.functions:
        alone = replace(module, functions=(function,))
        if function.name in policies:
            seen = ranges.get(function.name)
            alone = PassManager(passes_of(policies[function.name], () if seen is None else seen.texts)).run(alone)
            alone = with_fits(alone, fits.get(function.name, {}))
        parameters |= alone.parameter_index
        functions.append(alone.functions[0])
    return replace(module, parameters=tuple(parameters.values()), functions=tuple(functions))
