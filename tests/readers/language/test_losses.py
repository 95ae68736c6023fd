"""The losses of the library against numpy, and their values and gradients at special values."""

from __future__ import annotations

import itertools
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.dialect.interpreter import IndexRangeError, Interpreter
from nacre.dialect.types import F32, F64, Array
from nacre.passes.autodiff.differentiate import with_gradients
from training_session import Session, read


def _model(expression: str, **arrays: Array) -> str:
    types = {"f": "f32", "i": "i64"}
    shapes = {n: f"{types[a.dtype.kind]}[{', '.join(map(str, a.shape))}]" for n, a in arrays.items()}
    return f"model m({', '.join(f'{n}: {t}' for n, t in shapes.items())}) -> f32 {{ return {expression} }}"


def loss_of(expression: str, **arrays: Array) -> float:
    return float(Session(read(_model(expression, **arrays)))("m", *arrays.values()))


def slopes(expression: str, **arrays: Array) -> tuple[float, list[Array]]:
    """The loss and the gradients of its float arguments, computed in f32 and, where that agrees, in f64."""
    wanted = [name for name, array in arrays.items() if array.dtype.kind == "f"]
    module = with_gradients(read(_model(expression, **arrays)), "m", wanted)
    narrow, wide = (
        Interpreter(module, lambda p: np.zeros(()), precision=precision).run("m", list(arrays.values()))
        for precision in (F32, F64)
    )
    for a, b in zip(narrow, wide, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.max(np.abs(b), initial=0, where=np.isfinite(b)))
    return float(wide[0]), list(wide[1:])


def test_losses() -> None:
    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((6, 4)), np.array([0, 3, 1, -100, 2, 2])
    logs = x - np.log(np.exp(x).sum(1, keepdims=True))
    rows = labels >= 0
    right = logs[rows, labels[rows]]
    assert loss_of("cross_entropy(x, labels)", x=x, labels=labels) == pytest.approx(-right.mean(), rel=1e-6)
    smooth = 0.9 * right + 0.1 * logs[rows].mean(1)
    found = loss_of("cross_entropy<smoothing=0.1>(x, labels)", x=x, labels=labels)
    assert found == pytest.approx(-smooth.mean(), rel=1e-6)
    target = rng.random((6, 4))
    sigmoid = 1 / (1 + np.exp(-x))
    expected = -(target * np.log(sigmoid) + (1 - target) * np.log(1 - sigmoid)).mean()
    assert loss_of("bce(x, y)", x=x, y=target) == pytest.approx(expected, rel=1e-6)
    target /= target.sum(1, keepdims=True)
    target[0, 0] = 0
    with np.errstate(all="ignore"):
        expected = np.where(target > 0, target * (np.log(target) - logs), 0).sum(1).mean()
    assert loss_of("kl(log_softmax(x), y)", x=x, y=target) == pytest.approx(expected, rel=1e-6)
    assert loss_of("mse(x, y)", x=x, y=target) == pytest.approx(((x - target) ** 2).mean(), rel=1e-6)


def test_focal_and_contrastive_losses() -> None:
    rng = np.random.default_rng(0)
    x, target = rng.standard_normal((6, 4)), rng.integers(0, 2, (6, 4)).astype(np.float64)
    p = 1 / (1 + np.exp(-x))
    right = np.where(target == 1, p, 1 - p)
    expected = (np.where(target == 1, 0.25, 0.75) * -np.log(right) * (1 - right) ** 2).mean()
    assert loss_of("focal(x, y)", x=x, y=target) == pytest.approx(expected, rel=1e-6)
    left, other = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (x, rng.standard_normal((6, 4))))
    scores = left @ other.T / 0.5
    own = [np.diag(s - np.log(np.exp(s).sum(1, keepdims=True))).mean() for s in (scores, scores.T)]
    found = loss_of("contrastive<temperature=0.5>(x, y)", x=x, y=3 * other)
    assert found == pytest.approx(-sum(own) / 2, rel=1e-6)


@pytest.mark.parametrize("blank", [0, 2])
def test_ctc_is_the_sum_over_all_paths(blank: int) -> None:
    rng = np.random.default_rng(0)
    logs = rng.standard_normal((4, 5, 3))
    logs -= np.log(np.exp(logs).sum(2, keepdims=True))
    first, second = [c for c in range(3) if c != blank]
    labels = np.array([[first, second], [first, first], [second, blank], [second, first], [first, blank]])
    lengths, counts = np.array([4, 4, 3, 2, 1]), np.array([2, 2, 1, 2, 0])
    expected = []
    for row in range(5):
        total = 0.0
        for path in itertools.product(range(3), repeat=int(lengths[row])):
            read = [c for n, c in enumerate(path) if c != blank and (n == 0 or path[n - 1] != c)]
            if read == list(labels[row, : counts[row]]):
                total += np.exp(sum(logs[t, row, c] for t, c in enumerate(path)))
        expected.append(-np.log(total) / max(1, counts[row]))
    call = f"ctc<blank={blank}>(logs, labels, lengths, counts)"
    found = loss_of(call, logs=logs, labels=labels, lengths=lengths, counts=counts)
    assert found == pytest.approx(np.mean(expected), rel=1e-9)


# --- special values ---


@pytest.mark.parametrize("wrong", [3, -1, -99])
def test_a_label_that_is_no_class_fails_the_call(wrong: int) -> None:
    x, labels = np.zeros((2, 3)), np.array([-100, wrong])
    for call in ("cross_entropy(x, labels)", "cross_entropy<smoothing=0.1, ignored=-100>(x, labels)"):
        with pytest.raises(IndexRangeError, match=f"index {wrong} is out of range for an axis of size 3 .element 1"):
            loss_of(call, x=x, labels=labels)
    text = 'language 1\nimport "library/losses.nacre"\n' + _model("cross_entropy(x, labels)", x=x, labels=labels)
    with pytest.raises(nacre.NacreError, match=f"losses.nacre.*index {wrong} is out of range for an axis of size 3"):
        nacre.compile(text, opt_level=0)(x.astype(np.float32), labels)


def test_ignored_labels() -> None:
    x, labels = np.random.default_rng(0).standard_normal((4, 3)), np.array([0, 2, 1, 1])
    one = x[labels != 1]
    expected = loss_of("cross_entropy(x, labels)", x=one, labels=np.array([0, 2]))
    assert loss_of("cross_entropy<ignored=1>(x, labels)", x=x, labels=labels) == pytest.approx(expected)
    loss, (gradient,) = slopes("cross_entropy(x, labels)", x=x, labels=np.full(4, -100))
    assert np.isnan(loss) and not gradient.any()


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_focal_losses_of_certain_answers(gamma: float) -> None:
    """The loss of a certain wrong answer is its score times its weight, and the slope is the weight."""
    x, target = np.array([[200.0, -200.0, 200.0, -200.0]]), np.array([[1.0, 0.0, 0.0, 1.0]])
    loss, (gradient, _) = slopes(f"focal<gamma={gamma}>(x, y)", x=x, y=target)
    assert loss == pytest.approx((0.75 + 0.25) * 200 / 4, rel=1e-6)
    np.testing.assert_allclose(gradient, [[0, 0, 0.75 / 4, -0.25 / 4]], rtol=1e-6, atol=1e-20)


def test_focal_losses_of_right_answers_keep_their_precision() -> None:
    """p = 1 / (1 + e^20): the loss is weight * p^2 * p, to the first order in p."""
    loss, (gradient, _) = slopes("focal(x, y)", x=np.array([20.0]), y=np.array([1.0]))
    assert loss == pytest.approx(0.25 * np.exp(-60), rel=1e-6) and gradient[0] == pytest.approx(-3 * loss, rel=1e-6)


def test_divergences_with_classes_of_probability_0() -> None:
    logs, target = np.array([[-np.inf, 0.0], [np.log(0.25), np.log(0.75)]]), np.array([[0.0, 1.0], [0.5, 0.5]])
    loss, gradients = slopes("kl(x, y)", x=logs, y=target)
    assert loss == pytest.approx(np.log([0.5 / 0.25, 0.5 / 0.75]).mean() / 2)
    np.testing.assert_allclose(gradients[0], -target / 2, rtol=1e-6)
    assert np.isfinite(gradients[1]).all()


def test_contrastive_losses_of_zero_rows() -> None:
    """A row of zeros is equally far from all others; other rows are as without it."""
    x, y = np.random.default_rng(0).standard_normal((2, 3, 4))
    x[1] = 0
    loss, gradients = slopes("contrastive<epsilon=0.001>(x, y)", x=x, y=y)
    norms = np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-3)
    scores = x / norms @ (y / np.linalg.norm(y, axis=1, keepdims=True)).T / 0.07
    own = [np.diag(s - np.log(np.exp(s).sum(1, keepdims=True))).mean() for s in (scores, scores.T)]
    assert loss == pytest.approx(-sum(own) / 2)
    assert all(np.isfinite(g).all() for g in gradients)
    assert all(np.isfinite(g).all() for g in slopes("contrastive(x, y)", x=0 * x, y=0 * y)[1])


def _ctc(logs: Array, labels: Any, lengths: Any, counts: Any) -> tuple[float, Array]:
    integers = (np.asarray(a, np.int64) for a in (labels, lengths, counts))
    given = dict(zip(("labels", "lengths", "counts"), integers, strict=True))
    loss, (gradient,) = slopes("ctc(logs, labels, lengths, counts)", logs=logs, **given)
    return loss, gradient


def test_ctc_without_labels_or_steps() -> None:
    logs = np.log(np.random.default_rng(0).dirichlet(np.ones(3), (4, 2)))
    loss, gradient = _ctc(logs, np.zeros((2, 0)), [4, 2], [0, 0])
    assert loss == pytest.approx(-(logs[:, 0, 0].sum() + logs[:2, 1, 0].sum()) / 2)
    assert gradient[..., 0].tolist() == [[-0.5, -0.5], [-0.5, -0.5], [-0.5, 0], [-0.5, 0]]
    assert not gradient[..., 1:].any()
    # No steps give no labels, with certainty.
    loss, gradient = _ctc(logs, [[1], [2]], [0, 1], [0, 1])
    assert loss == pytest.approx(-logs[0, 1, 2] / 2) and not gradient[:, 0].any()


def test_ctc_ignores_what_is_after_the_labels() -> None:
    logs = np.log(np.random.default_rng(0).dirichlet(np.ones(3), (4, 2)))
    exact = _ctc(logs, [[1, 2], [2, 1]], [4, 3], [2, 1])
    other = _ctc(logs, [[1, 2], [2, -100]], [4, 3], [2, 1])
    assert exact[0] == other[0] and np.array_equal(exact[1], other[1])


def test_ctc_of_too_few_steps_is_infinite_without_a_gradient() -> None:
    logs = np.log(np.random.default_rng(0).dirichlet(np.ones(3), (2, 2)))
    loss, gradient = _ctc(logs, [[1, 1], [1, 2]], [2, 2], [2, 2])
    assert loss == np.inf and not gradient[:, 0].any() and gradient[:, 1].any()


@pytest.mark.parametrize(
    ("labels", "lengths", "counts", "words"),
    [
        ([[1, 3]], [4], [2], "index 3 is out of range"),
        ([[1, 2]], [5], [2], "length 5"),
        ([[1, 2]], [4], [3], "length 3"),
    ],
)
def test_ctc_of_wrong_operands(labels: Any, lengths: Any, counts: Any, words: str) -> None:
    with pytest.raises(IndexRangeError, match=f"{words}.* for an axis of size"):
        _ctc(np.zeros((4, 1, 3)), labels, lengths, counts)
