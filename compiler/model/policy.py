"""Precision policies: the dtypes in which the weights and the activations of a model are stored.

A policy is data: rules, where later rules override earlier ones, the calibration data for ranges, and requirements. It
prints as the text of a model file. Other modules apply it to a graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from ...dialect.diagnostics import Span
from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import BLOCKED
from ...passes.quantization.codecs import CASTS, CODECS
from ...passes.selection import EVERYTHING, Selector
from .accuracy_figures import FIGURES

Subject = Literal["weights", "activations"]
"""Weights are the multiplied parameters, and tables from which rows are read; activations are the multiplied values
that a call computes. No other value is stored in another dtype than the model declares."""


Origin = Literal["", "dynamic", "static", "fitted"]


@dataclass(frozen=True, slots=True)
class Scheme:
    """A quantization scheme: the dtype as the language writes it, and the source of the scales. Scales of i8
    activations are computed from the numbers of each call, `dynamic`, or from calibrated ranges, `static`; those of i16
    activations, and of the weights that they multiply, are `dynamic`. Scales of block-quantized weights are computed
    from their own numbers, or `fitted`, with the quantized values, to the samples that multiply them."""

    dtype: str
    scale: Origin = ""

    def __str__(self) -> str:
        return f"{self.dtype} {self.scale}".rstrip()

    @property
    def needs_samples(self) -> bool:
        return self.scale in ("static", "fitted")


F32 = Scheme("f32")
"""The precision of the model."""
SCHEMES: Mapping[Subject, tuple[Scheme, ...]] = {
    "weights": (
        F32,
        *map(Scheme, CODECS),
        *(Scheme(dtype.name, "fitted") for dtype in BLOCKED),
    ),
    "activations": (
        F32,
        *map(Scheme, CASTS),
        Scheme("i16", "dynamic"),
        Scheme("i8", "dynamic"),
        Scheme("i8", "static"),
    ),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule `weights SELECTOR to SCHEME` or `activations SELECTOR to SCHEME`; or `keep SELECTOR`, for both."""

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
    """The samples that determine static ranges: `calibrate on file "x.npz" by percentile 99.99`. `percentile` is the
    parameter of the method of this name."""

    path: Path
    method: Method = "minmax"
    percentile: float = 99.99
    span: Span | None = None

    def __str__(self) -> str:
        number = f" {self.percentile:g}" if self.method == "percentile" else ""
        return f'calibrate on file "{self.path}" by {self.method}{number}'


@dataclass(frozen=True, slots=True)
class Requirement:
    """A required accuracy of the results relative to those in f32: `require error <= 1e-2 on file "x.npz"`. `figure` is
    a key of `FIGURES`, which also determines the comparison."""

    figure: str
    limit: float
    path: Path
    span: Span | None = None

    def __str__(self) -> str:
        return f'require {self.figure} {FIGURES[self.figure].comparison} {self.limit!r} on file "{self.path}"'


@dataclass(frozen=True, slots=True)
class Policy:
    """The precision rules of a model; `model` is empty for a policy that applies to every model of a file."""

    rules: tuple[Rule, ...] = ()
    calibration: Calibration | None = None
    requirements: tuple[Requirement, ...] = ()
    model: str = ""

    @property
    def is_static(self) -> bool:
        """Whether a rule needs calibrated ranges."""
        return any(rule.scheme.scale == "static" for rule in self.rules)

    @property
    def is_fitted(self) -> bool:
        """Whether a rule needs samples of the values that multiply weights."""
        return any(rule.scheme.scale == "fitted" for rule in self.rules)

    @property
    def needs_samples(self) -> bool:
        return self.is_static or self.is_fitted

    def scheme(self, subject: Subject, operator: str, paths: Iterable[str]) -> Scheme:
        """Returns the scheme of the last rule for weights or activations of an operator under any of the paths."""
        paths = tuple(paths)
        for rule in reversed(self.rules):
            if rule.subject in (None, subject) and rule.selector.matches(operator, paths):
                return rule.scheme
        return F32

    def __str__(self) -> str:
        """Returns the policy as text of a model file."""
        lines = [*self.rules, *([] if self.calibration is None else [self.calibration]), *self.requirements]
        return "\n".join((f"quantize {self.model or 'model'} {{", *(f"  {line}" for line in lines), "}"))


def _all(subject: Subject, dtype: str, operator: str = "", scale: Origin = "") -> Rule:
    return Rule(subject, Selector(operator=operator) if operator else EVERYTHING, Scheme(dtype, scale))


TF32 = "tf32"
"""Products of f32 on the tensor cores of GPUs, which round both factors to 11 bits. The graph is that of `f32`."""

A16 = "a16"
"""Products of f32 on CPUs that multiply pairs of 16-bit integers: code rounds both factors, a block of steps at a time.
No value of the graph has another dtype."""

SHORT_FORMS: Mapping[str, Policy] = {
    "f32": Policy(),
    TF32: Policy(),
    "bf16": Policy((_all("weights", "bf16"), _all("activations", "bf16"))),
    "f16": Policy((_all("weights", "f16"), _all("activations", "f16"))),
    "int8": Policy((_all("weights", "i8"), _all("activations", "i8", "matmul", "dynamic"))),
    "f8": Policy((_all("weights", "f8e4m3"),)),
    "int4": Policy((_all("weights", "q4[block 32, zero]"),)),
    "a8": Policy((_all("activations", "i8", "matmul", "dynamic"),)),
    A16: Policy((_all("activations", "i16", "matmul", "dynamic"),)),
    "int4a8": Policy((_all("weights", "q4[block 32, zero]"), _all("activations", "i8", "matmul", "dynamic"))),
    "a8bf16": Policy((_all("activations", "bf16", "matmul"),)),
}
"""The policies by the names that `--precision` accepts."""
_DECODING: Mapping[tuple[str, str], str] = {("a8bf16", model): "a8" for model in ("decode", "decode_rows")}
"""The short forms that replace another one in models of these names, which compute one token of each text."""


def short_form(precision: str, model: str) -> Policy:
    """Returns the policy of a model by the name of a short form."""
    return replace(SHORT_FORMS[_DECODING.get((precision, model), precision)], model=model)
