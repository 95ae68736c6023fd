"""Parses index maps, as MLIR prints them, into the tiler's model."""

from __future__ import annotations

import re
from typing import Any

from ....dialect.emitter import Index
from .structure import Panel, Position, Unsupported

_TERM = re.compile(r"(?:d(\d+)(?: \* (-?\d+))?|(-?\d+))")
_PANEL = re.compile(r"(.+) (floordiv|mod) (\d+)")


def read_map(map: Any) -> tuple[Position, ...]:
    return tuple(_read_position(str(result)) for result in map.results)


def _read_position(text: str) -> Position:
    panel = _PANEL.fullmatch(text)
    if panel is not None:
        inner, kind, width = panel.groups()
        return Panel(_read_linear(inner.strip("()")), int(width), kind == "mod")
    return _read_linear(text)


def _read_linear(text: str) -> Index:
    total = Index((), 0)
    for part in text.split(" + "):
        term = _TERM.fullmatch(part.strip("() "))
        if term is None:
            raise Unsupported(f"the index `{text}`")
        loop, factor, number = term.groups()
        total = total + (int(number) if loop is None else Index(((int(loop), int(factor or 1)),)))
    return total
