"""Sizes that depend on data: tensors have their largest possible size, and a count gives the number of valid elements.

PyTorch represents a size that depends on data, such as the number of selected boxes, by a symbol without a value. Here
it has a bound and a count. A tensor with such an axis has the size of the bound; its elements after the count are
unspecified. Operators that process each element of the axis independently accept such tensors. Other operators, such as
a sum over the axis, are refused.

    i = nonzero(mask)     mask = [0, 1, 1, 0]     i: i64[u0, 1] in PyTorch     here i64[4, 1] = 1, 2, 0, 0, count 2
    x[i] * 2              each element alone      the same bound and count
    sum(x[i])             mixes elements          refused
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ....dialect.diagnostics import Diagnostic, DiagnosticError, Span
from ....dialect.dims import Size
from ..writing.tensors import BoundedTensor, Tensor
from .convert import activations, arithmetic, comparisons, unary

_FREE = frozenset(
    {
        "_softmax.default", "_log_softmax.default", "_to_copy.default", "addmm.default", "alias.default",
        "amax.default", "amin.default", "any.dim", "argmax.default", "argmin.default", "cat.default", "clone.default",
        "convolution.default", "embedding.default", "empty_like.default", "expand.default", "full_like.default",
        "gather.default", "index.Tensor", "index_select.default", "linear.default", "max.dim", "mean.dim", "min.dim",
        "mm.default", "native_layer_norm.default", "layer_norm.default", "nonzero.default", "ones_like.default",
        "permute.default", "prod.dim_int", "reshape.default", "select.int", "slice.Tensor", "softmax.int",
        "split_with_sizes.default", "squeeze.dims", "squeeze.dim", "stack.default", "sum.dim_IntList", "sym_size.int",
        "torchvision.nms.default", "torchvision.roi_align.default", "transpose.int", "unsqueeze.default",
        "view.default", "where.self", "zeros_like.default", "unbind.int",
    }
)  # fmt: skip
"""Operators that process each element of an axis independently, if the axis is not in `dim` and stays in the result."""
_BY_ELEMENT = frozenset(
    name for family in (unary, arithmetic, comparisons, activations) for name in family.CONVERTERS
) - {"glu.default", "isin.Tensor_Tensor"}
MAKERS = frozenset({"nonzero.default", "torchvision.nms.default", "index.Tensor"})
"""Operators whose results may have a size that depends on data."""


@dataclass
class Bounds:
    """The bound and the count of each symbol, by its name."""

    sizes: dict[str, Size] = field(default_factory=dict)
    counts: dict[str, Tensor] = field(default_factory=dict)

    def add(self, made: BoundedTensor, described: Any) -> Tensor:
        """Records the count of a result, and returns the tensor of the result."""
        name = str(described.shape[made.axis].node.expr)
        self.sizes[name], self.counts[name] = made.tensor.shape[made.axis], made.size
        return made.tensor

    def symbols(self, described: Any) -> Iterator[tuple[int, str]]:
        """Yields the axes of a tensor whose size is a symbol with a count."""
        for axis, size in enumerate(getattr(described, "shape", ())):
            if type(size).__name__ == "SymInt" and str(size.node.expr) in self.sizes:
                yield axis, str(size.node.expr)

    def counts_of(self, described: Any) -> Mapping[int, Tensor]:
        """Returns the counts of the axes of a tensor, by axis."""
        return {axis: self.counts[symbol] for axis, symbol in self.symbols(described)}

    def depends(self, value: Any) -> bool:
        """Returns whether a size or a condition depends on data of the call."""
        found = getattr(getattr(value, "node", None), "expr", None)
        return found is not None and any(str(symbol) in self.sizes for symbol in found.free_symbols)

    def check(self, name: str, values: Mapping[str, Any], described: Any, shown: str, span: Span) -> None:
        """Raises DiagnosticError if an operator mixes the elements of an axis whose size depends on data."""
        numbers = [
            each for value in values.values() for each in (value if isinstance(value, (list, tuple)) else [value])
        ]
        if name not in _SHAPED and any(type(each).__name__ == "SymInt" and self.depends(each) for each in numbers):
            message = f"`{name}` of node `{shown}` computes with a size that depends on data"
            raise DiagnosticError([Diagnostic("data-dependent", message, span)])
        given = [each for value in values.values() for each in _tensors(value)]
        axes = [(each, axis, symbol) for each in given for axis, symbol in self.symbols(each)]
        if not axes:
            return
        results = list(_tensors(described))
        kept = [{symbol for _, symbol in self.symbols(each)} for each in results]
        dims = values.get("dim")
        listed = dims if isinstance(dims, (list, tuple)) else () if dims is None else (dims,)
        mixes = name not in _FREE and name not in _BY_ELEMENT
        for each, axis, symbol in axes:
            is_named = any(type(dim) is int and dim % max(each.dim(), 1) == axis for dim in listed)
            stays = all(symbol in names for names in kept)
            is_reduced = dims is None and name in ("argmax.default", "argmin.default")
            mixes = mixes or is_reduced or not (stays or name in MAKERS) or (is_named and name not in _INSERTS)
        if name in ("mm.default", "addmm.default", "linear.default"):
            right = values.get("mat2") if name != "linear.default" else values.get("weight")
            mixes = mixes or any(True for _ in self.symbols(right))
        if mixes:
            message = f"`{name}` of node `{shown}` mixes the elements of an axis whose size depends on data"
            help_text = "operators on each element of the axis, and selections from it, are supported"
            raise DiagnosticError([Diagnostic("data-dependent", message, span, help=help_text)])


_SHAPED = frozenset(
    {
        "arange.default", "arange.start", "arange.start_step", "empty.memory_format", "expand.default", "full.default",
        "new_full.default", "ones.default", "reshape.default", "slice.Tensor", "sym_constrain_range.default",
        "sym_constrain_range_for_size.default", "view.default", "zeros.default",
    }
)  # fmt: skip
"""Operators with arguments that are sizes of their results."""
_INSERTS = frozenset({"slice.Tensor", "stack.default", "unsqueeze.default"})
"""Operators whose `dim` is an axis of the result, or is no longer in the result if they change it."""


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)
    elif hasattr(value, "dtype") and hasattr(value, "shape"):
        yield value
