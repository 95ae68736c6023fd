"""The environment in which chat templates run.

A template comes from a file of others, so it runs in a sandbox. It has the tags, filters and functions that the package
`transformers` gives to templates.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class GenerationTag(Extension):
    """`{% generation %}` marks the texts of answers for training. It changes no text."""

    tags = frozenset({"generation"})  # type: ignore[assignment]  # Jinja reads it only

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def template_environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, "jinja2.ext.loopcontrols"]
    )
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    environment.filters["tojson"] = _to_json
    return environment


def render(source: str, values: Mapping[str, Any]) -> str:
    """Returns the text of a template. Raises any exception that an expression of the template raises."""
    return template_environment().from_string(source).render(**values)


def reads_tools(source: str) -> bool:
    """Returns whether a template reads the variable `tools`. Raises as `render` does."""
    names = template_environment().parse(source).find_all(nodes.Name)
    return any(name.name == "tools" and name.ctx == "load" for name in names)


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _now(format: str) -> str:
    return datetime.now().strftime(format)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Unlike the filter of Jinja, it escapes no characters for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
