"""Pairwise distances and kernels, and the estimators based on them: support vector machines, Gaussian processes, kernel
approximations.

Distances are sums of squared differences, which are exact for close rows, unlike the expansion into products.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .linear import affine, outlier_labels
from .writing import Methods, Numbers, Tensor, Writer, as_index, unsupported


def squared_distances(w: Writer, x: Tensor, points: Any) -> Tensor:
    """Returns [B, N] for x [B, F] and points [N, F]."""
    return (x.row() - w.const(np.asarray(points, np.float64))).square().sum(axis=2)


def distances(w: Writer, e: Any, metric: Any, x: Tensor, points: Any, options: Any = None) -> Tensor:
    points = np.asarray(points, np.float64)
    order = (options or {}).get("p", getattr(e, "p", 2))
    if metric == "minkowski" and order not in (1, 2):
        power = (x.row() - w.const(points)).abs().power(float(order)).sum(axis=2)
        return power.power(1.0 / order)
    if metric in ("euclidean", "l2") or (metric == "minkowski" and order == 2):
        return squared_distances(w, x, points).sqrt()
    if metric == "sqeuclidean":
        return squared_distances(w, x, points)
    if metric in ("manhattan", "l1", "cityblock", "minkowski"):
        return (x.row() - w.const(points)).abs().sum(axis=2)
    if metric in ("chebyshev", "infinity"):
        return (x.row() - w.const(points)).abs().max(axis=2)
    if metric == "cosine":
        return 1.0 - unit(w, x) @ w.const((points / _norms(points)).T)
    raise unsupported(e, f"the metric `{metric}` is not supported")


def _norms(points: Numbers) -> Numbers:
    norms = np.sqrt(np.sum(points**2, 1, keepdims=True))
    return np.where(norms == 0, 1.0, norms)


def unit(w: Writer, x: Tensor) -> Tensor:
    norms = x.square().sum(axis=1, keepdims=True).sqrt()
    return x / norms.same(0.0).where(w.lift(1.0, norms), norms)


def kernel(
    w: Writer, e: Any, name: Any, x: Tensor, points: Any, *, gamma: Any = None, degree: Any = None, coef0: Any = None
) -> Tensor:
    points = np.asarray(points, np.float64)
    factor: float = (1.0 if name == "chi2" else 1.0 / points.shape[1]) if gamma is None else float(gamma)
    degree, start = 3 if degree is None else degree, 1.0 if coef0 is None else float(coef0)
    if name in ("linear", "poly", "polynomial", "sigmoid"):
        product = x @ w.const(points.T)
        if name == "linear":
            return product
        inner = product * factor + start
        if name == "sigmoid":
            return inner.tanh()
        return whole_power(inner, degree)
    if name == "rbf":
        return (squared_distances(w, x, points) * -factor).exp()
    if name == "laplacian":
        return ((x.row() - w.const(points)).abs().sum(axis=2) * -factor).exp()
    if name == "cosine":
        return unit(w, x) @ w.const((points / _norms(points)).T)
    if name in ("chi2", "additive_chi2"):
        gap, total = x.row() - w.const(points), x.row() + w.const(points)
        none = total.same(0.0)
        found = none.where(w.lift(0.0, total), gap.square() / none.where(w.lift(1.0, total), total)).sum(axis=2)
        return -found if name == "additive_chi2" else (found * -factor).exp()
    raise unsupported(e, f"the kernel `{name}` is not supported")


def whole_power(x: Tensor, degree: Any) -> Tensor:
    if float(degree) != int(degree) or not 1 <= degree <= 8:
        return x.power(float(degree))
    found = x
    for _ in range(int(degree) - 1):
        found = found * x
    return found


def kernel_of(w: Writer, e: Any, x: Tensor, points: Any, gamma: Any = None) -> Tensor:
    """Returns the kernel matrix of an estimator with the parameters `kernel`, `gamma`, `degree` and `coef0`."""
    if callable(e.kernel):
        raise unsupported(e, "its kernel is a function")
    if e.kernel == "precomputed":
        return x
    gamma = gamma if gamma is not None else e.gamma
    return kernel(w, e, e.kernel, x, points, gamma=gamma, degree=e.degree, coef0=e.coef0)


# Support vectors


def _support_kernel(w: Writer, e: Any, x: Tensor) -> Tensor:
    return kernel_of(w, e, x, e.support_vectors_, e._gamma)


def predict_support(w: Writer, e: Any, x: Tensor) -> Tensor:
    return affine(w, np.asarray(e._dual_coef_)[0], np.asarray(e._intercept_)[0], _support_kernel(w, e, x))


def pair_decisions(w: Writer, e: Any, x: Tensor) -> Tensor:
    """Returns the decision values of all pairs of classes; a positive value is for the first class of the pair."""
    kernels, dual = _support_kernel(w, e, x), np.asarray(e._dual_coef_)
    ends = np.concatenate([[0], np.cumsum(e._n_support)])
    count = len(e.classes_)
    weights = []
    for i in range(count):
        for j in range(i + 1, count):
            column = np.zeros(dual.shape[1])
            column[ends[i] : ends[i + 1]] = dual[j - 1, ends[i] : ends[i + 1]]
            column[ends[j] : ends[j + 1]] = dual[i, ends[j] : ends[j + 1]]
            weights.append(column)
    return kernels @ w.const(np.stack(weights, 1)) + np.asarray(e._intercept_)


def _pairs(count: int) -> tuple[Numbers, Numbers]:
    """Returns matrices [pairs, classes] that mark the first and the second class of each pair."""
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    first, second = np.zeros((len(pairs), count)), np.zeros((len(pairs), count))
    for row, (i, j) in enumerate(pairs):
        first[row, i] = second[row, j] = 1.0
    return first, second


def votes(w: Writer, wins: Tensor, count: int) -> Tensor:
    """Returns the number of votes for each class; `wins` [B, pairs] is 1 where the first class of a pair wins."""
    first, second = _pairs(count)
    return wins @ w.const(first) + (1.0 - wins) @ w.const(second)


def one_against_rest(w: Writer, wins: Tensor, confidences: Tensor, count: int) -> Tensor:
    """Returns votes plus bounded sums of confidences; `wins` is 1 where the second class of a pair wins."""
    first, second = _pairs(count)
    sums = confidences @ w.const(second - first)
    return votes(w, 1.0 - wins, count) + sums / ((sums.abs() + 1.0) * 3.0)


def decide_support(w: Writer, e: Any, x: Tensor) -> Tensor:
    found = pair_decisions(w, e, x)
    if len(e.classes_) == 2:
        return -found[0]
    if e.decision_function_shape == "ovo":
        return found
    return one_against_rest(w, (found < 0.0).floats(), -found, len(e.classes_))


def predict_support_class(w: Writer, e: Any, x: Tensor) -> Tensor:
    if e.break_ties and len(e.classes_) > 2:
        return w.choose(e.classes_, decide_support(w, e, x))
    wins = (pair_decisions(w, e, x) > 0.0).floats()
    return w.choose(e.classes_, votes(w, wins, len(e.classes_)))


def decide_one_class(w: Writer, e: Any, x: Tensor) -> Tensor:
    return predict_support(w, e, x)


# Gaussian processes


def covariance(w: Writer, e: Any, k: Any, x: Tensor, points: Numbers) -> Tensor:
    """Returns a kernel object of `sklearn.gaussian_process.kernels` between rows and points."""
    kind = type(k).__name__
    if kind in ("Sum", "Product"):
        left, right = covariance(w, e, k.k1, x, points), covariance(w, e, k.k2, x, points)
        return left + right if kind == "Sum" else left * right
    if kind == "Exponentiation":
        return covariance(w, e, k.kernel, x, points).power(float(k.exponent))
    if kind == "ConstantKernel":
        return w.full(x, float(k.constant_value), len(points))
    if kind == "WhiteKernel":
        return w.full(x, 0.0, len(points))
    if kind == "DotProduct":
        return x @ w.const(points.T) + float(k.sigma_0) ** 2
    scale = np.asarray(k.length_scale, np.float64)
    length = float(scale.max())
    if kind == "RBF":
        return (squared_distances(w, x / scale, points / scale) * -0.5).exp()
    if kind == "RationalQuadratic":
        result: Tensor = (squared_distances(w, x, points) / (2 * float(k.alpha) * length**2) + 1.0).power(
            -float(k.alpha)
        )
        return result
    if kind == "ExpSineSquared":
        angle = (squared_distances(w, x, points).sqrt() * float(np.pi / k.periodicity)).sin() / length
        return (angle.square() * -2.0).exp()
    if kind == "Matern":
        d = squared_distances(w, x / scale, points / scale).sqrt()
        if k.nu == 0.5:
            return (-d).exp()
        if k.nu == 1.5:
            d = d * float(np.sqrt(3.0))
            return (d + 1.0) * (-d).exp()
        if k.nu == 2.5:
            d = d * float(np.sqrt(5.0))
            return (d + 1.0 + d.square() / 3.0) * (-d).exp()
        if k.nu == np.inf:
            return (d.square() * -0.5).exp()
    raise unsupported(e, f"the kernel `{kind}` is not supported")


def predict_process(w: Writer, e: Any, x: Tensor) -> Tensor:
    if not hasattr(e, "X_train_"):
        raise unsupported(e, "it is not fitted")
    alpha = np.asarray(e.alpha_, np.float64)
    mean = covariance(w, e, e.kernel_, x, np.asarray(e.X_train_, np.float64)) @ w.const(alpha.reshape(len(alpha), -1))
    mean = mean * np.asarray(e._y_train_std).reshape(-1) + np.asarray(e._y_train_mean).reshape(-1)
    return mean.reshape(shape=x.shape[:1]) if alpha.ndim == 1 or alpha.shape[1] == 1 else mean


_LAMBDAS = np.asarray([0.41, 0.4, 0.37, 0.44, 0.39])
_COEFFICIENTS = np.asarray([-1854.8214151, 3516.89893646, 221.29346712, 128.12323805, -2010.49422654])


def _binary_process(w: Writer, e: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the latent mean, and the probability of the second class."""
    points = np.asarray(e.X_train_, np.float64)
    k = covariance(w, e, e.kernel_, x, points)
    mean = (k @ w.const((e.y_train_ - e.pi_)[:, None])).reshape(shape=x.shape[:1])
    # Multiplication by the inverse of a triangular matrix solves the system.
    inverse = np.linalg.solve(np.asarray(e.L_), np.diag(np.asarray(e.W_sr_)))
    diagonal = np.asarray(e.kernel_.diag(points))
    if np.ptp(diagonal) != 0:
        raise unsupported(e, "its kernel is not stationary")
    variance = float(diagonal[0]) - (k @ w.const(inverse.T)).square().sum(axis=1)
    alpha = 1.0 / (variance * 2.0)
    total: Tensor | None = None
    for lam, weight in zip(_LAMBDAS, _COEFFICIENTS, strict=True):
        gamma = mean * float(lam)
        bound = (alpha + float(lam) ** 2) * 0.0 + float(lam)
        integral = (
            (np.pi / alpha).sqrt()
            * (gamma * (alpha / (alpha + bound.square())).sqrt()).erf()
            / ((variance * (2 * np.pi)).sqrt() * 2.0)
        )
        part = integral * float(weight)
        total = part if total is None else total + part
    assert total is not None, _LAMBDAS
    return mean, total + 0.5 * float(_COEFFICIENTS.sum())


def process_probabilities(w: Writer, e: Any, x: Tensor) -> Tensor:
    base = e.base_estimator_
    if e.n_classes_ == 2:
        _, positive = _binary_process(w, base, x)
        return w.stack([1.0 - positive, positive])
    if type(base).__name__ != "OneVsRestClassifier":
        raise unsupported(e, "pairs of classes have no probabilities")
    positive = w.stack([_binary_process(w, part, x)[1] for part in base.estimators_])
    return positive / positive.sum(axis=1, keepdims=True)


def predict_process_class(w: Writer, e: Any, x: Tensor) -> Tensor:
    base = e.base_estimator_
    if e.n_classes_ == 2:
        return w.labels(e.classes_, as_index(_binary_process(w, base, x)[0] > 0.0))
    if type(base).__name__ != "OneVsRestClassifier":
        raise unsupported(e, "pairs of classes are not supported")
    return w.choose(e.classes_, w.stack([_binary_process(w, part, x)[1] for part in base.estimators_]))


# Maps of kernels


def transform_nystroem(w: Writer, e: Any, x: Tensor) -> Tensor:
    if callable(e.kernel):
        raise unsupported(e, "its kernel is a function")
    k = kernel(w, e, e.kernel, x, e.components_, gamma=e.gamma, degree=e.degree, coef0=e.coef0)
    return k @ w.const(np.asarray(e.normalization_).T)


def transform_kernel_components(w: Writer, e: Any, x: Tensor) -> Tensor:
    k = kernel_of(w, e, x, e.X_fit_, getattr(e, "gamma_", None))
    centred = w.run(e._centerer, "transform", k)
    values = np.asarray(e.eigenvalues_)
    vectors = np.asarray(e.eigenvectors_)
    scaled = np.divide(vectors, np.sqrt(values), out=np.zeros_like(vectors), where=values > 0)
    return centred @ w.const(scaled)


def transform_cosines(w: Writer, e: Any, x: Tensor) -> Tensor:
    angle = x @ w.const(np.asarray(e.random_weights_)) + np.asarray(e.random_offset_)
    return angle.cos() * float(np.sqrt(2.0 / e.n_components))


def transform_skewed(w: Writer, e: Any, x: Tensor) -> Tensor:
    angle = (x + float(e.skewedness)).log() @ w.const(np.asarray(e.random_weights_)) + np.asarray(e.random_offset_)
    return angle.cos() * float(np.sqrt(2.0) / np.sqrt(e.n_components))


def transform_additive(w: Writer, e: Any, x: Tensor) -> Tensor:
    interval = e.sample_interval if e.sample_interval is not None else {1: 0.8, 2: 0.5, 3: 0.4}[e.sample_steps]
    positive = x > 0.0
    safe = positive.where(x, w.lift(1.0, x))
    zero = w.lift(0.0, x)
    log = safe.log() * interval
    parts = [(x * interval).sqrt()]
    for j in range(1, e.sample_steps):
        factor = (safe * (2 * interval / np.cosh(np.pi * j * interval))).sqrt()
        parts += [positive.where(factor * (log * j).cos(), zero), positive.where(factor * (log * j).sin(), zero)]
    return w.join(parts)


def predict_kernel_ridge(w: Writer, e: Any, x: Tensor) -> Tensor:
    dual = np.asarray(e.dual_coef_)
    k = kernel_of(w, e, x, e.X_fit_)
    return affine(w, dual if dual.ndim == 1 else dual.T, 0.0, k)


_SUPPORT_CLASSES: Methods = {"predict": predict_support_class, "decision_function": decide_support}
TABLE: dict[str, Methods] = {
    "SVC": _SUPPORT_CLASSES,
    "NuSVC": _SUPPORT_CLASSES,
    "SVR": {"predict": predict_support},
    "NuSVR": {"predict": predict_support},
    "OneClassSVM": {
        "predict": lambda w, e, x: outlier_labels(w, predict_support(w, e, x), strict=True),
        "decision_function": predict_support,
        "score_samples": lambda w, e, x: predict_support(w, e, x) + float(np.asarray(e.offset_).reshape(())),
    },
    "GaussianProcessRegressor": {"predict": predict_process},
    "GaussianProcessClassifier": {"predict": predict_process_class, "predict_proba": process_probabilities},
    "KernelRidge": {"predict": predict_kernel_ridge},
    "Nystroem": {"transform": transform_nystroem},
    "KernelPCA": {"transform": transform_kernel_components},
    "RBFSampler": {"transform": transform_cosines},
    "SkewedChi2Sampler": {"transform": transform_skewed},
    "AdditiveChi2Sampler": {"transform": transform_additive},
}
