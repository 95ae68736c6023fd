"""Finds the operator of a training step that first computes a NaN or an infinity.

The interpreter repeats two steps: the last good one, and the bad one after it. Some values are infinite by design, such
as the logarithm of a mask, so a good step has infinities too. The operator to report is the first one of the bad step
that introduces a non-finite number and did not do so in the good step:

    good step    bias = log(mask)                   introduces inf, as designed
    bad step     bias = log(mask)    q = x / norm   `q` introduces NaN: reported
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ...dialect.graph import Module, Node
from ...dialect.interpreter import Interpreter, Load
from ...dialect.ops.support.accumulate import widen
from ...dialect.types import Array

Kind = Literal["", "inf", "nan"]
"""The kind of non-finite number in an array: NaN if it contains one, else infinity; empty if all elements are
finite."""


@dataclass(frozen=True, slots=True)
class Culprit:
    """A node that introduces non-finite numbers: its results have the kind `kind`, and none of its operands has."""

    node: Node
    kind: Kind


def kind_of(array: Array) -> Kind:
    """Returns the kind of the non-finite numbers in an array."""
    if array.dtype.names is not None or array.dtype.kind in "biu":
        return ""
    wide = widen(array)
    if np.isnan(wide).any():
        return "nan"
    return "" if np.isfinite(wide).all() else "inf"


@dataclass
class _Watch:
    """An observer of the interpreter that records the kind of every value, and the nodes that introduce one."""

    kinds: dict[str, Kind] = field(default_factory=dict)
    made: list[Culprit] = field(default_factory=list)

    def __call__(self, node: Node, results: Sequence[Array]) -> None:
        read = {self.kinds.get(value.name, "") for value in node.inputs}
        for value, result in zip(node.outputs, results, strict=True):
            kind = self.kinds[value.name] = kind_of(np.asarray(result))
            # Constants are non-finite by design, and the nodes inside a region are observed one by one.
            if kind and node.inputs and not node.regions and kind not in read and not (kind == "inf" and "nan" in read):
                self.made.append(Culprit(node, kind))


def watch_step(module: Module, load: Load, entry: str, arguments: Sequence[Array]) -> Sequence[Culprit]:
    """Returns the nodes that introduce non-finite numbers in one call of an entry, in order of execution. `arguments`
    are those of the call, followed by its states."""
    function = module.function(entry)
    watch = _Watch({v.name: kind_of(np.asarray(a)) for v, a in zip(function.arguments, arguments, strict=True)})
    Interpreter(module, load, observe=watch).run(function, arguments)
    return watch.made


def first_new(made: Sequence[Culprit], before: Sequence[Culprit]) -> Culprit | None:
    """Returns the first node of `made` that is not among those of an earlier step, `before`."""
    known: Set[tuple[str, Kind]] = {(c.node.outputs[0].name, c.kind) for c in before}
    return next((c for c in made if (c.node.outputs[0].name, c.kind) not in known), None)


def are_finite(states: Mapping[str, Array]) -> bool:
    return not any(map(kind_of, states.values()))
