"""Records the checks that passed, so that the same check is not repeated in other builds.

A check depends on the compiler, the CPU, the reference graph, the data of its parameters, and on its subject, which is
a graph, a kernel or an artifact. The key of a check is a digest of all of them. Failed checks are not remembered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...dialect.graph import Module, Parameter
from ...dialect.interpreter import Load
from ...dialect.printer import print_module
from ..base.spans import without_spans
from ..base.store import Store
from ..identity import identify_compiler
from ..targets.target import identify_host


class Passed:
    """The checks that were passed before, in a folder; without a folder, nothing is remembered."""

    def __init__(self, folder: Path | None, load: Load) -> None:
        self._store, self._load, self.active = Store(folder), load, folder is not None
        self._data: dict[str, str] = {}

    def key(self, reference: Module, *subject: str | bytes | Module) -> str:
        """Returns the key of the check that `subject` computes what `reference` does; empty if none is remembered."""
        if not self.active:
            return ""
        digest = hashlib.sha256()
        data = (self._digest(parameter) for parameter in reference.parameters)
        for part in (identify_compiler(), identify_host(), *data, reference, *subject):
            digest.update(hashlib.sha256(_bytes(part)).digest())
        return digest.hexdigest()

    def has(self, key: str) -> bool:
        return self._store.get(key) is not None

    def add(self, keys: Iterable[str]) -> None:
        for key in filter(None, keys):
            self._store.put(key, b"")

    def _digest(self, parameter: Parameter) -> str:
        """Returns a digest of the stored data that a parameter is made of."""
        if parameter.name not in self._data:
            digest = hashlib.sha256()
            for stored in parameter.formula.parameters if parameter.formula is not None else [parameter]:
                for index in np.ndindex(*stored.counts):
                    digest.update(np.ascontiguousarray(self._load(stored.at(index))).tobytes())
            self._data[parameter.name] = digest.hexdigest()
        return self._data[parameter.name]


def _bytes(part: str | bytes | Module) -> bytes:
    text = print_module(without_spans(part)) if isinstance(part, Module) else part
    return text.encode() if isinstance(text, str) else text


def under_one_name(module: Module) -> Module:
    """Returns a module of one function with names that do not depend on where the function was cut out."""
    (function,) = module.functions
    return replace(module, name="part", functions=(replace(function, name="part"),))
