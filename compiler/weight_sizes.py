"""Sizes of weights in an artifact relative to the parameters of the model, their causes, and bounds on them.

A bound is met by storing fewer transformed weights; the pipeline searches for their number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ..dialect.diagnostics import Diagnostic, DiagnosticError
from ..dialect.dims import product, static_size
from ..dialect.graph import Module, Parameter
from ..dialect.lazy_dataclass import dataclass
from ..dialect.ops import OPERATORS
from ..passes.layout.winograd import Winograd
from ..passes.manager import FoldedConstant, Pass
from .base.shortened import shortened
from .lower.lowered import Lowered, LoweredWeight, static_bytes
from .model.checks import ModelBudget
from .model.parameters import used_parameters
from .model.units import UNITS

REPORTED = 1.25
"""A warning is issued if the weights take more than this multiple of the parameters' bytes."""
BOUNDED = "; `--size` bounds them"
LEAST = 100_000
"""The excess must also be at least this many bytes: panels of small models are mostly zero padding."""
SHOWN = 4
"""The maximum number of parameters that a warning names."""
TRANSFORMED = "the transforms of {} for Winograd's convolutions"
TWICE = "a second layout of {}"
FILLED = "panels of {} padded with zeros"


@dataclass(frozen=True, slots=True)
class SizeBound:
    """The maximum bytes of the weights, either absolute or as a multiple of the parameters' bytes."""

    amount: float
    relative: bool

    def bytes(self, parameters: int) -> int:
        return int(self.amount * parameters if self.relative else self.amount)

    def __str__(self) -> str:
        return f"{self.amount!r}x" if self.relative else f"{self.amount!r}B"


_BOUND = re.compile(r"(\d+(?:\.\d+)?)\s*(x|[kKMG]i?B|B)")


def parse_bound(text: str) -> SizeBound:
    """Parses a bound such as `1.2x` or `500MiB`. Raises DiagnosticError."""
    found = _BOUND.fullmatch(text.strip())
    unit = found[2] if found is not None else ""
    if found is None or (unit != "x" and unit not in UNITS) or not 0 < float(found[1]) < math.inf:
        message = f"`{text}` is not a size bound"
        raise DiagnosticError([Diagnostic("bad-size", message, help="write `1.2x`, `500MiB` or `80MB`")])
    return SizeBound(float(found[1]) * (1 if unit == "x" else UNITS[unit][1]), unit == "x")


def bound_of(budgets: Iterable[ModelBudget], module: Module) -> SizeBound | None:
    """Returns the bound that the budget of `weights` sets; None without one, or if a module has several models."""
    limits = [b.limit for b in budgets if b.metric == "weights" and b.comparison in ("<", "<=")]
    return SizeBound(min(limits), relative=False) if limits and len(module.functions) == 1 else None


@dataclass(frozen=True, slots=True)
class Growth:
    """A cause for which weights take more bytes than their parameters, with the number of these bytes."""

    cause: str
    bytes: int
    parameters: tuple[str, ...]

    def __str__(self) -> str:
        names = shortened(self.parameters, SHOWN)
        count = f"{len(self.parameters)} weight{'s' * (len(self.parameters) != 1)}"
        return f"{show_bytes(self.bytes)} for {self.cause.format(count)} ({names})"

    def data(self) -> dict[str, Any]:
        return {"cause": self.cause.format("weights"), "bytes": self.bytes, "parameters": self.parameters}


@dataclass(frozen=True, slots=True)
class WeightSizes:
    """The bytes of a model's parameters, as it declares them, and of an artifact's weights."""

    parameters: int
    weights: int
    growth: tuple[Growth, ...]

    @property
    def ratio(self) -> float:
        return self.weights / self.parameters if self.parameters else 1.0

    @property
    def is_reported(self) -> bool:
        return self.ratio > REPORTED and self.weights - self.parameters > LEAST

    @property
    def transformed(self) -> int:
        """The bytes that transforms add."""
        return sum(g.bytes for g in self.growth if g.cause == TRANSFORMED)

    def __str__(self) -> str:
        causes = "; ".join(map(str, self.growth))
        return (
            f"weights take {show_bytes(self.weights)}, {self.ratio:.2f} times the {show_bytes(self.parameters)} of the "
            f"parameters{f': {causes}' if causes else ''}{BOUNDED if self.transformed else ''}"
        )

    def data(self) -> dict[str, Any]:
        """Returns the sizes as JSON data."""
        growth = [each.data() for each in self.growth]
        return {"parameters": self.parameters, "weights": self.weights, "ratio": self.ratio, "growth": growth}


def show_bytes(size: int) -> str:
    unit = next((u for u in ("GB", "MB", "kB") if size >= UNITS[u][1]), "B")
    return f"{size / UNITS[unit][1]:.3g} {unit}"


def format_folded(constants: Sequence[FoldedConstant]) -> list[str]:
    """Returns a line for each constant that takes more bytes than the constants from which it was folded."""
    return [
        f"the constant of `{folded.node.op}`{f' at {folded.node.span}' if folded.node.span else ''} takes "
        f"{show_bytes(folded.bytes)}, made of {show_bytes(folded.source_bytes)}"
        for folded in constants
    ]


def folded_data(constants: Sequence[FoldedConstant]) -> list[dict[str, Any]]:
    """Returns the folded constants as JSON data."""
    return [
        {
            "operator": folded.node.op,
            "at": str(folded.node.span) if folded.node.span else None,
            "bytes": folded.bytes,
            "source_bytes": folded.source_bytes,
        }
        for folded in constants
    ]


def measure_weights(written: Module, lowered: Lowered) -> WeightSizes:
    """Measures the weights of a lowered module. `written` is the model as it declares its parameters."""
    used = {p.name: p for found in used_parameters(written).values() for p in found}
    total = sum(static_bytes(p.type) * static_size(product(p.counts)) for p in used.values())
    return WeightSizes(total, sum(static_bytes(w.type) for w in lowered.weights), tuple(_growth(lowered.weights)))


def _growth(weights: Iterable[LoweredWeight]) -> Iterable[Growth]:
    found: dict[str, dict[str, int]] = {TRANSFORMED: {}, TWICE: {}, FILLED: {}}
    seen: set[tuple[str, object, object]] = set()
    for weight in weights:
        if not isinstance(weight.source, Parameter):
            continue
        main = _largest(weight.source)
        size, key = static_bytes(weight.type), (main.name, weight.seen.dtype, weight.seen.elements)
        if _is_transformed(weight.source):
            cause, more = TRANSFORMED, size - static_bytes(main.type)
        elif key in seen:
            cause, more = TWICE, size
        else:
            cause, more = FILLED, size - static_bytes(weight.seen)
        seen.add(key)
        if more > 0:
            found[cause][main.name] = found[cause].get(main.name, 0) + more
    causes = [Growth(cause, sum(more.values()), tuple(more)) for cause, more in found.items() if more]
    return sorted(causes, key=lambda growth: -growth.bytes)


def _largest(parameter: Parameter) -> Parameter:
    stored = (parameter,) if parameter.formula is None else parameter.formula.parameters
    return max(stored, key=lambda p: static_bytes(p.type), default=parameter)


def _is_transformed(parameter: Parameter) -> bool:
    formula = parameter.formula
    return formula is not None and any(OPERATORS[node.op].has("precomputed") for node in formula.body)


def too_large(sizes: WeightSizes, bound: SizeBound) -> DiagnosticError:
    most = bound.bytes(sizes.parameters)
    needed, limit = show_bytes(sizes.weights), show_bytes(most)
    if needed == limit:
        needed, limit = f"{sizes.weights:,} B", f"{most:,} B"
    given = f"`{bound.amount:g}x`, which is {limit}" if bound.relative else limit
    message = f"the weights take at least {needed}, the bound is {given}"
    help = "; ".join([*map(str, sizes.growth), "use a lower precision: `--precision`"])
    return DiagnosticError([Diagnostic("size-bound", message, help=help)])


def with_most_bytes(passes: Iterable[Pass], most: int) -> tuple[Pass, ...]:
    """Returns the passes with `most` as the limit of additional bytes for transformed weights."""
    return tuple(_bounded(step, most) if isinstance(step, Winograd) else step for step in passes)


def _bounded(step: Winograd, most: int) -> Winograd:
    return replace(step, most_bytes=most if step.most_bytes is None else min(most, step.most_bytes))
