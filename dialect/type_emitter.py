"""An emitter that writes no code and tracks only the types of tensors: the base of analyses that run a lowering."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from .dims import Shape, Size
from .types import TensorType


class Typed(Protocol):
    @property
    def type(self) -> TensorType: ...


AnyTensor = TypeVar("AnyTensor", bound=Typed)


class TypeEmitter(Generic[AnyTensor]):
    """A type-only emitter; `make` returns a new tensor of a type."""

    def __init__(self, make: Callable[[TensorType], AnyTensor]) -> None:
        self.make = make

    def full(self, type: TensorType, value: object) -> AnyTensor:
        return self.make(type)

    def memory(self, type: TensorType) -> AnyTensor:
        return self.make(type)

    def constant(self, type: TensorType, values: object) -> AnyTensor:
        return self.make(type)

    def reshape(self, x: AnyTensor, shape: Shape) -> AnyTensor:
        return self.make(x.type.with_shape(shape))

    def slice(self, x: AnyTensor, starts: object, sizes: Sequence[Size], steps: object) -> AnyTensor:
        return self.make(x.type.with_shape(sizes))

    def insert(self, source: AnyTensor, target: AnyTensor, starts: object, steps: Sequence[int]) -> AnyTensor:
        return self.make(target.type)
