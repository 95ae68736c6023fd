"""Fitting: rounds weights so that the results of their products change least on samples.

A policy requests it by `weights "..." to q4[block 32] fitted`. The model runs in f32 on the samples that `calibrate`
names; only the second moments of the values that multiply a weight are kept. Tables, and weights of more than two axes,
are rounded for the least error of their own elements. `fit_codes` chooses the quantized values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import numpy as np
import numpy.typing as npt

from ...dialect.graph import Formula, Function, Module, Node, Parameter, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import F32, Array, DType
from ...passes.analysis.factors import Factor, Origins, factors_of, table_of
from ...passes.analysis.known_values import KnownValues
from ..model.parameters import open_parameters
from ..model.policy import Calibration, Policy
from ..model.samples import MOST
from ..model.source import SourceModel
from .apply import before_rounding, with_weights
from .fit_codes import Codes, fit_codes
from .fits import Fits
from .watch import Progress, not_finite, watch_values


@dataclass(frozen=True, slots=True)
class Fitted:
    """A weight, given as a formula of parameters, with its last axis contracted; and the values that multiply it, each
    with its contracted axis."""

    formula: Formula
    dtype: DType
    activations: list[tuple[str, int]] = field(default_factory=list)


def find_fits(
    source_model: SourceModel,
    policies: Mapping[str, Policy],
    *,
    most: int = MOST,
    report: Progress = lambda text: None,
) -> Mapping[str, Fits]:
    """Returns the quantized values that policies request, by function name. Raises DiagnosticError if the samples do
    not fit, or if a value is not finite on them."""
    if not any(policy.is_fitted for policy in policies.values()):
        return {}
    prepared = replace(source_model, module=before_rounding(source_model.module))
    found: dict[str, Fits] = {}
    for name, policy in policies.items():
        weights = fitted_weights(prepared.module, name, policy)
        if weights:
            assert policy.calibration is not None, policy
            found[name] = fit_weights(prepared, name, weights, policy.calibration, most=most, report=report)
    return found


def fitted_weights(module: Module, name: str, policy: Policy) -> Sequence[Fitted]:
    """Returns the weights of a function for which a policy requests fitting, in the order of their first use."""
    rounded = with_weights(replace(module, functions=(module.function(name),)), policy)
    return _Finder(rounded, rounded.function(name), policy).found()


class _Finder:
    def __init__(self, module: Module, function: Function, policy: Policy) -> None:
        self.function, self.policy = function, policy
        self.definitions: dict[str, Node] = {}
        self.origins = Origins(self.definitions, module.parameter_index)
        self.known = KnownValues(self.definitions, module.parameter_index)

    def found(self) -> Sequence[Fitted]:
        fitted: dict[tuple[Formula, DType], Fitted] = {}
        for node in self.function.body:
            table = table_of(node, self.origins)
            factors = factors_of(node, self.origins) if table is None else (table,)
            for weight in factors:
                made = self.made_of(node, weight)
                if made is not None:
                    one = fitted.setdefault(made, Fitted(*made))
                    others = [factor for factor in factors if factor is not weight]
                    one.activations.extend(_activation(other) for other in others if _is_watched(other))
            self.definitions.update((value.name, node) for value in node.outputs)
        return list(fitted.values())

    def made_of(self, node: Node, weight: Factor) -> tuple[Formula, DType] | None:
        if weight.parameter is None or self.origins.is_known(node):
            return None
        if self.policy.scheme("weights", node.op, (weight.parameter, node.scope)).scale != "fitted":
            return None
        rounding = self.rounding(weight.value)
        if rounding is None:
            return None
        return self.known.formula(rounding.inputs[0]), rounding.output.type.dtype

    def rounding(self, value: Value) -> Node | None:
        """Returns the node that rounds a weight to blocks, given the dequantized value."""
        node = self.definitions.get(value.name)
        while node is not None and node.op in ("matrix_transpose", "dequantize_blocks"):
            node = self.definitions.get(node.inputs[0].name)
        return node if node is not None and node.op == "quantize_blocks" else None


def _is_watched(factor: Factor) -> bool:
    return factor.parameter is None and factor.value.type.dtype is F32 and len(factor.axes) == 1


def _activation(factor: Factor) -> tuple[str, int]:
    return factor.value.name, factor.axes[0]


Moments = npt.NDArray[np.float64]


def fit_weights(
    source_model: SourceModel,
    model: str,
    weights: Sequence[Fitted],
    calibration: Calibration,
    *,
    most: int = MOST,
    report: Progress = lambda text: None,
) -> Fits:
    """Returns the quantized values of weights of the function `model`, which has no loops."""
    watched = dict.fromkeys(one for weight in weights for one in weight.activations if _is_matrix(weight))
    moments = _moments(source_model, model, list(watched), calibration, most, report) if watched else {}
    reader = open_parameters(source_model)
    made: dict[tuple[Formula, DType], Codes] = {}
    for number, weight in enumerate(weights, 1):
        report(f"fitting weight {number} of {len(weights)}")
        array = reader(Parameter("fitted", weight.formula.result.type, formula=weight.formula))
        sums = [moments[one] for one in weight.activations] if _is_matrix(weight) else []
        rows = array.reshape(-1, array.shape[-1])
        made[weight.formula, weight.dtype] = fit_codes(rows, sum(sums[1:], sums[0]) if sums else None, weight.dtype)
    return made


def _is_matrix(weight: Fitted) -> bool:
    return weight.formula.result.type.rank == 2


def _moments(
    source_model: SourceModel,
    model: str,
    watched: Sequence[tuple[str, int]],
    calibration: Calibration,
    most: int,
    report: Progress,
) -> Mapping[tuple[str, int], Moments]:
    """Returns the sums of x x^T over all samples, for vectors x along an axis of each value. The sums are in f64, so
    that the order of summation does not change a quantized value."""
    sums: dict[tuple[str, int], Moments] = {}
    axes: dict[str, list[int]] = {}
    for name, axis in watched:
        axes.setdefault(name, []).append(axis)

    def add(name: str, array: Array) -> None:
        for axis in axes[name]:
            rows = np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis]).astype(np.float64)
            made = rows.T @ rows
            sums[name, axis] = sums[name, axis] + made if (name, axis) in sums else made

    watch_values(source_model, model, list(axes), calibration.path, add, most=most, report=report)
    for (name, _), moments in sums.items():
        if not np.isfinite(moments).all():
            raise not_finite(source_model, model, name, calibration.path)
    return sums
