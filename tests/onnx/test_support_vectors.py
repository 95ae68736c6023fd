"""SVMClassifier of ai.onnx.ml beside ONNX Runtime: pairs of classes, votes, probabilities, and linear models.

Labels are equal. Scores agree within the rounding of f32 sums in another order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.types import Array
from onnx_ml_models import BOTH, FEATURES, compare, model_of, ours

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
POSTS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")


def machine(rng: np.random.Generator, classes: int, kernel: str, *, probabilities: bool) -> dict[str, Any]:
    """Returns the attributes of a classifier; a class of several has no support vectors."""
    counts = rng.integers(1, 4, classes)
    counts[-1] *= classes == 2
    total, pairs = int(counts.sum()), classes * (classes - 1) // 2
    made = {
        "classlabels_ints": rng.permutation(classes).tolist(),
        "vectors_per_class": counts.tolist(),
        "support_vectors": rng.normal(size=total * FEATURES).tolist(),
        "coefficients": rng.normal(size=(classes - 1) * total).tolist(),
        "rho": rng.normal(size=pairs).tolist(),
        "kernel_type": kernel,
        "kernel_params": [0.5, 0.25, 3.0],
    }
    if probabilities:
        made |= {"prob_a": (-rng.random(pairs) - 0.5).tolist(), "prob_b": rng.normal(size=pairs).tolist()}
    return made


def some_rows(rng: np.random.Generator, kind: type = np.float32) -> Array:
    rows = rng.normal(size=(25, FEATURES)) * 2
    rows[3] = 0
    return np.round(rows).astype(kind) if np.dtype(kind).kind == "i" else rows.astype(kind)


@pytest.mark.parametrize("probabilities", [False, True], ids=["decisions", "probabilities"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_classifiers(kernel: str, probabilities: bool) -> None:
    for seed, classes in enumerate((2, 3, 4, 7)):
        rng = np.random.default_rng(seed)
        rows = [some_rows(rng)]
        made = machine(rng, classes, kernel, probabilities=probabilities)
        compare(model_of("SVMClassifier", rows, BOTH, version=1, **made), rows, atol=2e-5)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("post", POSTS)
def test_transforms(post: str, classes: int) -> None:
    rng = np.random.default_rng(classes)
    rows = [some_rows(rng)]
    for probabilities in (False, True):
        made = machine(rng, classes, "RBF", probabilities=probabilities)
        compare(model_of("SVMClassifier", rows, BOTH, version=1, post_transform=post, **made), rows, atol=2e-5)


@pytest.mark.parametrize("classes", [2, 3])
def test_equal_votes_and_decisions_of_zero(classes: int) -> None:
    rng = np.random.default_rng(0)
    rows = [some_rows(rng)]
    made = machine(rng, classes, "LINEAR", probabilities=False)
    made["coefficients"] = [0.0] * len(made["coefficients"])
    for rho in ([0.0] * len(made["rho"]), [1.0, -1.0, 1.0][: len(made["rho"])]):
        compare(model_of("SVMClassifier", rows, BOTH, version=1, **{**made, "rho": rho}), rows)


@pytest.mark.parametrize("kind", [np.float64, np.int64])
def test_other_dtypes_are_rounded_to_f32(kind: type) -> None:
    rng = np.random.default_rng(1)
    rows = [some_rows(rng, kind)]
    compare(model_of("SVMClassifier", rows, BOTH, 1, **machine(rng, 3, "RBF", probabilities=True)), rows, atol=2e-5)


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_linear_models(classes: int, positive: bool) -> None:
    rng = np.random.default_rng(classes)
    rows = [some_rows(rng)]
    weights = rng.normal(size=classes * FEATURES)
    made = {
        "classlabels_ints": [5, -1, 9][:classes],
        "coefficients": (abs(weights) if positive else weights).tolist(),
        "rho": [0.25],
        "kernel_type": "LINEAR",
        "kernel_params": [1.0, 0.0, 1.0],
    }
    for post in POSTS:
        compare(model_of("SVMClassifier", rows, BOTH, 1, post_transform=post, **made), rows, atol=2e-5)


def test_compiled_code() -> None:
    rng = np.random.default_rng(5)
    rows = [some_rows(rng)]
    made = machine(rng, 4, "RBF", probabilities=True)
    compare(model_of("SVMClassifier", rows, BOTH, version=1, **made), rows, compiled=True, atol=2e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"coefficients": [1.0]}, "has 1 numbers in `coefficients`"),
        ({"support_vectors": [1.0, 2.0]}, "has 2 numbers in `support_vectors`"),
        ({"rho": [1.0]}, "has 1 numbers in `rho`, expected 3"),
        ({"prob_a": [1.0]}, "has 1 numbers in `prob_a`, expected 3"),
        ({"vectors_per_class": [3, 2]}, "has 3 classes, and support vectors of 2"),
        ({"vectors_per_class": [3, -2, 1]}, "fewer than 0"),
        ({"classlabels_ints": [3]}, "has 1 classes"),
        ({"kernel_type": "CUBIC"}, "has the kernel `CUBIC`"),
    ],
)
def test_bad_attributes(change: dict[str, Any], message: str) -> None:
    rng = np.random.default_rng(2)
    rows: Sequence[Array] = [some_rows(rng)]
    made = machine(rng, 3, "RBF", probabilities=True)
    with pytest.raises(DiagnosticError) as caught:
        ours(model_of("SVMClassifier", rows, BOTH, version=1, **{**made, **change}), rows)
    assert message in str(caught.value)
