"""Which policies a build follows: those of the model's own file, a short form, or a file or text of policies alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ..frontend import Elaborated, syntax
from ..frontend.context import Context, Program, Reporter, suggest
from ..frontend.expressions import evaluate
from ..frontend.parse import normalise, parse, read_text
from ..frontend.policies import read_policies
from ..frontend.values import FileScope
from .apply import before_rounding, quantized
from .calibrate import find_ranges
from .effects import find_effects
from .fit import find_fits
from .policy import SHORT_FORMS, Policy

TEXT = "policy.nacre"
"""What a text of policies is called in diagnostics."""


def is_text(precision: str) -> bool:
    return "{" in precision or "\n" in precision


@dataclass(frozen=True, slots=True)
class _Written:
    """The text of policies, what it is called, and the folder that its files are looked for in."""

    text: str
    file: str
    folder: Path


def _find_text(precision: str | None) -> _Written | None:
    """The text that policies stand in, where it is not the model's own. Raises DiagnosticError."""
    if precision is None or precision in SHORT_FORMS:
        return None
    if is_text(precision):
        return _Written(normalise(precision), TEXT, Path.cwd())
    path = Path(precision)
    if path.suffix != ".nacre":
        message = f"there is no precision `{precision}`"
        known = f"there are {', '.join(SHORT_FORMS)}, or a .nacre file with policies"
        raise DiagnosticError([Diagnostic("unknown-precision", message, help=suggest(precision, SHORT_FORMS) or known)])
    return _Written(normalise(read_text(path)), str(path), path.parent)


def _choose(elaborated: Elaborated, precision: str | None, written: _Written | None) -> Mapping[str, Policy]:
    """The policies by the names of models. Raises DiagnosticError."""
    if written is not None:
        return _read(written, elaborated)
    if precision is None:
        return {policy.model: policy for policy in elaborated.policies}
    return {f.name: replace(SHORT_FORMS[precision], model=f.name) for f in elaborated.module.functions}


def _read(written: _Written, elaborated: Elaborated) -> Mapping[str, Policy]:
    tree = parse(written.text, written.file)
    reporter = Reporter({**elaborated.sources, written.file: written.text})
    for item in tree.items:
        if not isinstance(item, syntax.Quantize):
            reporter.error("not-a-policy", "a file of policies holds `quantize` alone", item.span)
    context, scope = Context(reporter, Program(), evaluate), FileScope(written.file, written.folder, tree)
    functions = {function.name: function for function in elaborated.module.functions}
    policies = read_policies(context, scope, functions, elaborated.module.parameter_index, functions)
    if reporter.diagnostics:
        raise DiagnosticError(reporter.diagnostics, reporter.sources)
    return {policy.model: policy for policy in policies}


def in_precision(elaborated: Elaborated, precision: str | None = None) -> Elaborated:
    """The model after its policies, or after those that `precision` names in their place: a short form such as `int8`,
    a `.nacre` file of policies, or such a text (with a brace). It has no policies any more. Raises DiagnosticError."""
    text = _find_text(precision)
    policies = _choose(elaborated, precision, text)
    if not any(policy.rules for policy in policies.values()):
        return replace(elaborated, policies=())
    said = precision if precision in SHORT_FORMS else "; ".join(map(str, policies.values()))
    ranges, fits = find_ranges(elaborated, policies), find_fits(elaborated, policies)
    module = quantized(elaborated.module, policies, ranges, fits)
    sources = {**elaborated.sources, **({} if text is None else {text.file: text.text})}
    written = replace(elaborated, policies=tuple(policies.values()), sources=sources)
    warnings = (*elaborated.warnings, *find_effects(before_rounding(elaborated.module), policies))
    return replace(
        elaborated,
        module=module,
        policies=(),
        sources=sources,
        precision=said or "f32",
        written=written,
        warnings=warnings,
    )
