"""Finds the kernels that the tiler does not support, without generating code for the others.

Many units differ only in features and sizes that few kernels have a use for. A unit that would answer all questions of
the tiler as another one did gets the same kernel, which is written once for both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import fields
from functools import cache, lru_cache
from typing import Any

from nacre.compiler.base.mlir import ir
from nacre.compiler.codegen.tiler.kernels import write_kernel
from nacre.compiler.codegen.tiler.structure import Sequential, Unsupported
from nacre.compiler.targets.vector_unit import VectorUnit


@cache
def open_context() -> Any:
    """The MLIR context of all kernels, since creating one takes as long as tiling a small kernel."""
    context = ir.Context()
    context.enable_multithreading(False)
    context.allow_unregistered_dialects = True
    return context


@lru_cache(maxsize=1)
def _parse(text: str) -> Any:
    """The module of a text, which reading does not change: parsed once for all units that ask in turn."""
    return ir.Module.parse(text)


class _Asked(AbstractSet[str]):
    """The features of a unit, which keep the answers to what the tiler asks. It may ask for one feature, or whether
    several are all there; any other question would depend on features that it does not name."""

    def __init__(self, features: frozenset[str]) -> None:
        self._features = features
        self.answers: dict[str, bool] = {}

    def __contains__(self, feature: object) -> bool:
        assert isinstance(feature, str)
        self.answers[feature] = feature in self._features
        return self.answers[feature]

    def __ge__(self, others: AbstractSet[object]) -> bool:
        missing = sorted(str(feature) for feature in others if feature not in self._features)
        if not missing:
            return all([feature in self for feature in others])
        # A single one that is missing decides, rather one that the tiler knows to be missing anyway.
        return next((feature for feature in missing if feature in self.answers), missing[0]) in self

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("the tiler asks for all features")

    def __len__(self) -> int:
        raise AssertionError("the tiler asks for the number of features")


class _AskedUnit:
    """A unit that keeps its fields that the tiler reads. Methods read the fields of this object."""

    def __init__(self, unit: VectorUnit) -> None:
        self._unit = unit
        self.features = _Asked(unit.features)
        self.read: dict[str, object] = {}

    def __getattr__(self, name: str) -> Any:
        if name not in _FIELDS:
            return getattr(VectorUnit, name).__get__(self)
        self.read[name] = getattr(self._unit, name)
        return self.read[name]

    def answers_as(self, unit: VectorUnit) -> bool:
        """Returns whether another unit gives the same answers to all that was asked."""
        return all(getattr(unit, name) == value for name, value in self.read.items()) and all(
            (feature in unit.features) == answer for feature, answer in self.features.answers.items()
        )


_FIELDS = {field.name for field in fields(VectorUnit)}


class Tiled:
    """The kernel of a text, which is written once for all units with the same outcome."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._outcomes: list[tuple[_AskedUnit, str]] = []

    def find_fault(self, unit: VectorUnit) -> str:
        """Returns why the kernel becomes plain loops for a unit, empty if it does not."""
        for other, fault in self._outcomes:
            if other.answers_as(unit):
                return fault
        asked = _AskedUnit(unit)
        fault = self._write(asked)
        self._outcomes.append((asked, fault))
        return fault

    def _write(self, unit: _AskedUnit) -> str:
        with open_context():
            function = _parse(self._text).body.operations[0]
            try:
                write_kernel(function, unit, strict=False)  # type: ignore[arg-type]  # it has the fields of a unit
            except Sequential:
                return ""
            except Unsupported as reason:
                return f"{ir.StringAttr(function.attributes['sym_name']).value}: {reason}"
        return ""


def find_untiled(kernel: Tiled, units: Iterable[VectorUnit]) -> Iterator[str]:
    """Yields a line for each unit for which a kernel would become plain loops."""
    for unit in units:
        if fault := kernel.find_fault(unit):
            yield f"{fault} ({unit.bytes} bytes, {sorted(unit.features)})"
