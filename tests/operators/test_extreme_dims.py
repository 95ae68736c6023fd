"""Every operator whose attributes may hold dims, at the ends of their ranges: nothing outside of a tensor is touched.

An integer among the attributes, or the size of an axis, becomes an expression of a dim whose range goes beyond what
the case has, to both sides. What inference accepts is compiled, and called with the least and the greatest value of the
dim, and with some between, in a child process on memory between guard pages. The other operators that combine or move
elements are called with each of their axes empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from joined_kernels import generate_joined
from nacre.compiler.codegen.objects import CodeOptions
from nacre.compiler.lower.module import lower_module
from nacre.compiler.validate.inputs import ORDINARY, made_up, random_trial
from nacre.compiler.validate.isolated import Died, Progress, run_each_isolated
from nacre.compiler.validate.judge import Judge
from nacre.compiler.validate.native import Library, check_call
from nacre.dialect.dims import DimError, Symbol
from nacre.dialect.graph import Function, Module, Value
from nacre.dialect.operator import Builder, InferenceError, Operator
from nacre.dialect.ops import OPERATORS
from nacre.dialect.requirements import requirements
from nacre.dialect.types import F32, TensorType
from nacre.passes.simplify.check_indices import CheckIndices
from nacre.passes.simplify.decompose import Decompose
from operator_harness import TESTED, Example, example

REACH = 4
"""So far beyond the value of the case an attribute goes, to both sides."""
D = Symbol("D", 0, 2 * REACH)
CALLED_AT = (D.low, 1, REACH, D.high)
KINDS = ("size", "sizes", "any", "ints?")
"""The kinds of attributes that may hold dims."""
SYMBOLIC = [o for o in TESTED if any(a.kind in KINDS for a in o.attributes) and not o.has("internal")]
OTHERS = [o for o in TESTED if o not in SYMBOLIC and not o.has("internal") and not o.has("elementwise")]
MOST = 2
"""Variants of each kind that are compiled of an operator: each of a case of its own, as long as there are some."""


SORTED = ("feature_ranks", "row_ranks")
"""Operators with sorted thresholds, which random numbers are not: a case with more than one threshold is left out."""


@dataclass(frozen=True)
class Variant:
    """A use of an operator with a dim in a type or in an attribute."""

    operator: Operator
    types: tuple[TensorType, ...]
    attributes: dict[str, Any]

    def function(self, name: str) -> Function | None:
        """The use on arguments, with one more argument that binds the dim; None where inference refuses it."""
        arguments = tuple(Value(f"a{i}", t) for i, t in enumerate(self.types))
        b = Builder(OPERATORS, "v")
        try:
            results = b.apply(self.operator.name, arguments, self.attributes)
        except (InferenceError, DimError):
            return None
        arguments = (*arguments, Value("size", TensorType(F32, (D.size,))))
        return Function(name, arguments, tuple(b.nodes), results, tuple(f"r{i}" for i in range(len(results))))


def _replaced(value: Any) -> Iterator[Any]:
    """The value with one of its integers, however deep, replaced."""
    if isinstance(value, int) and not isinstance(value, bool):
        yield D.size - D.high
        yield D.size
        yield D.size + (value - REACH)
    elif isinstance(value, tuple):
        for i, part in enumerate(value):
            yield from ((*value[:i], changed, *value[i + 1 :]) for changed in _replaced(part))


def _in_attributes(item: Example) -> Iterator[Variant]:
    for spec in item.operator.attributes:
        if spec.kind in KINDS:
            for changed in _replaced(item.attributes[spec.name]):
                yield Variant(item.operator, item.types, {**item.attributes, spec.name: changed})


def _in_types(item: Example) -> Iterator[Variant]:
    """Equal sizes become the dim together."""
    for size in sorted({s for t in item.types for s in t.shape if isinstance(s, int) and s > 1}):
        types = tuple(t.with_shape(D.size if s == size else s for s in t.shape) for t in item.types)
        yield Variant(item.operator, types, item.attributes)


def functions_of(operator: Operator) -> list[Function]:
    found: list[Function] = []
    for vary in (_in_attributes, _in_types):
        accepted: list[Function] = []
        for number, case in enumerate(operator.cases):
            item = example(operator, number, (case.dtypes or (F32,))[0])
            name = f"{operator.name}_{vary.__name__}_{number}"
            variants = (v.function(f"{name}_{i}") for i, v in enumerate(vary(item)))
            accepted += [f for f in variants if f is not None][: 2 if len(accepted) < MOST else 0]
        found += accepted[: MOST + 1]
    return found


def check(
    library: Library, module: Module, function: Function, tell: Progress, *, values: Sequence[int] = CALLED_AT
) -> list[str]:
    failures: list[str] = []
    for value in values:
        dims = {"D": value}
        if not all(r.holds(dims) for r in requirements(function)):
            continue  # the call is refused
        tell(f"{function.name} at {value}")
        judge = Judge(module, random_trial(function, dims, ORDINARY), made_up)
        found = check_call(library, function, judge)
        failures += [f"{function} at D={value}: {found.message}"] if found else []
    return failures


@pytest.mark.parametrize("part", range(4))
def test_ends_of_ranges(part: int) -> None:
    functions = [f for operator in SYMBOLIC[part::4] for f in functions_of(operator)]
    assert len(functions) > 20
    check_all(functions, CALLED_AT)


def empties_of(operator: Operator, *, everywhere: bool) -> list[Function]:
    """Uses of the operator with a dim in place of one of the sizes: each size of the first case and one of the last, or
    `everywhere` each size of all cases that differ in a rank, or in an attribute that is no number."""
    found: dict[object, list[Function]] = {}
    for number, case in enumerate(operator.cases):
        item = example(operator, number, (case.dtypes or (F32,))[0])
        words = {name: value for name, value in item.attributes.items() if not isinstance(value, (tuple, float))}
        key = (repr(sorted(words.items(), key=str)), tuple(type.rank for type in item.types))
        if key not in found:
            variants = (v.function(f"{operator.name}_{number}_{i}") for i, v in enumerate(_in_types(item)))
            found[key] = [f for f in variants if f is not None]
    first, *others = found.values()
    if operator.name in SORTED:
        return first
    if everywhere:
        return [*first, *(f for functions in others for f in functions)]
    return [*first, *(f for functions in others[-1:] for f in functions[:1])]


def test_empty_axes(request: pytest.FixtureRequest) -> None:
    everywhere = request.config.getoption("--variants")
    functions = [f for operator in OTHERS for f in empties_of(operator, everywhere=everywhere)]
    assert {"grid_sample", "global_max_pool", "norm"} <= {f.body[0].op for f in functions}
    check_all(functions, (0,))


def check_all(functions: Sequence[Function], values: Sequence[int]) -> None:
    module = Module("extremes", (D,), functions=tuple(functions))
    apart = Decompose(having=("composite",)).run(module)
    lowered = lower_module(CheckIndices().run(apart))
    library = Library(*generate_joined(lowered, CodeOptions(level=0, quick=True, visible=True)), made_up)
    answers = run_each_isolated([partial(check, library, module, f, values=values) for f in functions])
    failures = []
    for function, answer in zip(functions, answers, strict=True):
        failures += [f"{function.name}: {answer.message}"] if isinstance(answer, Died) else answer
    assert not failures, "\n".join(failures[:10])
