"""What the tests of operators share: arrays for a case, graphs around one operator, and how close is close enough.

The tolerance of a case is `tolerance * epsilon * sqrt(terms)`, relative to the largest result: rounding errors of a sum
of n terms grow as the square root of n, and every operator states how many terms it adds up and the factor.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from nacre.dialect.dims import Poly, Symbol, evaluate, symbols_of
from nacre.dialect.graph import Constant, Function, Module, Value
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.operator import Builder, Case, InferenceError, Operator, Use
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import F64, Array, DType, TensorType, dtype_of

TESTED: tuple[Operator, ...] = tuple(operator for operator in OPERATORS.values() if operator.cases)
NAMES = [operator.name for operator in TESTED]
DEVICE_PASSES = "decompose{having=composite},check-indices"
"""The passes that operators need on a device: a composite one is several kernels."""


def operand_at(operator: Operator, number: int) -> Any:
    return operator.operands[min(number, len(operator.operands) - 1)]


def case_dtypes(operator: Operator, case: Case) -> tuple[DType, ...]:
    """The dtypes that a case runs for: those of the operands of group `T`, or of the first operand, in which results
    may be. Nothing is summed in floats of 8 bits."""
    if case.dtypes is not None:
        return case.dtypes
    if not operator.operands:
        return (F64,)
    accepted = next((o.dtypes for o in operator.operands if o.group == "T"), operator.operands[0].dtypes)
    return tuple(d for d in accepted if not (d.is_storage and operator.has("contraction")))


@dataclass(frozen=True)
class Example:
    """One case of one operator in one dtype, with its arrays."""

    operator: Operator
    number: int
    case: Case
    dtype: DType
    arrays: tuple[Array, ...]

    def __str__(self) -> str:
        shapes = " ".join(f"{dtype_of(a)}{list(a.shape)}" for a in self.arrays)
        return f"case {self.number} in {self.dtype}: {shapes} {dict(self.case.attributes)}"

    @property
    def name(self) -> str:
        return f"{self.operator.name}_{self.number}_{self.dtype}"

    @property
    def attributes(self) -> dict[str, Any]:
        return self.operator.complete(self.case.attributes)

    @cached_property
    def types(self) -> tuple[TensorType, ...]:
        return tuple(TensorType(dtype_of(a), a.shape) for a in self.arrays)

    @cached_property
    def expected(self) -> tuple[Array, ...]:
        """The results of the reference."""
        return tuple(map(_read_only, self.reference()))

    def reference(self, arrays: Sequence[Array] | None = None, **changed: Any) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            results = self.operator.reference(*(self.arrays if arrays is None else arrays), **self.attributes | changed)
        return tuple(map(np.asarray, results if isinstance(results, tuple) else (results,)))

    def in_float64(self) -> tuple[Array, ...]:
        """The results for the same numbers, computed in float64, but for codes of 8 bits, which the results are in."""
        wide = [a.astype(np.float64) if dtype_of(a).is_float else a for a in self.arrays]
        changed: dict[str, Any] = {
            name: F64 if isinstance(value, DType) and value.is_differentiable else value
            for name, value in self.attributes.items()
        }
        for name, value in changed.items():
            if isinstance(value, Constant) and value.type.dtype.is_float:
                changed[name] = Constant(value.data.astype(np.float64))
        return self.reference(wide, **changed)

    def disagreement(self, actual: Sequence[Array], expected: Sequence[Array]) -> str | None:
        """How results differ by more than the case's tolerance, if they do."""
        if len(actual) != len(expected):
            return f"{len(actual)} results, expected {len(expected)}"
        pairs = zip(actual, expected, strict=True)
        messages = (difference(a, e, self.case.tolerance, self.case.terms) for a, e in pairs)
        return next((m for m in messages if m), None)


def difference(actual: Array, expected: Array, tolerance: float, terms: int = 1) -> str | None:
    """How an array differs from the expected one; floats within the tolerance of the actual one's dtype agree."""
    if actual.shape != expected.shape:
        return f"shape {actual.shape}, expected {expected.shape}"
    if not dtype_of(actual).is_float:
        wrong = np.argwhere(actual != expected)
        if not len(wrong):
            return None
        place = tuple(wrong[0])
        return f"{actual[place]} at {place}, expected {expected[place]} ({len(wrong)} differ)"
    dtype = dtype_of(actual)
    exact = expected.astype(np.float64)
    # What the dtype cannot hold is infinite in it.
    with np.errstate(over="ignore"):
        rounded = expected.astype(dtype.numpy).astype(np.float64)
    exact = np.where(np.isfinite(rounded), exact, rounded)
    got = actual.astype(np.float64)
    finite = np.isfinite(exact)
    scale = float(np.max(np.abs(exact), where=finite, initial=float(np.finfo(np.float16).tiny)))
    allowed = tolerance * dtype.epsilon * math.sqrt(terms) * scale
    with np.errstate(invalid="ignore"):
        agree = np.where(finite, np.abs(got - exact) <= allowed, (got == exact) | (np.isnan(got) & np.isnan(exact)))
    wrong = np.argwhere(~agree)
    if not len(wrong):
        return None
    place = tuple(wrong[0])
    return f"{got[place]!r} at {place}, expected {exact[place]!r} within {allowed:.3g} ({len(wrong)} differ)"


def random_array(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], domain: tuple[float, float]) -> Array:
    """Random numbers: floats in the domain, some of them multiples of 1/2; integers small, or of any size."""
    if dtype.is_float:
        low, high = domain
        values = rng.uniform(low, high, shape)
        coarse = np.clip(np.round(values * 2) / 2, low, high)
        return np.asarray(np.where(rng.random(shape) < 0.2, coarse, values)).astype(dtype.numpy)
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        large = rng.integers(info.min, info.max, shape, dtype.numpy, endpoint=True)
        small = rng.integers(max(info.min, -5), 6, shape).astype(dtype.numpy)
        return np.asarray(np.where(rng.random(shape) < 0.5, large, small))
    return np.asarray(rng.random(shape) < 0.5)


_made: dict[tuple[str, int, str], Example] = {}
"""The examples of this process, by operator, case and dtype."""


def example(operator: Operator, number: int, dtype: DType) -> Example:
    """One case in one dtype. Each is made once in a process: a dozen tests take all of them."""
    key = (operator.name, number, dtype.name)
    known = _made.get(key)
    if known is None or known.operator is not operator:
        known = _made[key] = _make_example(operator, number, dtype)
    return known


def _make_example(operator: Operator, number: int, dtype: DType) -> Example:
    case = operator.cases[number]
    rng = np.random.default_rng(zlib.crc32(f"{operator.name} {number} {dtype}".encode()))
    main = "T" if any(o.group == "T" for o in operator.operands) else (operator.operands or (None,))[0]
    main_group = main if isinstance(main, str) or main is None else main.group
    arrays = []
    for position in range(max(len(case.shapes), max(case.arrays, default=-1) + 1)):
        operand = operand_at(operator, position)
        if position in case.arrays:
            given = np.asarray(case.arrays[position])
            arrays.append(given.astype(dtype.numpy) if operand.group == main_group else given)
        else:
            own = case.mixed.get(position, dtype if operand.group == main_group else operand.dtypes[0])
            arrays.append(random_array(rng, own, case.shapes[position], case.domain))
    return Example(operator, number, case, dtype, tuple(map(_read_only, arrays)))


def _read_only(array: Array) -> Array:
    """The same memory, which no test changes for the tests after it."""
    view = array.view()
    view.flags.writeable = False
    return view


def examples(operator: Operator) -> Iterator[Example]:
    """Every case in every dtype."""
    for number, case in enumerate(operator.cases):
        for dtype in case_dtypes(operator, case):
            yield example(operator, number, dtype)


@dataclass(frozen=True)
class Symbolic:
    """An example with some of its sizes as symbols, in types and in attributes; `values` says what they stand for."""

    item: Example
    types: tuple[TensorType, ...]
    values: Mapping[str, int]

    def __str__(self) -> str:
        return f"{self.item} as {', '.join(map(str, self.types))} {dict(self.item.case.attributes)}"

    def infer(self) -> tuple[TensorType, ...] | None:
        """The types of the results, None where the operator does not accept these symbols."""
        try:
            return self.item.operator.check(self.types, self.item.case.attributes)
        except InferenceError:
            return None

    @property
    def is_bound(self) -> bool:
        """Do the operands' shapes give all symbols, so that a graph can be run?"""
        found = {s.name for t in self.types for s in t.symbols()}
        return found == set(self.values)


def symbolic(item: Example) -> Iterator[Symbolic]:
    """The example with sizes as symbols (equal sizes equal symbols), all at once and one at a time.

    Each with and without sizes among the attributes. A size of 1 stays: it says that an axis is broadcast.
    """
    kinds = _size_attributes(item)
    given = attribute_sizes(item)
    sizes = sorted({s for t in item.types for s in t.shape if isinstance(s, int)} | set(given))
    sizes = [s for s in sizes if s not in (1, -1)]
    seen = set()
    for chosen in (sizes, *([s] for s in sizes if len(sizes) > 1)):
        symbols: dict[int, Any] = {n: Symbol(f"n{n}", low=min(n, 1), high=1 << 20).size for n in chosen}
        types = tuple(t.with_shape(symbols.get(s, s) for s in t.shape) for t in item.types)  # type: ignore[arg-type]
        changed = {n: _replaced(item.attributes[n], symbols) for n in kinds}
        for attributes in (dict(item.case.attributes), {**item.case.attributes, **changed}):
            key = (types, tuple(sorted(attributes.items(), key=str)))
            found = {s for t in types for s in t.symbols()} | {s for v in attributes.values() for s in _symbols(v)}
            if found and str(key) not in seen:
                seen.add(str(key))
                example = replace(item, case=replace(item.case, attributes=attributes))
                yield Symbolic(example, types, {s.name: int(s.name[1:]) for s in found})


def _size_attributes(item: Example) -> set[str]:
    return {a.name for a in item.operator.attributes if a.kind in ("size", "sizes")}


def attribute_sizes(item: Example) -> list[int]:
    """The sizes among the attributes."""
    return [size for name in _size_attributes(item) for size in _sizes(item.attributes[name])]


def _sizes(value: Any) -> tuple[int, ...]:
    values = value if isinstance(value, tuple) else (value,)
    return tuple(v for v in values if isinstance(v, int) and v >= 0)


def _replaced(value: Any, symbols: Mapping[int, Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(symbols.get(v, v) for v in value)
    return symbols.get(value, value)


def _symbols(value: Any) -> tuple[Symbol, ...]:
    values = value if isinstance(value, tuple) else (value,)
    return symbols_of(v for v in values if isinstance(v, Poly))


def substituted(types: Sequence[TensorType], values: Mapping[str, int]) -> list[tuple[DType, tuple[int, ...]]]:
    return [(t.dtype, tuple(evaluate(s, values) for s in t.shape)) for t in types]


Write = Callable[[Builder, tuple[Value, ...]], Sequence[Value]]
"""Writes nodes on arguments and gives the results."""


def build_function(types: Sequence[TensorType], write: Write, name: str = "f") -> Function:
    arguments = tuple(Value(f"a{i}", t) for i, t in enumerate(types))
    b = Builder(OPERATORS, "v")
    results = tuple(write(b, arguments))
    return Function(name, arguments, tuple(b.nodes), results, tuple(f"r{i}" for i in range(len(results))))


def interpret(function: Function, arrays: Sequence[Array], precision: DType | None = None) -> tuple[Array, ...]:
    def no_parameters(parameter: object) -> Array:
        raise AssertionError(parameter)

    return Interpreter(Module("test", functions=(function,)), no_parameters, precision=precision).run(function, arrays)


def write_use(item: Example) -> Write:
    """The operator itself."""
    return lambda b, arguments: b.apply(item.operator.name, arguments, item.attributes)


def write_decomposition(item: Example) -> Write:
    def write(b: Builder, arguments: tuple[Value, ...]) -> Sequence[Value]:
        assert item.operator.decompose is not None
        return item.operator.decompose(b, arguments, item.attributes)

    return write


def differentiable(item: Example) -> list[int]:
    """The operands that a gradient is asked for."""
    return [i for i, a in enumerate(item.arrays) if dtype_of(a).is_differentiable]


def write_gradient(item: Example, operands: int) -> Write:
    """The operator and its gradient; arguments are the operands and then the gradients of the float results.

    An operand without a gradient gets zeros, which is what finite differences must show for it.
    """

    def write(b: Builder, arguments: tuple[Value, ...]) -> Sequence[Value]:
        inputs, seeds = arguments[:operands], iter(arguments[operands:])
        outputs = b.apply(item.operator.name, inputs, item.attributes)
        given = tuple(next(seeds) if v.type.dtype.is_float else None for v in outputs)
        assert item.operator.gradient is not None
        parts = item.operator.gradient(b, Use(inputs, outputs, item.attributes, given))
        assert len(parts) == len(inputs), f"{len(parts)} gradients for {len(inputs)} operands"
        for value, part in zip(inputs, parts, strict=True):
            if not value.type.dtype.is_differentiable:
                assert part is None, f"a gradient for {value}"
            assert part is None or part.type == value.type, f"gradient {part} of {value}"
        return [b.multiply(inputs[i], b.like(0.0, inputs[i])) if parts[i] is None else parts[i] for i in wanted]

    wanted = differentiable(item)
    return write
