"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence

from ...writing.tensors import Tensor
from ..writing.use import Converters, Use


def _operand(use: Use, *names: str) -> Tensor:
    for name in names:
        if use.has(name):
            return use.cast(name, use.dtype)
    use.fail(f"lacks `{names[0]}`", code="wrong-operands")


def _product(use: Use) -> Sequence[Tensor]:
    return [product(use, _operand(use, "self", "input"), _operand(use, "mat2", "other", "vec", "tensor"))]


def product(use: Use, x: Tensor, y: Tensor) -> Tensor:
    """Returns a matrix product. A vector is a row as the left operand and a column as the right operand."""
    g = use.g
    left = x if x.rank > 1 else g.unsqueeze(x, axes=(0,))
    right = y if y.rank > 1 else g.unsqueeze(y, axes=(1,))
    total = g.matmul(left, right)
    total = total if x.rank > 1 else g.squeeze(total, axes=(-2,))
    return total if y.rank > 1 else g.squeeze(total, axes=(-1,))


def _scaled(use: Use, x: Tensor, name: str) -> Tensor:
    factor = use.arguments.get(name)
    return x if factor is None or factor == 1 else use.g.multiply(x, use.cast(name, x.dtype))


def _add_product(use: Use) -> Sequence[Tensor]:
    g = use.g
    left, right = _operand(use, "mat1", "batch1", "mat"), _operand(use, "mat2", "batch2", "vec")
    total = _scaled(use, product(use, left, right), "alpha")
    if use.arguments.get("beta") == 0:
        return [total]
    return [g.add(total, _scaled(use, _operand(use, "self"), "beta"))]


def _linear(use: Use) -> Sequence[Tensor]:
    x, weight, g = _operand(use, "input"), _operand(use, "weight"), use.g
    turned = g.transpose(weight, axes=(1, 0)) if weight.rank == 2 else weight
    total = product(use, x, turned)
    return [g.add(total, _operand(use, "bias")) if use.has("bias") else total]


def _outer(use: Use) -> Sequence[Tensor]:
    g = use.g
    return [g.multiply(g.unsqueeze(_operand(use, "self"), axes=(1,)), _operand(use, "vec2"))]


CONVERTERS: Converters = {
    **dict.fromkeys(("mm.default", "bmm.default", "matmul.default", "mv.default", "dot.default"), _product),
    **dict.fromkeys(("addmm.default", "baddbmm.default", "addmv.default"), _add_product),
    "linear.default": _linear,
    "outer.default": _outer,
}
