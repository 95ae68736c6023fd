"""Leaves that are linear models of the features, as the tables of `linear_tree_sum`.

The value of a leaf is `constant + coefficient[0] * feature[0] + ...`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ....dialect.lazy_dataclass import dataclass
from .ensemble import Ensemble
from .tree import Numbers, tree_error


@dataclass(frozen=True, slots=True)
class Models:
    """The linear models of the leaves of one tree: a constant for each leaf, and its features and coefficients."""

    constants: Numbers
    features: Sequence[Numbers]
    coefficients: Sequence[Numbers]


@dataclass(frozen=True, slots=True)
class Linear:
    """The operands of `linear_tree_sum` between the leaves and the initial sums, by name."""

    tables: Mapping[str, Numbers]


def join_models(ensemble: Ensemble, models: Sequence[Models | None], groups: Sequence[int], features: int) -> Linear:
    """Returns the tables of all leaves of an ensemble; `models` are in the order of the trees. In a tree without
    models, the leaves have constant values. The stored value of a leaf is used where a feature of its model is
    missing."""
    values = ensemble.tables["values"][:, 0]
    terms = max((len(f) for model in models if model is not None for f in model.features), default=0)
    constants = values.copy()
    indices = np.full((len(values), terms), -1, np.int32)
    coefficients = np.zeros((len(values), terms))
    seen = [0] * len(ensemble.counts)
    for number, (model, group) in enumerate(zip(models, groups, strict=True)):
        first = int(ensemble.first_leaves[group, seen[group]])
        seen[group] += 1
        if model is None:
            continue
        constants[first : first + len(model.constants)] = model.constants
        for leaf, (own, weights) in enumerate(zip(model.features, model.coefficients, strict=True)):
            wrong = own[(own < 0) | (own >= features)]
            if len(wrong):
                message = f"the linear model of leaf {leaf} refers to feature {wrong[0]} of {features}"
                raise tree_error(message, number)
            indices[first + leaf, : len(own)], coefficients[first + leaf, : len(own)] = own, weights
    return Linear({"constants": constants, "fallbacks": values, "features": indices, "coefficients": coefficients})
