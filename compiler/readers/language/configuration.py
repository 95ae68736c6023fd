"""`config "config.json" as c`: the JSON of a checkpoint as a record with keys that the source may read.

Objects become records, arrays tuples, null None. Nothing is computed from the values, and a missing key has no default.
"""

from __future__ import annotations

import json
import math
from typing import Any

from ....dialect.diagnostics import Span
from . import syntax
from .context import INTEGER, Context, suggest
from .files import read_file
from .values import ERROR, AnyValue, FileScope, Poison, Record


def load_config(context: Context, file: FileScope, item: syntax.Config) -> Record | Poison:
    given = context.program.configs.get(item.path.value)
    if given is not None:
        record = _convert(given, item.name.name)
        assert isinstance(record, Record)
        return record
    found = read_file(context, file, item.path, context.program.folders)
    if found is ERROR:
        return ERROR
    report = context.reporter.error
    try:
        content = json.loads(found[1].decode("utf-8-sig"))
    except UnicodeDecodeError:
        return report("bad-config", f'"{item.path.value}" is not UTF-8 text', item.path.span)
    except json.JSONDecodeError as error:
        message = f'"{item.path.value}" is not JSON: {error.msg.lower()} in line {error.lineno}, column {error.colno}'
        return report("bad-config", message, item.path.span)
    except (RecursionError, ValueError):
        return report(
            "bad-config", f'"{item.path.value}" contains values that are nested too deeply or too long', item.path.span
        )
    if not isinstance(content, dict):
        return report("bad-config", f'"{item.path.value}" does not contain a JSON object', item.path.span)
    record = _convert(content, item.name.name)
    assert isinstance(record, Record)
    return record


def _convert(content: Any, label: str) -> AnyValue:
    if isinstance(content, dict):
        return Record(label, {key: _convert(value, f"{label}.{key}") for key, value in content.items()})
    if isinstance(content, (list, tuple)):
        return tuple(_convert(value, f"{label}[{number}]") for number, value in enumerate(content))
    assert content is None or isinstance(content, (bool, int, float, str)), content
    return content


def look_up(context: Context, record: Record, key: str, span: Span) -> AnyValue:
    """Returns the value of a key. The error for a missing key suggests the nearest one."""
    if key not in record.fields:
        help_text = suggest(key, record.fields)
        return context.reporter.error("unknown-key", f"`{record.label}` has no key `{key}`", span, help=help_text)
    value = record.fields[key]
    if isinstance(value, int) and abs(value) >= INTEGER:
        return context.reporter.error("integer-overflow", f"`{record.label}.{key}` does not fit 64 bits", span)
    if isinstance(value, float) and math.isnan(value):
        return context.reporter.error("bad-config", f"`{record.label}.{key}` is not a number", span)
    return value
