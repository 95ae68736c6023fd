"""Forests of scikit-learn add their trees in the order in which threads finish, so their last bits are not defined.

With `n_jobs=1`, trees are added in their order, and Nacre has the bits of the library. With more jobs, any order may
occur; a permutation of the trees stands for it here. The mean of `trees` leaves then differs by at most `trees` times
2^-52 times the mean of their magnitudes. Boosting and histogram boosting have one order.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.compiler.readers.sklearn.model import from_sklearn
from nacre.dialect.types import Array
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

TREES = 60
rng = np.random.default_rng(4)
X = rng.normal(size=(500, 6))
Y = X[:, 0] * X[:, 1] + rng.normal(size=500)
CLASSES = np.digitize(Y, [-0.5, 0.5])
FORESTS = {
    "predict": (RandomForestRegressor, ExtraTreesRegressor),
    "predict_proba": (RandomForestClassifier, ExtraTreesClassifier),
}
CASES = [(kind, method) for method, kinds in FORESTS.items() for kind in kinds]
pytestmark = pytest.mark.usefixtures("unchecked")  # the bits of the library are a stricter check


def fitted(kind: Any, method: str) -> Any:
    return kind(n_estimators=TREES, max_depth=7, random_state=0, n_jobs=1).fit(X, Y if method == "predict" else CLASSES)


def parts(forest: Any, method: str) -> Array:
    """Returns the results of the trees [trees, rows, ...]."""
    return np.stack([getattr(tree, method)(X) for tree in forest.estimators_])


@pytest.mark.parametrize(("kind", "method"), CASES)
def test_one_job_has_the_bits_of_the_library(kind: Any, method: str) -> None:
    forest = fitted(kind, method)
    entry = nacre.compile(from_sklearn(forest)).entries[method]
    for rows in (len(X), 1, 33):
        np.testing.assert_array_equal(entry(X[:rows]), getattr(forest, method)(X[:rows]))


@pytest.mark.parametrize(("kind", "method"), CASES)
def test_other_orders_differ_within_the_bound(kind: Any, method: str) -> None:
    forest = fitted(kind, method)
    first, order = getattr(forest, method)(X), np.random.default_rng(0)
    bound = TREES * 2.0**-52 * np.abs(parts(forest, method)).mean(0)
    differing = 0
    for _ in range(8):
        other = copy(forest)
        other.estimators_ = [forest.estimators_[i] for i in order.permutation(TREES)]
        gap = np.abs(getattr(other, method)(X) - first)
        assert (gap <= bound).all()
        differing += int((gap > 0).sum())
    assert differing > len(X), "the order of the trees changes the bits of many rows"
    other = copy(forest).set_params(n_jobs=2)
    assert (np.abs(getattr(other, method)(X) - first) <= bound).all()


@pytest.mark.parametrize(
    "estimator",
    [
        GradientBoostingRegressor(n_estimators=30, random_state=0),
        GradientBoostingClassifier(n_estimators=10, random_state=0),
        HistGradientBoostingRegressor(max_iter=30),
    ],
    ids=lambda e: type(e).__name__,
)
def test_boosting_has_the_bits_of_the_library(estimator: Any) -> None:
    method = "decision_function" if hasattr(estimator, "classes_") or "Classifier" in str(estimator) else "predict"
    estimator.fit(X, Y if method == "predict" else CLASSES)
    entry = nacre.compile(from_sklearn(estimator)).entries[method]
    for rows in (len(X), 1, 33):
        np.testing.assert_array_equal(entry(X[:rows]), getattr(estimator, method)(X[:rows]))
