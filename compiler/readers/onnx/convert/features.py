"""Features of data: counts of n-grams, thresholds, and the weights of mel spectrograms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....dialect.types import F32, I64, Array
from ...writing.tensors import Tensor, known
from ..writing.string_tensors import index_in
from ..writing.use import REQUIRED, Converters, Use

_MOST_BANDS = 1 << 16
_MOST_COLUMNS = 1 << 24
"""The maximum number of elements that a node may store."""


def _binarizer(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    above = g.greater(g.cast(x, dtype=F32) if x.dtype.is_integer else x, known(use.number("threshold", 0.0), F32))
    return [g.cast(above, dtype=x.dtype)]


def _mel_weights(use: Use) -> Sequence[Tensor]:
    """Computes triangular filters over the frequencies of a spectrum, which are equally wide on the mel scale."""
    what = "sizes and frequencies"
    given = [use.known_array(index, what) for index in range(5)]
    if any(array.size != 1 for array in given):
        use.fail(f"takes single {what}, not {[array.size for array in given]} of them", code="wrong-operands")
    bands, length, rate, low, high = (float(array.item()) for array in given)
    is_usual = 0 <= bands < _MOST_BANDS and 0 <= length < _MOST_COLUMNS and rate > 0 and 0 <= low <= high < np.inf
    if not is_usual or bands * length > _MOST_COLUMNS:
        use.fail(f"has {bands:g} bands of {low:g} to {high:g} Hz, {length:g} samples at {rate:g} Hz", code="bad-size")
    ends = 2595 * np.log10(1 + np.array([low, high]) / 700)
    mels = ends[0] + np.arange(int(bands) + 2) * (ends[1] - ends[0]) / (int(bands) + 2)
    edges = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(np.int64)
    line = np.arange(int(length) // 2 + 1)[:, None]
    left, middle, right = edges[:-2], edges[1:-1], edges[2:]
    with np.errstate(all="ignore"):
        rising = np.where(middle == left, line == middle, (line - left) / (middle - left))
        falling = (right - line) / (right - middle)
    inside = (line >= left) & (line <= middle)
    weights = np.where(inside, rising, np.where((line > middle) & (line < right), falling, 0.0))
    return [known(weights, use.element_type("output_datatype", F32))]


def _ngrams(use: Use) -> Sequence[Tensor]:
    """Counts each n-gram of the pool in rows of integers or strings. Between two successive elements of an n-gram, the
    row may have up to `max_skip_count` other elements."""
    g = use.g
    if use.has("pool_strings"):
        # Strings are replaced by their indices in the pool.
        words, index_in_pool = np.unique(np.array(use.strings_of("pool_strings"), object), return_inverse=True)
        x, pool = index_in(g, use.strings(), words.tolist()), index_in_pool.astype(np.int64)
    else:
        x, pool = use.input(), np.array(use.ints_of("pool_int64s", REQUIRED), np.int64)
    starts = use.ints_of("ngram_counts", REQUIRED)
    indices = use.ints_of("ngram_indexes", REQUIRED)
    weights = use.floats_of("weights") or (1.0,) * len(indices)
    shortest, longest = use.integer("min_gram_length", REQUIRED), use.integer("max_gram_length", REQUIRED)
    width, mode = x.shape[-1] if x.rank else None, use.string("mode", REQUIRED)
    if not isinstance(width, int):
        use.fail(f"counts in {x.type}, whose rows have no known length", code="data-dependent")
    if not 0 < shortest <= longest:
        use.fail(f"counts n-grams of {shortest} to {longest} elements", code="bad-attribute")
    if mode not in ("TF", "IDF", "TFIDF") or len(weights) != len(indices) or len(set(indices)) != len(indices):
        use.fail("has a mode, weights or indices that do not fit", code="bad-attribute")
    parts: list[Tensor] = []
    total = 0
    for size, start in enumerate(starts, 1):
        stop = starts[size] if size < len(starts) else len(pool)
        if (stop - start) % size or not 0 <= start <= stop <= len(pool):
            use.fail(f"has a pool of {stop - start} elements of {size}-grams", code="bad-attribute")
        grams = pool[start:stop].reshape(-1, size)
        total += len(grams)
        if len(grams):
            skips = use.integer("max_skip_count", REQUIRED) if size > 1 else 0
            counted = shortest <= size <= longest
            parts.append(_count(use, x, grams, width, range(1, skips + 2) if counted else range(0)))
    if total != len(indices):
        use.fail(f"has {len(indices)} indices for {total} n-grams", code="bad-attribute")
    # Column c of the result is the n-gram whose index is c; other columns are 0.
    if not indices or not 0 <= min(indices) <= max(indices) < _MOST_COLUMNS:
        use.fail(f"has indices outside of 0 to {_MOST_COLUMNS - 1}, or none", code="bad-attribute")
    columns = max(indices) + 1
    empty = g.broadcast_to(known(np.int64(0)), shape=(*x.shape[:-1], 1))
    number_of = {index: number for number, index in enumerate(indices)}
    order = [number_of.get(column, len(indices)) for column in range(columns)]
    counts = g.gather(g.concat(*parts, empty, axis=-1), known(np.array(order, np.int64)), axis=x.rank - 1)
    factors = known(np.array([*weights, 0.0])[order], F32)
    found = g.cast(counts, dtype=F32)
    if mode == "IDF":
        found = g.minimum(found, g.like(1, found))
    return [found if mode == "TF" else g.multiply(found, factors)]


def _count(use: Use, x: Tensor, grams: Array, width: int, steps: range) -> Tensor:
    """Returns the number of occurrences of each n-gram [count, n] in each row: i64 [..., count]. `steps` are the
    distances between successive elements of an n-gram."""
    g, size = use.g, grams.shape[1]
    total = g.broadcast_to(known(np.int64(0)), shape=(*x.shape[:-1], len(grams)))
    wide = g.cast(x, dtype=I64)
    before = (None,) * (x.rank - 1)
    for step in steps:
        length = width - (size - 1) * step
        if length <= 0:
            break
        matches: Tensor | None = None
        for index in range(size):
            part = g.slice(wide, starts=(*before, index * step), stops=(*before, index * step + length))
            equal = g.equal(g.unsqueeze(part, axes=(x.rank,)), known(grams[:, index]))
            matches = equal if matches is None else g.logical_and(matches, equal)
        assert matches is not None, grams
        total = g.add(total, g.sum(g.cast(matches, dtype=I64), axis=x.rank - 1))
    return total


CONVERTERS: Converters = {
    "ai.onnx.ml::Binarizer": _binarizer,
    "MelWeightMatrix": _mel_weights,
    "TfIdfVectorizer": _ngrams,
}
