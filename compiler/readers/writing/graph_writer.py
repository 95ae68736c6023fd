"""Writes the nodes of a function while its file is read; evaluates nodes of known values instead.

`g.add(x, y)` and `g.softmax(x, axis=-1)` name operators of the graph IR, as `Builder` does, and take and return
`Tensor`s. Constants, sizes and parameters that nodes use are defined at the beginning of the function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....dialect.diagnostics import Span
from ....dialect.dims import Poly, Size
from ....dialect.graph import Constant, Node, Parameter, Region, Value
from ....dialect.operator import Builder
from ....dialect.ops import OPERATORS
from ....dialect.types import I64, Array, DType, TensorType
from .folding import fold
from .tensors import Elements, Tensor, known, of_size

_INLINE = 16
_INLINE_INTEGERS = 4096
"""The most elements of an array that is a constant of the graph; a larger one is a parameter, and so is a named vector
of floats of any size."""


class GraphWriter:
    """Appends nodes to a function or to the region that is open. `arrays` holds the data of the parameters. An array of
    more than `inline_integers` integers is a parameter."""

    def __init__(self, inline_integers: int = _INLINE_INTEGERS) -> None:
        self.inline_integers = inline_integers
        self.builder = Builder(OPERATORS)
        self.prologue: list[Node] = []
        self.parameters: dict[str, Parameter] = {}
        self.arrays: dict[str, Array] = {}
        self.checked: tuple[TensorType, ...] = ()  # the operands of the operator that was checked last
        self.is_in_region = False
        self._made: dict[int, tuple[Tensor, Value]] = {}
        self._sizes: dict[Size, Value] = {}

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        if name.startswith("_") or name not in OPERATORS:
            raise AttributeError(name)

        def build(*inputs: Tensor, **attributes: Any) -> Tensor:
            results = self.apply(name, inputs, attributes)
            assert len(results) == 1, f"{name} has {len(results)} results: use apply"
            return results[0]

        return build

    def at(self, scope: str, span: Span | None) -> None:
        """Gives the nodes that follow a scope and a span."""
        self.builder.scope, self.builder.span = scope, span

    def apply(self, name: str, inputs: Sequence[Tensor], attributes: Mapping[str, Any]) -> tuple[Tensor, ...]:
        """Adds a node, or evaluates it, and returns its results. Raises InferenceError."""
        operator = OPERATORS[name]
        full = operator.complete(attributes)
        self.checked = tuple(tensor.type for tensor in inputs)
        types = operator.check(self.checked, full)
        folded = fold(operator, full, inputs, types)
        if folded is not None and all(_is_known(tensor) for tensor in folded):
            return folded
        values = self.builder.apply(name, [self.value(tensor) for tensor in inputs], full)
        if folded is None:
            return tuple(Tensor(value.type, value) for value in values)
        return tuple(Tensor(v.type, v, t.elements) for v, t in zip(values, folded, strict=True))

    def scalar(self, value: float | int | bool, dtype: DType) -> Tensor:
        return known(value, dtype)

    def like(self, value: float | int | bool, x: Tensor) -> Tensor:
        """Returns a scalar with the dtype of `x`."""
        return known(value, x.dtype)

    def size(self, size: Size, dtype: DType = I64) -> Tensor:
        """Returns a size as a scalar."""
        scalar = of_size(size)
        return scalar if dtype == I64 else self.cast(scalar, dtype=dtype)

    # --- values of the graph ---

    def value(self, tensor: Tensor) -> Value:
        """Returns the value of a tensor in the graph, with a constant, a parameter or sizes for known elements."""
        if tensor.value is not None:
            return tensor.value
        made = self._made.get(id(tensor))
        if made is None:
            outer, self.builder.nodes = self.builder.nodes, self.prologue
            try:
                made = self._made[id(tensor)] = tensor, self._materialize(tensor)
            finally:
                self.builder.nodes = outer
        return made[1]

    def _materialize(self, tensor: Tensor) -> Value:
        array = tensor.array
        if array is None:
            assert tensor.elements is not None, tensor
            return self._sizes_as_value(tensor.elements, tensor.type)
        most = _INLINE if tensor.dtype.is_float else self.inline_integers
        is_weight = bool(tensor.label) and tensor.dtype.is_float and tensor.rank > 0 and array.size > 1
        if array.size <= most and not is_weight:
            return self.builder.apply("constant", (), {"value": Constant(array.copy())})[0]
        return self._parameter(tensor, array)

    def _parameter(self, tensor: Tensor, array: Array) -> Value:
        wanted = tensor.label.replace("{", "(").replace("}", ")") or "constant"
        name, number = wanted, 1
        while name in self.parameters:
            number += 1
            name = f"{wanted}.{number}"
        self.parameters[name] = Parameter(name, tensor.type, span=self.builder.span)
        self.arrays[name] = array
        value = self.builder.fresh(tensor.type)
        self.prologue.append(
            Node("parameter", (), (value,), (("name", name),), scope=self.builder.scope, span=self.builder.span)
        )
        return value

    def _sizes_as_value(self, elements: Elements, type: TensorType) -> Value:
        b = self.builder
        flat = elements.reshape(-1).tolist()
        if not type.shape:
            value = self._size_value(flat[0])
        else:
            parts = [b.reshape(self._size_value(size), shape=(1,)) for size in flat]
            value = parts[0] if len(parts) == 1 else b.concat(*parts, axis=0)
            if type.rank != 1:
                value = b.reshape(value, shape=type.shape)
        return value if type.dtype == I64 else b.cast(value, dtype=type.dtype)

    def _size_value(self, size: Size) -> Value:
        if size not in self._sizes:
            if isinstance(size, Poly):
                made = self.builder.apply("size_value", (), {"size": size})[0]
            else:
                made = self.builder.apply("constant", (), {"value": Constant(np.asarray(size, np.int64))})[0]
            self._sizes[size] = made
        return self._sizes[size]

    # --- regions ---

    def region(self, types: Sequence[TensorType], build: Callable[[Sequence[Tensor]], Sequence[Tensor]]) -> Region:
        """Returns the region that `build(arguments)` writes; its results are those of the region."""
        arguments = tuple(self.builder.fresh(type) for type in types)
        outer, self.builder.nodes = self.builder.nodes, []
        was_in_region, self.is_in_region = self.is_in_region, True
        try:
            results = build([Tensor(value.type, value) for value in arguments])
            finals = tuple(self.value(tensor) for tensor in results)
            return Region(arguments, tuple(self.builder.nodes), finals)
        finally:
            self.builder.nodes, self.is_in_region = outer, was_in_region

    def control(
        self,
        name: str,
        inputs: Sequence[Tensor],
        attributes: Mapping[str, Any],
        regions: Sequence[Region],
        types: Sequence[TensorType],
    ) -> tuple[Tensor, ...]:
        """Adds a node with regions and returns its results."""
        outputs = tuple(self.builder.fresh(type) for type in types)
        operands = tuple(self.value(tensor) for tensor in inputs)
        b = self.builder
        b.nodes.append(
            Node(name, operands, outputs, tuple(sorted(attributes.items())), tuple(regions), b.scope, b.span)
        )
        return tuple(Tensor(value.type, value) for value in outputs)


def _is_known(tensor: Tensor) -> bool:
    return tensor.elements is not None and not any(x is None for x in tensor.elements.reshape(-1).tolist())


def with_label(tensor: Tensor, label: str) -> Tensor:
    """Returns the tensor under the name of the file, if it has none."""
    if tensor.value is not None or tensor.label or tensor.elements is None:
        return tensor
    return replace(tensor, label=label)
