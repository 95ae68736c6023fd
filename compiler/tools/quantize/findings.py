"""The findings of a search so far, saved in a file: an interrupted search continues from it, and a search for another
budget needs no new measurement of layers.

The file is written atomically after each finding. It belongs to one question, the data that determine the measurements
(the model, the samples, the options); for another question it is started anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...base.files import write_whole
from .layers import Assignment
from .trials import Times

_FORMAT = "nacre search 1"


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurement of one layer alone in a choice: the mean squared error of the results, relative to the mean
    square of the results, the layer's time in seconds, and whether these are estimates."""

    harm: float
    seconds: float
    estimated: bool


@dataclass(frozen=True, slots=True)
class Tried:
    """An assignment measured on all samples: every figure that can be bounded, None if it is not available, and the
    seconds of a call."""

    figures: Mapping[str, float | None]
    seconds: float


@dataclass
class Findings:
    """The findings of one search, identified by `question`; without a `path` nothing is saved."""

    question: Mapping[str, Any]
    path: Path | None = None
    plain: Times | None = None
    by_layer: dict[str, dict[str, Measured]] = field(default_factory=dict)
    _tried: dict[str, Tried] = field(default_factory=dict)

    @property
    def plain_layers(self) -> Mapping[str, float]:
        assert self.plain is not None, "nothing was measured yet"
        return self.plain.layers

    @property
    def plain_call(self) -> float:
        assert self.plain is not None, "nothing was measured yet"
        return self.plain.call

    def plain_of(self, path: str) -> float:
        return self.plain_layers[path]

    def measured(self, path: str, choice: str) -> Measured | None:
        return self.by_layer.get(path, {}).get(choice)

    def tried(self, chosen: Assignment) -> Tried | None:
        return self._tried.get(_key(chosen))

    def set_plain(self, times: Times) -> None:
        self.plain = times
        self._save()

    def add(self, path: str, choice: str, measured: Measured) -> None:
        self.by_layer.setdefault(path, {})[choice] = measured
        self._save()

    def add_tried(self, chosen: Assignment, tried: Tried) -> None:
        self._tried[_key(chosen)] = tried
        self._save()

    def _save(self) -> None:
        if self.path is None:
            return
        data = {
            "format": _FORMAT,
            "question": self.question,
            "plain": None if self.plain is None else asdict(self.plain),
            "measured": {path: {c: asdict(m) for c, m in found.items()} for path, found in self.by_layer.items()},
            "tried": {key: asdict(tried) for key, tried in self._tried.items()},
        }
        write_whole(self.path, json.dumps(data, indent=2) + "\n")


def _key(chosen: Assignment) -> str:
    return json.dumps(dict(sorted(chosen.items())))


def open_findings(path: Path | None, question: Mapping[str, Any]) -> Findings:
    """Reads the findings of the question from a file; empty if the file does not exist, belongs to another question or
    is damaged, since all of it can be measured again."""
    findings = Findings(question, path)
    if path is None:
        return findings
    try:
        data = json.loads(path.read_bytes())
        if data["format"] != _FORMAT or data["question"] != json.loads(json.dumps(question)):
            return findings
        plain = None if data["plain"] is None else Times(**data["plain"])
        layers = {p: {c: Measured(**m) for c, m in found.items()} for p, found in data["measured"].items()}
        tried = {key: Tried(**one) for key, one in data["tried"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return findings
    return Findings(question, path, plain, layers, tried)
