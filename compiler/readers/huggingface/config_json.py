"""The `config.json` of a folder, with checked access to its values, and the checkpoint of the folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ...weights import Checkpoint

_BYTES = 64 << 20
_REQUIRED = object()


def bad_folder(message: str, help: str = "") -> DiagnosticError:
    return DiagnosticError([Diagnostic("bad-folder", message, help=help)])


def read_json(path: Path) -> Mapping[str, Any]:
    """Returns the object of a JSON file. Raises DiagnosticError."""
    try:
        if path.stat().st_size > _BYTES:
            raise bad_folder(f"`{path}` is larger than {_BYTES >> 20} MiB")
        content = json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise DiagnosticError(
            [Diagnostic("missing-file", f"`{path}` cannot be read: {error.strerror or error}")]
        ) from error
    except (ValueError, RecursionError) as error:
        raise bad_folder(f"`{path}` is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise bad_folder(f"`{path}` does not contain a JSON object")
    return content


@dataclass(frozen=True, slots=True)
class Configuration:
    """The values of a `config.json`, or of an object in it; null counts as a missing key."""

    path: Path
    values: Mapping[str, Any]
    checkpoint: Checkpoint

    def find(self, key: str, default: Any = None) -> Any:
        value = self.values.get(key)
        return default if value is None else value

    def inner(self, key: str) -> Configuration:
        """Returns the configuration of a part."""
        value = self.find(key, {})
        if not isinstance(value, dict):
            raise self.wrong(key, "an object")
        return replace(self, values=value)

    def size(self, key: str, default: Any = _REQUIRED) -> int:
        """Returns a positive integer."""
        value = self._value(key, default)
        if type(value) is not int or not 0 < value < 1 << 31:
            raise self.wrong(key, "a size")
        return value

    def layers(self, key: str, default: Any = _REQUIRED) -> int:
        """Returns a number of layers, at most that of the tensors of the checkpoint: each layer has parameters."""
        layers, stored = self.size(key, default), len(self.checkpoint.tensors)
        if layers > stored:
            raise bad_folder(f"`{key}` of `{self.path}` is {layers}, but its weights have only {stored:,} tensors")
        return layers

    def count(self, key: str, default: int) -> int:
        """Returns an integer that may be 0."""
        value = self._value(key, default)
        if type(value) is not int or not 0 <= value < 1 << 31:
            raise self.wrong(key, "a count")
        return value

    def number(self, key: str, default: Any = _REQUIRED) -> float:
        """Returns a finite number."""
        value = self._value(key, default)
        # An integer may have more digits than a float holds.
        if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:
            raise self.wrong(key, "a number")
        return float(value)

    def positive(self, key: str, default: Any = _REQUIRED) -> float:
        value = self.number(key, default)
        if value <= 0:
            raise self.wrong(key, "a positive number")
        return value

    def divisors(self, key: str, pairs: int) -> tuple[float, ...]:
        """Returns a list of positive numbers, one for each of `pairs`."""
        values = self._value(key, _REQUIRED)
        wanted = f"{pairs} positive numbers"
        if not isinstance(values, list) or len(values) != pairs or not all(type(v) in (int, float) for v in values):
            raise self.wrong(key, wanted)
        if not all(0 < value <= sys.float_info.max for value in values):
            raise self.wrong(key, wanted)
        return tuple(float(value) for value in values)

    def flag(self, key: str, default: bool) -> bool:
        value = self._value(key, default)
        if type(value) is not bool:
            raise self.wrong(key, "true or false")
        return value

    def text(self, key: str, default: Any = _REQUIRED) -> str:
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self.wrong(key, "text")
        return value

    def wrong(self, key: str, wanted: str) -> DiagnosticError:
        return bad_folder(f"`{key}` of `{self.path}` is {self.find(key)!r}, not {wanted}")

    def unsupported(self, what: str) -> DiagnosticError:
        return bad_folder(f"`{self.path}` {what}, which is not supported")

    def has(self, tensor: str) -> bool:
        return tensor in self.checkpoint

    def _value(self, key: str, default: Any) -> Any:
        value = self.find(key)
        if value is None:
            if default is _REQUIRED:
                raise bad_folder(f"`{self.path}` does not state its `{key}`")
            return default
        return value

    def activation(self, key: str, default: Any = _REQUIRED) -> str:
        """Returns the name of an activation as the sources spell it."""
        name = self.text(key, default)
        if name not in _ACTIVATIONS:
            raise bad_folder(f"`{key}` of `{self.path}` is {name!r}", f"known are {', '.join(_ACTIVATIONS)}")
        return _ACTIVATIONS[name]

    def divided(self, width: int, heads: int) -> int:
        """Returns the width of a head."""
        if width % heads:
            raise bad_folder(f"`{self.path}` divides a width of {width} into {heads} heads")
        return width // heads


_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
    "quick_gelu": "gelu-sigmoid",
    "relu": "relu",
}
