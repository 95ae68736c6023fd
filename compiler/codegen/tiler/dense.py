"""Small constant tensors: the kernel's text holds their elements, and the stack holds them at run time.

    %0 = arith.constant dense<[[1.0, 0.0], [0.5, 0.25]]> : tensor<2x2xf32>

is memory of four elements, which one store of a vector fills:

    %1 = arith.constant dense<[1.0, 0.0, 0.5, 0.25]> : vector<4xf32>
    vector.store %1, %stack0[%c0] : ...
"""

from __future__ import annotations

from math import prod
from typing import Any

from .structure import Buffer, Tensor, Unsupported, View

LARGEST = 1024
"""The most elements that are stored in each call; larger constants belong to the weights."""


def read_dense(name: str, type: Any, text: str) -> Tensor:
    """Returns the tensor of a constant that MLIR prints as `dense<...> : tensor<...>`. Raises Unsupported."""
    shape, element = tuple(type.shape), str(type.element_type)
    count = prod(shape)
    if count > LARGEST:
        raise Unsupported(f"a constant of {count} elements")
    values = text.rpartition(" : ")[0].removeprefix("dense<").removesuffix(">")
    if not values.startswith(("[", '"')):
        # One value for all elements; no value where there are no elements.
        return Tensor(shape, element, splat=values or ("false" if element == "i1" else f"0 : {element}"))
    flat = values if values.startswith('"') else f"[{values.replace('[', '').replace(']', '')}]"
    strides = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return Tensor(shape, element, View(Buffer(name, element, f"dense<{flat}>", count), 0, strides))
