"""Fields of parsed JSON, with an error that names the field if it is missing or of another kind."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from .tree import Numbers, tree_error


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        message = f"`{path}` cannot be read: {error.strerror or error}"
        raise DiagnosticError([Diagnostic("missing-file", message)]) from error


def parse_json(data: bytes | str, file: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise tree_error(f"`{file}` is not JSON: {error}") from error


def field(record: Any, *path: str, tree: int | None = None) -> Any:
    """Returns a field inside records. Raises DiagnosticError if it is missing."""
    for depth, name in enumerate(path):
        if not isinstance(record, Mapping) or name not in record:
            raise tree_error(f"`{'.'.join(path[: depth + 1])}` is missing", tree)
        record = record[name]
    return record


def mapping(record: Any, *path: str, tree: int | None = None) -> Mapping[str, Any]:
    found = field(record, *path, tree=tree)
    if not isinstance(found, Mapping):
        raise tree_error(f"`{'.'.join(path)}` is not a record", tree)
    return found


def sequence(record: Any, *path: str, tree: int | None = None) -> Sequence[Any]:
    found = field(record, *path, tree=tree)
    if not isinstance(found, list | tuple | np.ndarray):
        raise tree_error(f"`{'.'.join(path)}` is not a list", tree)
    return found  # type: ignore[return-value]  # an array of one axis is a sequence


def optional_sequence(record: Mapping[str, Any], name: str) -> Sequence[Any]:
    """Returns a list, which is empty if the field is missing or null."""
    return sequence(record, name) if record.get(name) else []


def optional_mapping(record: Any, *path: str) -> Mapping[Any, Any]:
    """Returns a record inside records, which is empty if one of them is missing or is no record."""
    for name in path:
        record = record.get(name) if isinstance(record, Mapping) else None
    return record if isinstance(record, Mapping) else {}


def records(record: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    """Returns a list of records, which is empty if the field is missing or null."""
    found = optional_sequence(record, name)
    for number, each in enumerate(found):
        if not isinstance(each, Mapping):
            raise tree_error(f"element {number} of `{name}` is not a record")
    return found


def numbers(record: Any, name: str, dtype: Any, count: int | None = None, tree: int | None = None) -> Numbers:
    """Returns a list of numbers, of `count` elements if it is given."""
    found = sequence(record, name, tree=tree)
    try:
        array: Numbers = np.asarray(found, np.float64 if len(found) else dtype)
        if array.ndim != 1 or (np.dtype(dtype).kind == "i" and not (array == np.trunc(array)).all()):
            raise ValueError
        result: Numbers = array.astype(dtype)
    except (TypeError, ValueError, OverflowError):
        raise tree_error(
            f"`{name}` is not a list of {'integers' if np.dtype(dtype).kind == 'i' else 'numbers'}", tree
        ) from None
    if count is not None and len(result) != count:
        raise tree_error(f"`{name}` has {len(result)} elements, expected {count}", tree)
    return result


def integer(record: Any, *path: str, tree: int | None = None) -> int:
    """Returns an integer, which may be written as text."""
    found = field(record, *path, tree=tree)
    try:
        return int(found)
    except (TypeError, ValueError, OverflowError):
        raise tree_error(f"`{'.'.join(path)}` is `{found!r:.40}`, not an integer", tree) from None


def number(value: Any, name: str, tree: int | None = None) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        raise tree_error(f"`{name}` is `{value!r:.40}`, not a number", tree) from None
    if math.isnan(found):
        raise tree_error(f"`{name}` is not a number", tree)
    return found
