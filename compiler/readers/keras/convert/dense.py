"""Dense layers, embeddings, and the arithmetic of several tensors."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.types import I32
from ...writing.tensors import Tensor
from ..writing.use import Convert, Converters, Use
from .activations import activated
from .masks import masked


def _dense(use: Use) -> Sequence[Tensor]:
    g = use.g
    made = g.matmul(use.x, use.weight(0, 2, "kernel"))
    if use.flag("use_bias", True):
        made = g.add(made, use.weight(1, 1, "bias"))
    return [activated(use, made)]


def _embedding(use: Use) -> Sequence[Tensor]:
    ids = use.x if use.x.dtype.is_integer else use.g.cast(use.x, dtype=I32)
    return [use.g.embedding(use.weight(0, 2, "embeddings"), ids)]


def _product_of_steps(use: Use) -> Tensor:
    """Returns the product of the operands that are not masked at a step; 0 if all of them have masks and are masked."""
    g, total, found = use.g, None, []
    for position, x in enumerate(use.inputs):
        mask = use.masks.get(position)
        if mask is not None:
            x = masked(use, mask, x, g.like(1, x))
            found.append(mask)
        total = x if total is None else g.multiply(total, x)
    assert total is not None
    if len(found) < len(use.inputs):
        return total
    counts = found[0]
    for mask in found[1:]:
        counts = g.logical_or(counts, mask)
    return masked(use, counts, total, g.like(0, total))


def _folded(name: str) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        if len(use.inputs) < 2:
            use.fail(f"gets {len(use.inputs)} tensors, expected several", code="wrong-operands")
        if use.masks and name == "multiply":
            return [_product_of_steps(use)]
        total, mask = use.inputs[0], use.masks.get(0)
        picks = name in ("maximum", "minimum")
        for position, each in enumerate(use.inputs[1:], 1):
            if picks and use.masks:
                other = use.masks.get(position)
                # At a step where one operand is masked, the other one replaces it.
                each = each if other is None else masked(use, other, each, total)
                total = total if mask is None else masked(use, mask, total, each)
                mask = None if mask is None or other is None else use.g.logical_or(mask, other)
            total = use.g.apply(name, [total, each], {})[0]
        return [total]

    return convert


def _average(use: Use) -> Sequence[Tensor]:
    (total,) = _folded("add")(use)
    return [use.g.divide(total, use.g.like(len(use.inputs), total))]


def _concatenate(use: Use) -> Sequence[Tensor]:
    if not use.inputs:
        use.fail("gets no tensors", code="wrong-operands")
    return [use.g.concat(*use.inputs, axis=use.integer("axis", -1))]


def _einsum_dense(use: Use) -> Sequence[Tensor]:
    g, equation = use.g, use.word("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    _, comma, kernel = left.partition(",")
    if not arrow or not comma or "," in kernel:
        use.fail(f"has `equation` = {equation!r}", code="bad-keras")
    made = g.einsum(use.x, use.weight(0, len(kernel.replace("...", "")), "kernel"), equation=equation)
    axes = use.value("bias_axes", None)
    if axes:
        after = right.replace("...", "")
        if not isinstance(axes, str) or any(after.count(axis) != 1 for axis in axes):
            use.fail(f"has `bias_axes` = {axes!r}", code="bad-keras")
        # The bias has the axes of the result from the first one in `bias_axes` on; other axes have size 1.
        start = min(after.index(axis) for axis in axes)
        behind = made.rank - len(after) if right.endswith("...") else 0
        made = g.add(made, use.weight(1, len(after) - start + behind, "bias"))
    return [activated(use, made)]


def _dot(use: Use) -> Sequence[Tensor]:
    """Multiplies two tensors along an axis of each, for each element of the batch."""
    g = use.g
    if len(use.inputs) != 2:
        use.fail(f"gets {len(use.inputs)} tensors, expected 2", code="wrong-operands")
    given = use.value("axes")
    axes = list(given) if isinstance(given, (list, tuple)) else [given, given]
    ranks = [x.rank for x in use.inputs]
    if len(axes) != 2 or not all(type(a) is int and -r < a < r and a for a, r in zip(axes, ranks, strict=True)):
        use.fail(f"has `axes` = {given!r} for tensors of rank {ranks[0]} and {ranks[1]}", code="bad-axis")
    letters = iter("bcdefghijklmnop")
    names, operands, kept = [], [], []
    for x, axis in zip(use.inputs, axes, strict=True):
        if use.flag("normalize"):
            total = g.sum(g.square(x), axis=axis, keepdims=True)
            x = g.multiply(x, g.rsqrt(g.maximum(total, g.like(1e-12, x))))
        word = ["a", *(next(letters) for _ in range(x.rank - 1))]
        word[axis % x.rank] = "z"
        names.append("".join(word))
        kept += [letter for letter in word[1:] if letter != "z"]
        operands.append(x)
    made = g.einsum(*operands, equation=f"{names[0]},{names[1]}->a{''.join(kept)}")
    return [made if made.rank > 1 else g.unsqueeze(made, axes=(1,))]


CONVERTERS: Converters = {
    "Dense": _dense,
    "EinsumDense": _einsum_dense,
    "Dot": _dot,
    "Embedding": _embedding,
    "Add": _folded("add"),
    "Subtract": _folded("subtract"),
    "Multiply": _folded("multiply"),
    "Maximum": _folded("maximum"),
    "Minimum": _folded("minimum"),
    "Average": _average,
    "Concatenate": _concatenate,
}
