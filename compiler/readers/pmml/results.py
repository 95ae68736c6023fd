"""The result of a model: a number for each row, or the probabilities of classes and the index of the chosen one.

NaN is the result of a row without a prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....dialect.types import F64, I64
from ..writing.graph_writer import GraphWriter
from ..writing.tensors import Tensor, known
from .fields import Field
from .markup import Element


@dataclass(frozen=True, slots=True)
class Result:
    """Numbers f[B]; or, for classes, their indices in `classes` as f64[B], and their probabilities f64[B, C]."""

    value: Tensor
    probabilities: Tensor | None = None
    classes: tuple[str, ...] = ()


def of_probabilities(g: GraphWriter, probabilities: Tensor, classes: tuple[str, ...]) -> Result:
    """Returns the class of the greatest probability, the first of equal ones."""
    first = g.gather(probabilities, known(np.int64(0)), axis=1, mode="clamp")
    chosen = g.cast(g.argmax(probabilities, axis=1), dtype=F64)
    return Result(g.where(g.isnan(first), known(np.nan, F64), chosen), probabilities, classes)


def labels_of(g: GraphWriter, result: Result, target: Field | None) -> Tensor:
    """Returns the classes as their numbers: values of a target of numbers, else their indices."""
    if target is None or not target.is_numeric:
        return result.value
    numbers = np.asarray([target.code(text, target.element) for text in result.classes], np.float64)
    is_nan = g.isnan(result.value)
    position = g.cast(g.where(is_nan, known(0.0, F64), result.value), dtype=I64)
    return g.where(is_nan, result.value, g.gather(known(numbers), position, axis=0, mode="clamp"))


def choose_first(g: GraphWriter, guarded: Sequence[tuple[Tensor, Result]]) -> Result:
    """Returns the result of the first model whose condition holds; NaN if there is none."""
    value: Tensor = known(np.nan, F64)
    probabilities: Tensor | None = None if guarded[0][1].probabilities is None else known(np.nan, F64)
    for holds, result in reversed(guarded):
        value = g.where(holds, _wide(g, result.value), value)
        if probabilities is not None and result.probabilities is not None:
            shown = g.unsqueeze(holds, axes=(1,)) if holds.rank else holds
            probabilities = g.where(shown, result.probabilities, probabilities)
    return Result(value, probabilities, guarded[0][1].classes)


def _wide(g: GraphWriter, x: Tensor) -> Tensor:
    return x if x.dtype == F64 else g.cast(x, dtype=F64)


def apply_targets(g: GraphWriter, model: Element, result: Result) -> Result:
    """Clamps, scales and rounds the numbers of a regression, as its `Targets` say."""
    targets = model.first("Targets")
    target = targets.first("Target") if targets is not None else None
    if target is None or result.probabilities is not None:
        return result
    x = result.value
    if "min" in target.attributes:
        x = g.maximum(x, g.like(target.number("min"), x))
    if "max" in target.attributes:
        x = g.minimum(x, g.like(target.number("max"), x))
    factor, constant = target.number("rescaleFactor", 1.0), target.number("rescaleConstant", 0.0)
    x = x if factor == 1.0 else g.multiply(x, g.like(factor, x))
    x = x if constant == 0.0 else g.add(x, g.like(constant, x))
    rounding = target.choice("castInteger", "", "round", "ceiling", "floor")
    if rounding == "round":
        # A half is rounded up.
        x = g.floor(g.add(x, g.like(0.5, x)))
    elif rounding:
        x = (g.floor if rounding == "floor" else g.ceil)(x)
    return Result(x)
