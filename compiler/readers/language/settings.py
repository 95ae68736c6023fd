"""Values for the hyper-parameters of models from outside of the text: `--set n=4`, `nacre.compile(settings={"n": 4})`.

A setting is named `n`, for every model with such a hyper-parameter, or `classify.n`, for one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ....dialect.diagnostics import Diagnostic, DiagnosticError, Span
from ....dialect.types import DTYPES
from . import syntax
from .context import Context, suggest
from .parse import parse
from .values import AnyValue, Hyper

SOURCE = "--set"
Settings = Mapping[str, Any]


def read_settings(texts: Iterable[str]) -> Settings:
    """Returns the settings of `name=value` texts. Values are literals of the language, others are text. Raises
    DiagnosticError."""
    found: dict[str, Any] = {}
    for text in texts:
        name, sign, value = (part.strip() for part in text.partition("="))
        if not sign or not all(part.isidentifier() for part in name.split(".")):
            message = f"`{text}` is not a setting"
            raise DiagnosticError([Diagnostic("bad-setting", message, help="a setting is `name=value`, as in `n=4`")])
        found[name] = _literal(value)
    return found


def _literal(text: str) -> Any:
    try:
        (item,) = parse(f"value = {text}", SOURCE).items
    except (DiagnosticError, ValueError):
        return text
    value = _constant(item.value) if isinstance(item, syntax.Assign) else NotImplemented
    return text if value is NotImplemented else value


def _constant(node: syntax.Expression) -> Any:
    if isinstance(node, (syntax.Integer, syntax.Float, syntax.Boolean, syntax.String)):
        return node.value
    if isinstance(node, syntax.Nothing):
        return None
    if isinstance(node, syntax.Unary) and node.operator == "-":
        value = _constant(node.operand)
        return -value if isinstance(value, (int, float)) else NotImplemented
    if isinstance(node, (syntax.List, syntax.Tuple)):
        values = tuple(_constant(item) for item in node.items)
        return NotImplemented if NotImplemented in values else values
    return NotImplemented


def settings_of(context: Context, model: syntax.Model) -> dict[str, Hyper]:
    """Returns the hyper-parameters of a model that settings give. A text that is the name of a dtype is the dtype."""
    found: dict[str, Hyper] = {}
    for hyper in model.hypers:
        name = hyper.name.name
        for key in (name, f"{model.name.name}.{name}"):
            if key in context.program.settings:
                value = _value(context.program.settings[key])
                found[name] = Hyper(value, hyper.name.span, str(context.program.settings[key]))
    return found


def _value(given: Any) -> AnyValue:
    if isinstance(given, np.generic):
        given = given.item()
    if isinstance(given, str):
        return DTYPES.get(given, given)
    if isinstance(given, (list, tuple)):
        return tuple(map(_value, given))
    if given is None or isinstance(given, (bool, int, float)):
        return given
    message = f"a setting is a number, a text, true, false, None or a list, not {type(given).__name__}"
    raise DiagnosticError([Diagnostic("bad-setting", message)])


def check_settings(context: Context, models: Iterable[syntax.Model], span: Span | None) -> None:
    """Reports settings that no model has."""
    hypers = {(model.name.name, hyper.name.name) for model in models for hyper in model.hypers}
    known = [name for _, name in sorted(hypers)] + [f"{model}.{name}" for model, name in sorted(hypers)]
    for name in context.program.settings:
        if name not in known:
            listed = ", ".join(f"`{n}`" for n in dict.fromkeys(known) if "." not in n) or "none"
            help_text = suggest(name, known) or f"the models of this file have {listed}"
            context.reporter.error("bad-setting", f"no model has a hyper-parameter `{name}`", span, help=help_text)
