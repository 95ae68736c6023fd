"""Selects the policies of a build: those of the model file, a short form, or a separate file or text of policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ...dialect.lazy_dataclass import dataclass
from ..comparison.require import check_requirements
from ..model.policy import SHORT_FORMS, TF32, Policy, short_form
from ..model.source import SourceModel
from ..readers.language import syntax
from ..readers.language.context import Context, Program, Reporter, suggest
from ..readers.language.expressions import evaluate
from ..readers.language.parse import normalise, parse, read_text
from ..readers.language.policies import read_policies
from ..readers.language.values import FileScope
from .apply import before_rounding, quantized
from .calibrate import find_ranges
from .effects import find_effects
from .fit import find_fits

TEXT = "policy.nacre"
"""The name of a policy text in diagnostics."""


def is_text(precision: str) -> bool:
    return "{" in precision or "\n" in precision


@dataclass(frozen=True, slots=True)
class _Written:
    """The text of policies, its name, and the folder for its relative paths."""

    text: str
    file: str
    folder: Path


def _find_text(precision: str | None) -> _Written | None:
    """Returns the text of the policies, if they are not the model's own. Raises DiagnosticError."""
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


def _choose(source_model: SourceModel, precision: str | None, written: _Written | None) -> Mapping[str, Policy]:
    """Returns the policies by the names of models. Raises DiagnosticError."""
    if written is not None:
        return _read(written, source_model)
    if precision is None:
        return {policy.model: policy for policy in source_model.policies}
    return {f.name: short_form(precision, f.name) for f in source_model.module.functions}


def _read(written: _Written, source_model: SourceModel) -> Mapping[str, Policy]:
    tree = parse(written.text, written.file)
    reporter = Reporter({**source_model.sources, written.file: written.text})
    for item in tree.items:
        if not isinstance(item, syntax.Quantize):
            reporter.error("not-a-policy", "a policy file may only contain `quantize`", item.span)
    context, scope = Context(reporter, Program(), evaluate), FileScope(written.file, written.folder, tree)
    functions = {function.name: function for function in source_model.module.functions}
    policies = read_policies(context, scope, functions, source_model.module.parameter_index, functions)
    if reporter.diagnostics:
        raise DiagnosticError(reporter.diagnostics, reporter.sources)
    return {policy.model: policy for policy in policies}


def in_precision(source_model: SourceModel, precision: str | None = None) -> SourceModel:
    """Applies the model's policies, or the policies that `precision` gives instead: a short form such as `int8`, a
    `.nacre` file of policies, or such a text (with a brace). The result has no policies. Raises DiagnosticError."""
    text = _find_text(precision)
    policies = _choose(source_model, precision, text)
    if not any(policy.rules for policy in policies.values()):
        return replace(source_model, policies=(), precision=TF32 if precision == TF32 else source_model.precision)
    said = precision if precision in SHORT_FORMS else "; ".join(map(str, policies.values()))
    ranges, fits = find_ranges(source_model, policies), find_fits(source_model, policies)
    module = quantized(source_model.module, policies, ranges, fits)
    sources = {**source_model.sources, **({} if text is None else {text.file: text.text})}
    written = replace(source_model, policies=tuple(policies.values()), sources=sources)
    warnings = (*source_model.warnings, *find_effects(before_rounding(source_model.module), policies))
    return replace(
        source_model,
        module=module,
        policies=(),
        sources=sources,
        precision=said or "f32",
        written=written,
        acceptance=check_requirements if any(policy.requirements for policy in policies.values()) else None,
        warnings=warnings,
    )
