"""Ranges: between which numbers the values of a model lay on samples. A JSON file holds them beside a policy."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ..files import write_whole

_FORMAT = "nacre ranges 1"


@dataclass(frozen=True, slots=True)
class Ranges:
    """By the name of a value of the function `model`: what its least and its largest code stand for. `origin` says how
    they were found, on how many `samples`."""

    model: str
    origin: str
    samples: int
    values: Mapping[str, tuple[float, float]]

    @property
    def texts(self) -> tuple[str, ...]:
        """As passes take them, `name:low:high`; the numbers read back as they are."""
        return tuple(f"{name}:{low!r}:{high!r}" for name, (low, high) in self.values.items())

    def save(self, path: Path) -> None:
        """Writes all of it or nothing. Raises DiagnosticError."""
        data = {
            "format": _FORMAT,
            "model": self.model,
            "origin": self.origin,
            "samples": self.samples,
            "values": {name: list(bounds) for name, bounds in self.values.items()},
        }
        write_whole(path, json.dumps(data, indent=2) + "\n")


def load_ranges(path: Path) -> Ranges:
    """Raises DiagnosticError where the file is missing or none of ranges."""
    try:
        data = json.loads(path.read_bytes())
        if data["format"] != _FORMAT:
            raise ValueError(f"its format is `{data['format']}`, not `{_FORMAT}`")
        values = {str(name): (float(low), float(high)) for name, (low, high) in data["values"].items()}
        wrong = [
            name for name, bounds in values.items() if not all(map(math.isfinite, bounds)) or bounds[0] > bounds[1]
        ]
        if wrong:
            raise ValueError(f"`{wrong[0]}` has no range")
        return Ranges(str(data["model"]), str(data["origin"]), int(data["samples"]), values)
    except OSError as error:
        message = f"`{path}` cannot be read: {(error.strerror or str(error)).lower()}"
        raise DiagnosticError([Diagnostic("missing-file", message)]) from error
    except KeyError as error:
        raise _broken(path, f"it has no {error}") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise _broken(path, str(error)) from error


def _broken(path: Path, why: str) -> DiagnosticError:
    return DiagnosticError([Diagnostic("ranges-broken", f"`{path}` holds no ranges: {why}")])
