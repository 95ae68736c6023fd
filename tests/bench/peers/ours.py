"""Nacre: one contender for the model file, and one for each variant of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nacre
from measure import Contender
from prepare import Model

NAME = "nacre"


def compile_all(model: Model, options: Mapping[str, Any]) -> dict[str, Path]:
    """The artifacts by the names of their contenders. Raises what `nacre.compile` raises."""
    paths = {NAME: model.path, **model.variants}
    for path in paths.values():
        nacre.compile(path, path.with_suffix(".so"), weights=model.checkpoint, **options)
    return {name: path.with_suffix(".so") for name, path in paths.items()}


def contenders(model: Model, artifacts: Mapping[str, Path], threads: int) -> Iterator[Contender]:
    inputs = list(model.inputs.values())
    for name, path in artifacts.items():
        entry = next(iter(nacre.load(path, threads=threads).entries.values()))
        yield Contender(name, lambda entry=entry: entry(*inputs), _arrays)


def _arrays(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]
