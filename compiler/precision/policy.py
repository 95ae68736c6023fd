"""What a precision policy says: in which type the weights and the activations of a model are kept.

A policy is data: rules, of which later ones win, what ranges are taken from, and what has to hold. It prints as the
text that a person writes in a model file. What is made of a graph by it is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...dialect.diagnostics import Span
from ...dialect.types import BLOCKED, STORAGE
from ...passes.selection import EVERYTHING, Selector
from ..accuracy.figures import FIGURES

Subject = Literal["weights", "activations"]
"""Weights are the parameters that are multiplied, and tables that rows are read from; activations are what is
multiplied and is computed in a call. Nothing else is ever kept in another type than the model says."""


Origin = Literal["", "dynamic", "static", "fitted"]


@dataclass(frozen=True, slots=True)
class Scheme:
    """How numbers are kept: the dtype as the language writes it, and where scales come from: of activations in i8 out
    of the numbers of each call, `dynamic`, or out of ranges that were seen before, `static`; of weights in blocks out
    of their own numbers, or `fitted`, with the codes, to samples that they were multiplied with before."""

    dtype: str
    scale: Origin = ""

    def __str__(self) -> str:
        return f"{self.dtype} {self.scale}".rstrip()

    @property
    def needs_samples(self) -> bool:
        return self.scale in ("static", "fitted")


F32 = Scheme("f32")
"""As the model says."""
SCHEMES: Mapping[Subject, tuple[Scheme, ...]] = {
    "weights": (
        F32,
        *map(Scheme, ("bf16", "f16", "i8", *(dtype.name for dtype in (*STORAGE, *BLOCKED)))),
        *(Scheme(dtype.name, "fitted") for dtype in BLOCKED),
    ),
    "activations": (F32, Scheme("bf16"), Scheme("f16"), Scheme("i8", "dynamic"), Scheme("i8", "static")),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """`weights SELECTOR to SCHEME`, `activations SELECTOR to SCHEME`; or `keep SELECTOR`, about both."""

    subject: Subject | None
    selector: Selector
    scheme: Scheme
    span: Span | None = None

    def __str__(self) -> str:
        return f"keep {self.selector}" if self.subject is None else f"{self.subject} {self.selector} to {self.scheme}"


def keep(selector: Selector, span: Span | None = None) -> Rule:
    return Rule(None, selector, F32, span)


Method = Literal["minmax", "percentile", "mse", "entropy"]


@dataclass(frozen=True, slots=True)
class Calibration:
    """`calibrate on file "x.npz" by percentile 99.99`: what static ranges are taken from. `percentile` is that of the
    method of this name."""

    path: Path
    method: Method = "minmax"
    percentile: float = 99.99
    span: Span | None = None

    def __str__(self) -> str:
        number = f" {self.percentile:g}" if self.method == "percentile" else ""
        return f'calibrate on file "{self.path}" by {self.method}{number}'


@dataclass(frozen=True, slots=True)
class Requirement:
    """`require error <= 1e-2 on file "x.npz"`: what has to hold between the results of this model and those in f32.
    `figure` is one of `FIGURES` by its words, compared as that is."""

    figure: str
    limit: float
    path: Path
    span: Span | None = None

    def __str__(self) -> str:
        return f'require {self.figure} {FIGURES[self.figure].comparison} {self.limit!r} on file "{self.path}"'


@dataclass(frozen=True, slots=True)
class Policy:
    """The types of a model; `model` is empty for a policy that is about every model of a file."""

    rules: tuple[Rule, ...] = ()
    calibration: Calibration | None = None
    requirements: tuple[Requirement, ...] = ()
    model: str = ""

    @property
    def is_static(self) -> bool:
        """Does a rule need ranges that were seen before?"""
        return any(rule.scheme.scale == "static" for rule in self.rules)

    @property
    def is_fitted(self) -> bool:
        """Does a rule need what weights were multiplied with before?"""
        return any(rule.scheme.scale == "fitted" for rule in self.rules)

    @property
    def needs_samples(self) -> bool:
        return self.is_static or self.is_fitted

    def scheme(self, subject: Subject, operator: str, paths: Iterable[str]) -> Scheme:
        """What the last rule says that speaks of weights or activations of an operator under any of the paths."""
        paths = tuple(paths)
        for rule in reversed(self.rules):
            if rule.subject in (None, subject) and rule.selector.matches(operator, paths):
                return rule.scheme
        return F32

    def __str__(self) -> str:
        """The text that a model file says it in."""
        lines = [*self.rules, *([] if self.calibration is None else [self.calibration]), *self.requirements]
        return "\n".join((f"quantize {self.model or 'model'} {{", *(f"  {line}" for line in lines), "}"))


def _all(subject: Subject, dtype: str, operator: str = "", scale: Origin = "") -> Rule:
    return Rule(subject, Selector(operator=operator) if operator else EVERYTHING, Scheme(dtype, scale))


SHORT_FORMS: Mapping[str, Policy] = {
    "f32": Policy(),
    "bf16": Policy((_all("weights", "bf16"), _all("activations", "bf16"))),
    "f16": Policy((_all("weights", "f16"), _all("activations", "f16"))),
    "int8": Policy((_all("weights", "i8"), _all("activations", "i8", "matmul", "dynamic"))),
    "f8": Policy((_all("weights", "f8e4m3"),)),
    "int4": Policy((_all("weights", "q4[block 32, zero]"),)),
    "int4a8": Policy((_all("weights", "q4[block 32, zero]"), _all("activations", "i8", "matmul", "dynamic"))),
}
"""Policies by the names that `--precision` takes."""
