"""The metadata of a GGUF file, and the names of its tensors.

The names of keys are those of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, each after the name of the
architecture: `llama.block_count`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ...weights import Checkpoint
from ...weights.gguf_header import GgufHeader

_GREATEST = float(np.finfo(np.float32).max)
"""The largest number that hyper-parameters can have: files store them as f32."""


def bad_gguf(message: str, help: str = "") -> DiagnosticError:
    return DiagnosticError([Diagnostic("bad-gguf", message, help=help)])


@dataclass(frozen=True, slots=True)
class Metadata:
    """The metadata of a file, read by keys without the name of the architecture."""

    path: Path
    architecture: str
    values: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    checkpoint: Checkpoint

    def find(self, key: str, default: Any = None) -> Any:
        return self.values.get(f"{self.architecture}.{key}", default)

    def size(self, key: str, default: int | None = None) -> int:
        """Returns a positive integer."""
        value = self._value(key, default)
        if type(value) is not int or not 0 < value < 1 << 31:
            raise self.wrong(key, value, "a size")
        return value

    def count(self, key: str, default: int = 0) -> int:
        """Returns an integer that may be 0."""
        value = self._value(key, default)
        if type(value) is not int or not 0 <= value < 1 << 31:
            raise self.wrong(key, value, "a count")
        return value

    def text(self, key: str, default: str) -> str:
        value = self.find(key, default)
        if not isinstance(value, str):
            raise self.wrong(key, value, "text")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.find(key, default)
        if type(value) not in (bool, int):
            raise self.wrong(key, value, "true or false")
        return bool(value)

    def wrong(self, key: str, value: Any, wanted: str) -> DiagnosticError:
        return bad_gguf(f"`{self.architecture}.{key}` of `{self.path}` is {value!r}, not {wanted}")

    def _value(self, key: str, default: Any) -> Any:
        """Returns a value that must exist; of an array of equal integers, one for each layer, its element."""
        value = self.find(key, default)
        if value is None:
            raise bad_gguf(f"`{self.path}` does not state its `{self.architecture}.{key}`")
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size and (value == value[0]).all():
            return int(value[0])
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Returns a finite number."""
        value = self._value(key, default)
        if type(value) not in (int, float) or not abs(value) <= _GREATEST:
            raise self.wrong(key, value, "a number of f32")
        # The file stores f32: the shortest decimal of this f32 is 1e-5, and not 9.999999747e-06.
        return float(str(np.float32(value)))

    def positive(self, key: str, default: float) -> float:
        value = self.number(key, default)
        if value <= 0:
            raise bad_gguf(f"`{self.architecture}.{key}` of `{self.path}` is {value}, which is not positive")
        return value

    def divisors(self, tensor: str, pairs: int) -> tuple[float, ...]:
        """Returns the elements of a tensor, one positive number for each of `pairs`."""
        values = np.asarray(self.checkpoint.read(tensor), np.float32)
        if values.shape != (pairs,) or not (np.isfinite(values) & (values > 0)).all():
            raise bad_gguf(f"`{tensor}` of `{self.path}` is not one positive divisor for each of {pairs} pairs")
        return tuple(float(str(value)) for value in values)

    def has(self, tensor: str) -> bool:
        return tensor in self.shapes


def read_metadata(header: GgufHeader, checkpoint: Checkpoint) -> Metadata:
    architecture = header.metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise bad_gguf(f"`{header.path}` does not state its `general.architecture`")
    shapes = {tensor.name: tensor.shape for tensor in header.tensors}
    return Metadata(header.path, architecture, header.metadata, shapes, checkpoint)
