"""Ranges: the bounds of the values of a model on samples."""

from __future__ import annotations

from collections.abc import Mapping

from ...dialect.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Ranges:
    """The numbers that the least and the largest quantized value represent, by the name of a value of the function
    `model`, derived from `samples` samples."""

    model: str
    samples: int
    values: Mapping[str, tuple[float, float]]

    @property
    def texts(self) -> tuple[str, ...]:
        """The ranges in the syntax of pass options, `name:low:high`; the numbers round-trip exactly."""
        return tuple(f"{name}:{low!r}:{high!r}" for name, (low, high) in self.values.items())
