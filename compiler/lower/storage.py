"""The storage of a call's tensors: arguments, results, weights, and the workspace."""

from __future__ import annotations

from typing import Generic, TypeVar

from ...dialect.dims import Size
from ...dialect.lazy_dataclass import dataclass

Base = TypeVar("Base")


@dataclass(frozen=True, slots=True)
class Input:
    """An argument of the function."""

    number: int


@dataclass(frozen=True, slots=True)
class Output:
    """A result of the function."""

    number: int


@dataclass(frozen=True, slots=True)
class Weight:
    offset: int


@dataclass(frozen=True, slots=True)
class Workspace:
    offset: Size


@dataclass(frozen=True, slots=True)
class Unused:
    """Scratch that the kernel does not use."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The record of the out-of-range index, which the caller reads."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """The word after this record, which kernels set where an index is out of range."""


@dataclass(frozen=True, slots=True)
class Sliced(Generic[Base]):
    """Consecutive elements of a tensor at `base`, which begin `stride` bytes further with each iteration of a loop."""

    base: Base
    loop: str
    stride: Size


Whole = Input | Output | Weight | Workspace | Unused | Failure | Alarm
Storage = Whole | Sliced["Storage"]
"""Where a tensor of a call is stored."""
