"""Ranges: between which numbers the values of a model lay on samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ranges:
    """By the name of a value of the function `model`: what its least and its largest code stand for, as told by so many
    `samples`."""

    model: str
    samples: int
    values: Mapping[str, tuple[float, float]]

    @property
    def texts(self) -> tuple[str, ...]:
        """As passes take them, `name:low:high`; the numbers read back as they are."""
        return tuple(f"{name}:{low!r}:{high!r}" for name, (low, high) in self.values.items())
