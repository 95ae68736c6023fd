"""Options that take a number in a range: NaN is in none of them, though it is not below or above any bound."""

from __future__ import annotations

import math
from typing import Any

import click

from ..options import LONGEST


class NumberRange(click.FloatRange):
    """A finite number between bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


SECONDS = NumberRange(0, LONGEST, min_open=True)
"""A duration."""
