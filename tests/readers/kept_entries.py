"""A model with some of its entries, for tests that call no others."""

from __future__ import annotations

from dataclasses import replace

from nacre.compiler.model.source import SourceModel


def keep_entries(source: SourceModel, *names: str) -> SourceModel:
    functions = tuple(source.module.function(name) for name in names)
    return replace(source, module=replace(source.module, functions=functions))
