"""Attention: multi-head layers with projections, and layers that attend to their operands directly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...writing.tensors import Tensor
from ..writing.use import Converters, Use
from .masks import as_mask, masked

_WITH_HEADS = ("MultiHeadAttention", "GroupQueryAttention", "GroupedQueryAttention")
KEYWORDS: Mapping[str, frozenset[str]] = dict.fromkeys(
    _WITH_HEADS, frozenset({"query", "value", "key", "attention_mask"})
)
"""The tensors that layers take by keyword."""


def _operands(use: Use) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the query, the key and the value; the key is the value if it is not given."""
    named = dict(zip(("query", "value", "key", "attention_mask"), use.inputs, strict=False)) | dict(use.keywords)
    if len(use.inputs) > 4 or "query" not in named or "value" not in named:
        use.fail(f"gets {len(use.inputs)} tensors, expected a query, a value and a key", code="wrong-operands")
    query, value = named["query"], named["value"]
    key = named.get("key", value)
    if not query.rank == key.rank == value.rank == 3:
        use.fail(f"gets {query.type}, {value.type} and {key.type}, expected rank 3", code="unsupported-rank")
    return query, key, value


def _mask(use: Use) -> Tensor | None:
    """Returns the mask [batch, 1, queries, keys]: the operand, and the masks of the query, the value and the key."""
    g, found = use.g, []
    mask = use.inputs[3] if len(use.inputs) > 3 else use.keywords.get("attention_mask")
    if mask is not None:
        mask = as_mask(use, mask)
        if mask.rank not in (3, 4):
            use.fail(f"gets the mask {mask.type}, expected rank 3 or 4", code="unsupported-rank")
        found.append(g.unsqueeze(mask, axes=(1,)) if mask.rank == 3 else mask)
    for position, name, axes in ((0, "query", (1, 3)), (1, "value", (1, 2)), (2, "key", (1, 2))):
        steps = use.masks.get(position, use.masks.get(name))
        if steps is not None:
            found.append(g.unsqueeze(steps, axes=axes))
    total: Tensor | None = None
    for each in found:
        total = each if total is None else g.logical_and(total, each)
    return total


def _with_causal(use: Use, mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
    """Returns the mask combined with the causal mask, if `use_causal_mask` is set: query i attends to keys 0 to i."""
    if not use.flags.get("use_causal_mask"):
        return mask
    g, queries, keys = use.g, query.shape[1], key.shape[1]
    causal = g.less_equal(g.iota(shape=(keys,)), g.reshape(g.iota(shape=(queries,)), shape=(queries, 1)))
    causal = g.reshape(causal, shape=(1, 1, queries, keys))
    return causal if mask is None else g.logical_and(mask, causal)


def _refuse(use: Use, *names: str) -> None:
    for name in names:
        if use.value(name, None):
            use.fail(f"has `{name}` = {use.value(name)!r}")
    if use.flags.get("return_attention_scores"):
        use.fail("returns its scores")


def _projected(use: Use, x: Tensor, names: Sequence[str], word: str) -> Tensor:
    """Returns x [batch, time, features] times a kernel [features, heads, size], as [batch, heads, time, size]."""
    g = use.g
    arrays = use.part(names)
    if not arrays or arrays[0].ndim != 3 or (len(arrays) > 1 and arrays[1].shape != arrays[0].shape[1:]):
        use.fail(f"has no kernel [features, heads, size] of its {word}", code="missing-weight")
    features, heads, size = arrays[0].shape
    made = g.matmul(x, use.tensor(arrays[0].reshape(features, heads * size), f"{word}_kernel"))
    if len(arrays) > 1:
        made = g.add(made, use.tensor(arrays[1].reshape(-1), f"{word}_bias"))
    return g.transpose(g.reshape(made, shape=(*x.shape[:2], heads, size)), axes=(0, 2, 1, 3))


def _joined(use: Use, x: Tensor) -> Tensor:
    """Returns the heads [batch, heads, time, size] times a kernel [heads, size, features]."""
    g = use.g
    arrays = use.part(("output_dense", "_output_dense", "attention_output"))
    if not arrays or arrays[0].ndim != 3:
        use.fail("has no kernel [heads, size, features] of its output", code="missing-weight")
    heads, size, features = arrays[0].shape
    flat = g.reshape(g.transpose(x, axes=(0, 2, 1, 3)), shape=(x.shape[0], x.shape[2], heads * size))
    made = g.matmul(flat, use.tensor(arrays[0].reshape(heads * size, features), "output_kernel"))
    return g.add(made, use.tensor(arrays[1].reshape(-1), "output_bias")) if len(arrays) > 1 else made


def _heads(use: Use) -> Sequence[Tensor]:
    g = use.g
    _refuse(use, "output_shape", "use_gate", "sliding_window")
    axes = use.value("attention_axes", None)
    if axes not in (None, 1, [1]):
        use.fail(f"has `attention_axes` = {axes!r}")
    query, key, value = _operands(use)
    q, k, v = (
        _projected(use, x, (f"{word}_dense", f"_{word}_dense", word), word)
        for x, word in ((query, "query"), (key, "key"), (value, "value"))
    )
    shared, heads = k.shape[1], q.shape[1]
    assert isinstance(shared, int) and isinstance(heads, int)
    if heads % max(shared, 1) or shared == 0:
        use.fail(f"has {heads} heads of queries and {shared} of keys", code="bad-keras")
    if shared != heads:
        k, v = (g.repeat_interleave(x, repeats=heads // shared, axis=1) for x in (k, v))
    mask = _with_causal(use, _mask(use), query, key)
    return [_joined(use, g.attention(q, k, v) if mask is None else g.attention(q, k, v, mask))]


def _direct(use: Use) -> Sequence[Tensor]:
    """Attends to values [batch, keys, features], with scores of each query and each key."""
    g = use.g
    _refuse(use)
    query, key, value = _operands(use)
    is_sum = use.kind == "AdditiveAttention"
    if use.word("score_mode", "dot") != "dot":
        use.fail(f"has `score_mode` = {use.value('score_mode')!r}")
    scale = use.weight(0, 1 if is_sum else 0, "scale") if use.flag("use_scale", is_sum) else None
    if is_sum:
        sums = g.tanh(g.add(g.unsqueeze(query, axes=(2,)), g.unsqueeze(key, axes=(1,))))
        scores = g.sum(sums if scale is None else g.multiply(sums, scale), axis=-1)
    else:
        scores = g.matmul(query, g.transpose(key, axes=(0, 2, 1)))
        scores = scores if scale is None else g.multiply(scores, scale)
    counts = use.masks.get(1)
    mask = _with_causal(use, None if counts is None else g.unsqueeze(counts, axes=(1, 2)), query, key)
    if mask is not None:
        # As in Keras, a query whose keys are all masked receives the mean of all values.
        scores = g.where(g.squeeze(mask, axes=(1,)), scores, g.subtract(scores, g.like(1e9, scores)))
    made = g.matmul(g.softmax(scores, axis=-1), value)
    return [made if 0 not in use.masks else masked(use, use.masks[0], made, g.like(0, made))]


CONVERTERS: Converters = {
    **dict.fromkeys(_WITH_HEADS, _heads),
    "Attention": _direct,
    "AdditiveAttention": _direct,
}
