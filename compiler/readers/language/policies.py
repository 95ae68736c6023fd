"""Reads `quantize` blocks as policies. Other modules apply them.

A rule that selects nothing is an error: a pattern that matches no path of the model, or an operator without products.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from ....dialect.diagnostics import Note
from ....dialect.graph import Function, Parameter, fill_braces, walk
from ....dialect.ops import OPERATORS
from ....passes.selection import CLASSES, Selector
from ...model.accuracy_figures import FIGURES
from ...model.policy import (
    SCHEMES,
    Calibration,
    Method,
    Policy,
    Requirement,
    Rule,
    Scheme,
    Subject,
    keep,
)
from . import syntax
from .context import Context, suggest
from .divided_steps import parts_of
from .files import find_file
from .synonyms import synonym
from .values import ERROR, FileScope, Poison

MOST_PATHS = 100_000
"""The largest number of paths that a pattern is compared with."""

_WITHOUT_SAMPLES = {"static": "`dynamic`", "fitted": "without `fitted`"}
"""Alternatives for schemes that need samples."""


def read_policies(
    context: Context,
    scope: FileScope,
    functions: Mapping[str, Function],
    parameters: Mapping[str, Parameter],
    models: Collection[str],
) -> list[Policy]:
    """Returns the policies of a file. `models` are all models by name, `functions` the valid ones. Of the policies of a
    file without models, which a command names beside a model, only the lines are checked. The parts of a divided step
    have its policy."""
    found: dict[str, Policy] = {}
    first: dict[str, syntax.Quantize] = {}
    parts = {step: parts_of(functions, step) for step in functions}
    whole = {part: step for step, names in parts.items() for part in names}
    for item in scope.tree.items:
        if not isinstance(item, syntax.Quantize):
            continue
        name = item.model.name
        if not models:
            _Reader(context, scope, None, parameters).policy(item)
        elif name not in models:
            message = f"there is no model `{name}`"
            context.reporter.error("unknown-name", message, item.model.span, help=suggest(name, models))
        elif name in whole:
            message = f"the policy of `{whole[name]}` applies to `{name}`, which is a part of it"
            context.reporter.error("duplicate-name", message, item.model.span)
        elif name in first:
            note = Note("the first one", first[name].span)
            context.reporter.error("duplicate-name", f"`{name}` has two policies", item.span, notes=[note])
        else:
            first[name] = item
            if name in functions:
                found[name] = _Reader(context, scope, functions[name], parameters).policy(item)
                found |= {part: replace(found[name], model=part) for part in parts[name]}
    return list(found.values())


class _Reader:
    def __init__(
        self, context: Context, scope: FileScope, function: Function | None, parameters: Mapping[str, Parameter]
    ) -> None:
        self.context, self.scope = context, scope
        self.report = context.reporter.error
        self.model = ""
        self.paths = None if function is None else _paths(function, parameters)

    def policy(self, item: syntax.Quantize) -> Policy:
        self.model = item.model.name
        rules: list[Rule] = []
        requirements: list[Requirement] = []
        calibration: Calibration | None = None
        for line in item.lines:
            if isinstance(line, syntax.Calibrate):
                if calibration is not None:
                    self.report("duplicate-name", "the policy has two `calibrate` lines", line.span)
                made = self.calibration(line)
                calibration = calibration if made is ERROR else made
            elif isinstance(line, syntax.Require):
                requirement = self.requirement(line)
                requirements += [] if requirement is ERROR else [requirement]
            else:
                rule = self.keep(line) if isinstance(line, syntax.Keep) else self.rule(line)
                rules += [] if rule is ERROR else [rule]
        if calibration is None and not any(isinstance(line, syntax.Calibrate) for line in item.lines):
            self.check_samples(rules)
        return Policy(tuple(rules), calibration, tuple(requirements), item.model.name)

    def check_samples(self, rules: Sequence[Rule]) -> None:
        for rule in rules:
            if rule.scheme.needs_samples:
                message = f"`{rule.scheme}` needs samples, but the policy has no `calibrate`"
                help_text = f'`calibrate on file "samples.npz"`, or {_WITHOUT_SAMPLES[rule.scheme.scale]}'
                self.report("no-calibration", message, rule.span, help=help_text)

    # --- rules ---

    def rule(self, line: syntax.Rule) -> Rule | Poison:
        subject: Subject = "weights" if line.subject == "weights" else "activations"
        selector, scheme = self.selector(line.selector, multiplied=True), self.scheme(subject, line.scheme)
        return ERROR if selector is ERROR or scheme is ERROR else Rule(subject, selector, scheme, line.span)

    def keep(self, line: syntax.Keep) -> Rule | Poison:
        selector = self.selector(line.selector, multiplied=False)
        return ERROR if selector is ERROR else keep(selector, line.span)

    def selector(self, node: syntax.String | syntax.Name, *, multiplied: bool) -> Selector | Poison:
        if isinstance(node, syntax.Name):
            return self.operator(node, multiplied=multiplied)
        selector = Selector(pattern=node.value)
        if self.paths is None or any(selector.matches("", [path]) for path in self.paths):
            return selector
        message = f'no parameter and no block of `{self.model}` is "{node.value}"'
        near = suggest(node.value, [*self.paths, *_prefixes(self.paths)])
        return self.report("unknown-path", message, node.span, help=near.replace("`", '"'))

    def operator(self, node: syntax.Name, *, multiplied: bool) -> Selector | Poison:
        name = node.name
        if name not in CLASSES and name not in OPERATORS:
            meant = synonym(name, OPERATORS)
            help_text = f"did you mean `{meant}`?" if meant else suggest(name, [*CLASSES, *OPERATORS])
            return self.report("unknown-name", f"there is no operator `{name}`", node.span, help=help_text)
        if multiplied and name not in CLASSES and not any(name in members for members in CLASSES.values()):
            message = f"`{name}` multiplies no weights and always computes in the dtype of the model"
            return self.report("not-quantised", message, node.span, help=f"operators are {', '.join(CLASSES)}")
        return Selector(operator=name)

    def scheme(self, subject: Subject, node: syntax.Scheme) -> Scheme | Poison:
        known = SCHEMES[subject]
        text = node.text if node.scale is None else f"{node.text} {node.scale.name}"
        found = next((scheme for scheme in known if str(scheme) == text), None)
        if found is not None:
            return found
        listed = ", ".join(f"`{scheme}`" for scheme in known if scheme.scale != "fitted")
        fitted = "; block formats may be `fitted`" if subject == "weights" else ""
        help_text = suggest(text, map(str, known)) or f"there are {listed}{fitted}"
        return self.report("unknown-type", f"{subject} cannot be stored as `{text}`", node.span, help=help_text)

    # --- data ---

    def calibration(self, line: syntax.Calibrate) -> Calibration | Poison:
        path = self.file(line.data)
        method: Method = "minmax"
        if line.method is not None:
            found = next((known for known in get_args(Method) if known == line.method.name), None)
            if found is None:
                help_text = suggest(line.method.name, get_args(Method)) or f"there are {', '.join(get_args(Method))}"
                message = f"there is no method `{line.method.name}` for calibration"
                return self.report("unknown-name", message, line.method.span, help=help_text)
            method = found
        if line.number is None:
            return ERROR if path is ERROR else Calibration(path, method, span=line.span)
        if method != "percentile" or not 50 < line.number <= 100:
            message = (
                "a percentile is above 50, and at most 100" if method == "percentile" else f"`{method}` takes none"
            )
            return self.report("bad-number", message, line.span)
        return ERROR if path is ERROR else Calibration(path, method, float(line.number), line.span)

    def requirement(self, line: syntax.Require) -> Requirement | Poison:
        figure = FIGURES.get(line.figure.name)
        if figure is None:
            help_text = suggest(line.figure.name, FIGURES) or f"known are {', '.join(FIGURES)}"
            message = f"there is no metric `{line.figure.name}`"
            return self.report("unknown-metric", message, line.figure.span, help=help_text)
        if line.comparison != figure.comparison:
            message = f"the comparison of `{figure.words}` must be `{figure.comparison}`, not `{line.comparison}`"
            return self.report("wrong-comparison", message, line.span)
        path = self.file(line.data)
        return ERROR if path is ERROR else Requirement(figure.words, float(line.limit), path, line.span)

    def file(self, data: syntax.FileData) -> Path | Poison:
        return find_file(self.context, self.scope, data.path, or_folder=True)


def _paths(function: Function, parameters: Mapping[str, Parameter]) -> list[str]:
    """Returns the paths of a model's parameters and blocks, with numbers for the braces of loops."""
    # A parameter that a training step changes is a state.
    counts: dict[str, Sequence[int]] = {name: () for name in function.states if name in parameters}
    longest = 1
    for node in walk(function.body):
        if node.op == "parameter":
            parameter = parameters[str(node.attribute("name"))]
            counts[parameter.name] = parameter.counts
        elif node.op == "repeat":
            count = node.attribute("count")
            longest = max(longest, count if isinstance(count, int) else 1)
    for scope in {node.scope for node in walk(function.body)} - {""}:
        counts.setdefault(scope, (longest,) * scope.count("{"))
    filled = (
        fill_braces(path, indices)
        for path, sizes in sorted(counts.items())
        for indices in itertools.product(*map(range, sizes))
    )
    return list(dict.fromkeys(itertools.islice(filled, MOST_PATHS)))


def _prefixes(paths: Sequence[str]) -> list[str]:
    """Returns the blocks that contain the paths."""
    return list(dict.fromkeys(path[:end] for path in paths for end, sign in enumerate(path) if sign == "."))
