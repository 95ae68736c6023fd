"""The formulas by which a call determines its dims from the shapes of its arguments, and the checks of an artifact.

For the arguments x: f32[B, 2*T + 1] and y: f32[B*N]:

    B == axis 0 of x
    T == (axis 1 of x - 1) / 2
    N == axis 0 of y / B             after B

`check_artifact` rejects artifacts that cannot be called, such as one with a dim that no argument determines.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from ...dialect.diagnostics import Diagnostic
from ...dialect.dims import Monomial, Poly, Size, Symbol, add, bounds, divide_exactly, symbols
from ...dialect.lazy_dataclass import dataclass
from .spec import WEIGHT_ALIGNMENT, ArtifactSpec, EntrySpec


@dataclass(frozen=True, slots=True)
class Binding:
    """The formula of a dim in a call: `dim == (axis - rest) / divisor * factor` for one axis of one argument.

    For `x: f32[B, 2*T + 1]` the bindings are B == axis 0 and T == (axis 1 - 1) / 2.
    """

    dim: Symbol
    argument: int
    axis: int
    rest: Size
    divisor: Size
    factor: int


def _split(size: Size, symbol: Symbol) -> tuple[Size, Size] | None:
    """Returns (coefficient, rest) with `size == coefficient * unit of symbol + rest`, or None if it is not linear."""
    coefficient: Size = 0
    rest: Size = 0
    terms: tuple[tuple[Monomial, int], ...] = size.terms if isinstance(size, Poly) else (((), size),)
    for monomial, factor in terms:
        others = tuple((a, p) for a, p in monomial if a != symbol)
        part: Size = Poly(((others, factor),)) if others else factor
        if symbol in symbols(part) or ((symbol, 1) not in monomial and len(others) != len(monomial)):
            return None
        if len(others) == len(monomial):
            rest = add(rest, part)
        else:
            coefficient = add(coefficient, part)
    return (coefficient, rest) if coefficient != 0 else None


def _bind(size: Size, symbol: Symbol, argument: int, axis: int, known: set[Symbol]) -> Binding | None:
    split = _split(size, symbol)
    if split is None:
        return None
    coefficient, rest = split
    if not symbols(coefficient) | symbols(rest) <= known or bounds(coefficient)[0] <= 0:
        return None
    divisor = divide_exactly(coefficient, symbol.multiple)
    if divisor is not None:
        return Binding(symbol, argument, axis, rest, divisor, 1)
    common = gcd(coefficient, symbol.multiple) if isinstance(coefficient, int) else 1
    reduced = coefficient // common if isinstance(coefficient, int) else coefficient
    return Binding(symbol, argument, axis, rest, reduced, symbol.multiple // common)


def bind_dims(entry: EntrySpec) -> tuple[tuple[Binding, ...], tuple[Symbol, ...]]:
    """Returns the bindings of the dims to argument shapes, in a solvable order, and the dims without a binding. A
    session binds its dims before.

    An axis that is the dim itself is preferred to an expression of it.
    """
    axes = [(a, x, size) for a, argument in enumerate(entry.arguments) for x, size in enumerate(argument.type.shape)]
    found: dict[Symbol, Binding] = {}
    given = set(entry.session_dims)
    for direct in (True, False):
        progress = True
        while progress:
            progress = False
            for symbol in entry.dims:
                if symbol in found or symbol in given:
                    continue
                for argument, axis, size in axes:
                    if direct and size != symbol.size:
                        continue
                    binding = _bind(size, symbol, argument, axis, set(found) | given)
                    if binding is not None:
                        found[symbol] = binding
                        progress = True
                        break
    return tuple(found.values()), tuple(s for s in entry.dims if s not in found and s not in given)


def _duplicates(names: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    twice: dict[str, None] = {}
    for name in names:
        if name in seen:
            twice[name] = None
        seen.add(name)
    return list(twice)


def check_entry(entry: EntrySpec) -> tuple[Diagnostic, ...]:
    """Returns the errors that would make the entry impossible to call."""
    errors: list[Diagnostic] = []
    for symbol in bind_dims(entry)[1]:
        formulas = [
            f"{a.name}: {a.type}" for a in entry.arguments if any(symbol in symbols(size) for size in a.type.shape)
        ]
        if formulas:
            message = f"entry `{entry.name}`: no argument determines dim `{symbol.name}`: {', '.join(formulas)}"
            help_text = f"make one axis `{symbol.name}`, or a multiple of it plus what other axes determine"
        else:
            message = f"entry `{entry.name}`: dim `{symbol.name}` occurs in the shape of no argument"
            help_text = f"give an argument an axis `{symbol.name}`, or make it an integer"
        errors.append(Diagnostic("unbound-dim", message, help=help_text))
    return tuple(errors)


def check_artifact(spec: ArtifactSpec) -> tuple[Diagnostic, ...]:
    """Returns the errors that a user can cause; compiler errors are asserted."""
    errors = [error for entry in spec.entries for error in check_entry(entry)]
    for name in _duplicates(entry.name for entry in spec.entries):
        errors.append(Diagnostic("duplicate-name", f"two entries are named `{name}`"))
    for entry in spec.entries:
        for name in _duplicates(a.name for a in (*entry.arguments, *entry.results)):
            message = f"entry `{entry.name}`: two arguments or results are named `{name}`"
            errors.append(Diagnostic("duplicate-name", message))
        sizes = [s for a in (*entry.arguments, *entry.results) for s in a.type.shape]
        sizes += [entry.workspace, *(s for c in entry.constraints for s in (c.left, c.right))]
        unknown = set().union(*map(symbols, sizes)) - set(entry.dims)
        assert not unknown, (entry.name, unknown)
    assert spec.entries, spec.name
    end = 0
    for weight in sorted(spec.weights, key=lambda w: (w.offset, w.nbytes)):
        assert weight.offset >= end and weight.offset % WEIGHT_ALIGNMENT == 0, (weight.name, weight.offset, end)
        end = weight.offset + weight.nbytes
    return tuple(errors)
