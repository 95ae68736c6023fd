"""Fitting: rounds weights so that the results of their products change least on samples.

A policy asks for it by `weights "..." to q4[block 32] fitted`. The model runs in f32 on the samples that `calibrate`
names; of what a weight is multiplied with only the sums of products of its columns are kept. Tables, and weights of
more than two axes, are rounded for the least error of their own. Which codes are chosen is told in `fit_codes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ...dialect.graph import Formula, Function, Module, Node, Parameter, Value
from ...dialect.types import F32, Array, DType
from ...passes.factors import Factor, Origins, factors_of, table_of
from ...passes.known_values import KnownValues
from ..accuracy.samples import MOST
from ..frontend import Elaborated
from ..parameters import open_parameters
from .apply import before_rounding, with_weights
from .fit_codes import Codes, fit_codes
from .fits import Fits
from .policy import Calibration, Policy
from .watch import Tell, not_finite, watch_values


@dataclass(frozen=True, slots=True)
class Fitted:
    """A weight, made of parameters by a formula, whose last axis is summed over; and the values that it is multiplied
    with, each with the axis that comes together with it."""

    formula: Formula
    dtype: DType
    activations: list[tuple[str, int]] = field(default_factory=list)


def find_fits(
    elaborated: Elaborated,
    policies: Mapping[str, Policy],
    *,
    most: int = MOST,
    tell: Tell = lambda text: None,
) -> Mapping[str, Fits]:
    """The codes that policies ask for, by the names of functions. Raises DiagnosticError where the samples do not fit,
    or where a value is not finite on them."""
    if not any(policy.is_fitted for policy in policies.values()):
        return {}
    prepared = replace(elaborated, module=before_rounding(elaborated.module))
    found: dict[str, Fits] = {}
    for name, policy in policies.items():
        weights = fitted_weights(prepared.module, name, policy)
        if weights:
            assert policy.calibration is not None, policy
            found[name] = fit_weights(prepared, name, weights, policy.calibration, most=most, tell=tell)
    return found


def fitted_weights(module: Module, name: str, policy: Policy) -> Sequence[Fitted]:
    """The weights of a function that a policy has fitted, in the order in which they are first read."""
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
        """The node that rounds a weight to blocks, from which it was restored."""
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
    elaborated: Elaborated,
    model: str,
    weights: Sequence[Fitted],
    calibration: Calibration,
    *,
    most: int = MOST,
    tell: Tell = lambda text: None,
) -> Fits:
    """The codes of weights of the function `model`, which has no loops."""
    watched = dict.fromkeys(one for weight in weights for one in weight.activations if _is_matrix(weight))
    moments = _moments(elaborated, model, list(watched), calibration, most, tell) if watched else {}
    reader = open_parameters(elaborated)
    made: dict[tuple[Formula, DType], Codes] = {}
    for number, weight in enumerate(weights, 1):
        tell(f"fitting weight {number} of {len(weights)}")
        array = reader(Parameter("fitted", weight.formula.result.type, formula=weight.formula))
        sums = [moments[one] for one in weight.activations] if _is_matrix(weight) else []
        rows = array.reshape(-1, array.shape[-1])
        made[weight.formula, weight.dtype] = fit_codes(rows, sum(sums[1:], sums[0]) if sums else None, weight.dtype)
    return made


def _is_matrix(weight: Fitted) -> bool:
    return weight.formula.result.type.rank == 2


def _moments(
    elaborated: Elaborated,
    model: str,
    watched: Sequence[tuple[str, int]],
    calibration: Calibration,
    most: int,
    tell: Tell,
) -> Mapping[tuple[str, int], Moments]:
    """The sums of x x^T over all samples, for vectors x along an axis of each value. In f64, so that the order of sums
    decides no code."""
    sums: dict[tuple[str, int], Moments] = {}
    axes: dict[str, list[int]] = {}
    for name, axis in watched:
        axes.setdefault(name, []).append(axis)

    def add(name: str, array: Array) -> None:
        for axis in axes[name]:
            rows = np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis]).astype(np.float64)
            made = rows.T @ rows
            sums[name, axis] = sums[name, axis] + made if (name, axis) in sums else made

    watch_values(elaborated, model, list(axes), calibration.path, add, most=most, tell=tell)
    for (name, _), moments in sums.items():
        if not np.isfinite(moments).all():
            raise not_finite(elaborated, model, name, calibration.path)
    return sums
