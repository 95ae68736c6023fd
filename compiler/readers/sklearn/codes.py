"""Encoders that represent a row by other points: sparse coding with a dictionary, non-negative matrix factorization
(NMF), locally linear embedding, and count sketches of polynomial kernels."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from ....dialect.graph import Node, Region, Value
from ....dialect.types import F64, I64, TensorType
from .neighbors import nearest
from .writing import Methods, Tensor, Writer, unsupported

_MOST_FACTORS = 32
"""The maximum number of components of an NMF. The products of components are written as separate operators."""


def encode_sparsely(w: Writer, e: Any, x: Tensor) -> Tensor:
    """Sparse coding, by soft thresholds or by orthogonal matching pursuit with a given number of non-zero
    coefficients."""
    dictionary = np.asarray(getattr(e, "components_", None) if hasattr(e, "components_") else e.dictionary, np.float64)
    algorithm, alpha = e.transform_algorithm, getattr(e, "transform_alpha", None)
    covariance = x @ w.const(dictionary.T)
    if algorithm == "threshold":
        alpha = alpha if alpha is not None else getattr(e, "alpha", None)
        limit = 1.0 if alpha is None else float(alpha)
        found = covariance.sign() * (covariance.abs() - limit).maximum(0.0)
        found = found.maximum(0.0) if e.positive_code else found
    elif algorithm == "omp":
        count = e.transform_n_nonzero_coefs
        width = x.width()
        count = int(min(max(width / 10, 1), len(dictionary))) if count is None else int(count)
        found = _pursue(w, dictionary @ dictionary.T, covariance, count)
    else:
        raise unsupported(
            e, f"its algorithm `{algorithm}` solves a problem for each row; `omp` and `threshold` compile"
        )
    return w.join([found.maximum(0.0), (-found).maximum(0.0)]) if e.split_sign else found


def _pursue(w: Writer, gram: Any, covariance: Tensor, count: int) -> Tensor:
    """Orthogonal matching pursuit. Each step selects the atom with the largest correlation with the residual, and fits
    the coefficients of all selected atoms again."""
    size = len(gram)
    flat, residual, chosen = w.const(gram.reshape(-1)), covariance, list[Tensor]()
    numbers = w.const(np.arange(size))
    found = covariance * 0.0
    for _ in range(min(count, size)):
        atom = residual.abs().argmax(axis=1)
        # A row is complete when its residual is zero, or when an atom is selected twice.
        goes_on = residual.abs().max(axis=1).square() >= float(np.finfo(np.float64).eps)
        for other in chosen:
            goes_on = goes_on.logical_and(other.not_equal(atom))
        chosen.append(atom)
        taken = len(chosen)
        rows = w.apply("stack", *chosen, axis=1)
        left, right = rows.unsqueeze(axes=2), rows.unsqueeze(axes=1)
        own = flat.gather(left * size + right, axis=0, mode="clamp")
        wanted = covariance.take_along_axis(rows, axis=1, mode="clamp")
        weights = own.solve(wanted.unsqueeze(axes=2)).reshape(shape=(*covariance.shape[:1], taken))
        hot = rows.unsqueeze(axes=2).same(numbers).floats()
        found = goes_on.unsqueeze(axes=1).where((hot * weights.unsqueeze(axes=2)).sum(axis=1), found)
        residual = covariance - found @ w.const(gram)
    return found


def factorize(w: Writer, e: Any, x: Tensor) -> Tensor:
    """NMF by coordinate descent over the components. As in the library, the iteration ends when the gradient of all
    rows of a call is small, so another row may change a result by less than the tolerance."""
    parts = np.asarray(e.components_, np.float64)
    count = len(parts)
    if e.solver != "cd" or e.shuffle:
        raise unsupported(e, "its solver is not `cd`, or is random")
    if count > _MOST_FACTORS:
        raise unsupported(e, f"it has {count} components; {_MOST_FACTORS} are supported")
    strength = parts.shape[1] * float(e.alpha_W)
    first, second = strength * float(e.l1_ratio), strength * (1.0 - float(e.l1_ratio))
    gram = parts @ parts.T + second * np.eye(count)
    wanted = x @ w.const(parts.T) - first
    columns = [wanted[i] for i in range(count)]
    start = [w.full(x, 0.0) for _ in range(count)]
    zero = w.const(np.asarray(0.0))
    b = w.builder

    def carried() -> list[Tensor]:
        kinds = [*(c.value.type for c in start), *(TensorType(F64, ()),) * 2, TensorType(I64, ())]
        return [Tensor(w, b.fresh(kind)) for kind in kinds]

    def region(build: Any) -> Region:
        arguments = carried()
        outer, b.nodes = b.nodes, []
        results = build(*arguments)
        nodes, b.nodes = b.nodes, outer
        return Region(tuple(a.value for a in arguments), tuple(nodes), tuple(r.value for r in results))

    def goes_on(*state: Tensor) -> list[Tensor]:
        violation, least, turn = state[count:]
        is_first = turn.same(0)
        # The violation of the first iteration is the scale of the later ones; a scale of 0 ends the iteration.
        large = (violation > least * float(e.tol)).logical_and(least > 0.0)
        return [is_first.logical_or(large).logical_and(turn < int(e.max_iter))]

    def improve(*state: Tensor) -> list[Tensor]:
        own, least, turn = list(state[:count]), state[count + 1], state[count + 2]
        total = zero
        for t in range(count):
            slope = reduce(lambda s, r: s + own[r] * float(gram[t, r]), range(count), -columns[t])
            kept = own[t].same(0.0).where(slope.minimum(0.0), slope)
            total = total + kept.abs().sum(axis=0)
            if gram[t, t] != 0:
                own[t] = (own[t] - slope / float(gram[t, t])).maximum(0.0)
        return [*own, total, turn.same(0).where(total, least), turn + 1]

    regions = (region(goes_on), region(improve))
    inputs = [*(c.value for c in start), zero.value, zero.value, w.const(np.asarray(0)).value]
    outputs = tuple[Value, ...](b.fresh(value.type) for value in inputs)
    b.nodes.append(Node("while", tuple(inputs), outputs, (), regions))
    return w.stack([Tensor(w, value) for value in outputs[:count]])


def embed_linearly(w: Writer, e: Any, x: Tensor) -> Tensor:
    """Locally linear embedding: the weights that reconstruct a row from its neighbours, applied to the embedding of
    these."""
    count, points = int(e.n_neighbors), np.asarray(e.nbrs_._fit_X, np.float64)
    _, positions = nearest(w, e.nbrs_, x, count)
    near = w.const(points).gather(positions, axis=0, mode="clamp") - x.row()
    gram = near @ near.transpose(axes=(0, 2, 1))
    eye = w.const(np.eye(count))
    trace = (gram * eye).sum(axis=(1, 2), keepdims=True)
    regular = (trace > 0.0).where(trace * float(e.reg), w.lift(float(e.reg), trace))
    weights = (gram + eye * regular).solve(w.const(np.ones((count, 1)))).reshape(shape=(*x.shape[:1], count))
    weights = weights / weights.sum(axis=1, keepdims=True)
    rows = w.const(np.asarray(e.embedding_, np.float64)).gather(positions, axis=0, mode="clamp")
    result: Tensor = (rows * weights.unsqueeze(axes=2)).sum(axis=1)
    return result


def sketch(w: Writer, e: Any, x: Tensor) -> Tensor:
    """Tensor sketch: the circular convolution of count sketches. It is a product in the Fourier domain; the transforms
    are matrices of cosines and sines."""
    index, bits, size = np.asarray(e.indexHash_), np.asarray(e.bitHash_), int(e.n_components)
    scaled = x * float(np.sqrt(e.gamma))
    if e.coef0 != 0:
        scaled = w.join([scaled, w.full(x, float(np.sqrt(e.coef0)), 1)])
    angle = 2 * np.pi * (np.outer(np.arange(size), np.arange(size)) % size) / size
    cosine, sine = np.cos(angle), np.sin(angle)
    total: tuple[Tensor, Tensor] | None = None
    for own, signs in zip(index, bits, strict=True):
        hashed = np.zeros((len(own), size))
        hashed[np.arange(len(own)), own] = signs
        part = scaled @ w.const(hashed @ cosine), scaled @ w.const(-(hashed @ sine))
        if total is not None:
            (a, b), (c, d) = total, part
            part = a * c - b * d, a * d + b * c
        total = part
    if total is None:
        raise unsupported(e, "it has no hashes")
    return total[0] @ w.const(cosine / size) - total[1] @ w.const(sine / size)


_SPARSE: Methods = {"transform": encode_sparsely}
TABLE: dict[str, Methods] = {
    **dict.fromkeys(("SparseCoder", "DictionaryLearning", "MiniBatchDictionaryLearning"), _SPARSE),
    "NMF": {"transform": factorize},
    "LocallyLinearEmbedding": {"transform": embed_linearly},
    "PolynomialCountSketch": {"transform": sketch},
}
