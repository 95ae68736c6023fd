"""Lowerings run by an emitter that checks every access, with sizes known and with sizes as symbols.

The families that compute places are run: those whose mistakes would be reads or writes outside of a tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest
from checking_emitter import CheckingEmitter
from nacre.compiler.codegen.jit import build_functions
from nacre.dialect.dims import Symbol, evaluate
from nacre.dialect.graph import Module, Value
from nacre.dialect.operator import Builder, InferenceError, Operator
from nacre.dialect.ops import (
    OPERATORS,
    average_pooling,
    contraction,
    conv_transpose,
    convolution,
    convolution_gradient,
    creation,
    dynamic_slicing,
    einsum,
    indexing,
    joining,
    movement,
    ordering,
    padding,
    pooling,
    scatter,
    shape,
    slicing,
)
from nacre.dialect.types import F32, I64, Array, TensorType
from operator_harness import build_function, case_dtypes, example, symbolic

FAMILIES = (
    average_pooling,
    contraction,
    conv_transpose,
    convolution,
    convolution_gradient,
    creation,
    dynamic_slicing,
    einsum,
    indexing,
    joining,
    movement,
    ordering,
    padding,
    pooling,
    scatter,
    shape,
    slicing,
)
LOWERED = [o for family in FAMILIES for o in family.OPERATORS if o.lower is not None]
INFINITY, NAN = float("inf"), float("nan")


def run(
    operator: Operator, types: tuple[TensorType, ...], attributes: Any, arrays: Any, values: dict[str, int]
) -> list[Array]:
    assert operator.lower is not None
    e: Any = CheckingEmitter(values)
    full = operator.complete(attributes)
    results = operator.check(types, full)
    operands = [e.tensor(t, a) for t, a in zip(types, arrays, strict=True)]
    with np.errstate(all="ignore"):
        lowered = operator.lower(e, operands, full, results)
    assert [x.type for x in lowered] == list(results), (lowered, results)
    return [x.data for x in lowered]  # type: ignore[attr-defined]


@pytest.mark.parametrize("operator", LOWERED, ids=[o.name for o in LOWERED])
def test_lowering_stays_inside_and_equals_the_reference(operator: Operator) -> None:
    failures = []
    for number, case in enumerate(operator.cases):
        dtypes = case_dtypes(operator, case)
        item = example(operator, number, F32 if F32 in dtypes else dtypes[0])
        expected = item.expected
        variants = [(item.types, item.case.attributes, {}, str(item))]
        for variant in symbolic(item):
            if variant.infer() is not None and variant.is_bound:
                variants.append((variant.types, variant.item.case.attributes, dict(variant.values), str(variant)))
        # The first of the symbolic variants has all sizes unknown; the others differ little. Sorting is too slow.
        for types, attributes, values, text in variants[: 1 if operator in ordering.OPERATORS else 2]:
            message = item.disagreement(run(operator, types, attributes, item.arrays, values), expected)
            failures += [f"{text}: {message}"] if message else []
    assert not failures, "\n".join(failures)


N = Symbol("n", 0, 100).size


@dataclass(frozen=True)
class MayBeEmpty:
    """A use of an operator with an axis of n elements, and what its index operands hold."""

    name: str
    shapes: tuple[tuple[Any, ...], ...]
    indices: Mapping[int, Any] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def types(self) -> tuple[TensorType, ...]:
        return tuple(TensorType(I64 if i in self.indices else F32, shape) for i, shape in enumerate(self.shapes))

    def arrays(self, n: int) -> list[Array]:
        rng = np.random.default_rng(n)
        arrays: list[Array] = []
        for number, type in enumerate(self.types):
            shape = type.concrete({"n": n})
            given = self.indices.get(number)
            arrays.append(rng.standard_normal(shape).astype(np.float32) if given is None else np.asarray(given))
        return arrays

    def check(self, actual: Sequence[Array], arrays: Sequence[Array], n: int) -> None:
        operator = OPERATORS[self.name]
        attributes = {key: evaluate(v, {"n": n}) if v is N else v for key, v in self.attributes.items()}
        with np.errstate(all="ignore"):
            expected = operator.reference(*arrays, **operator.complete(attributes))
        for a, e in zip(actual, expected if isinstance(expected, tuple) else (expected,), strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-6, err_msg=f"{self} with n = {n}")


_CLAMP = {"mode": "clamp"}
"""No index is in range of an empty axis."""
MAY_BE_EMPTY = (
    MayBeEmpty("gather", ((N, 2), (3,)), {1: [0, -1, 7]}, _CLAMP),
    MayBeEmpty("take_along_axis", ((N,), (2,)), {1: [1, -5]}, _CLAMP),
    MayBeEmpty("gather_nd", ((N, 2), (2, 2)), {1: [[0, 1], [5, 5]]}, _CLAMP),
    MayBeEmpty("scatter", ((N,), (2,), (2,)), {1: [0, 1]}, _CLAMP),
    MayBeEmpty("scatter_add", ((N, 2), (2, 1), (2, 2)), {1: [[0], [-1]]}, _CLAMP),
    MayBeEmpty("scatter_nd", ((N, 2), (1, 2), (1,)), {1: [[0, 1]]}, _CLAMP),
    MayBeEmpty("pad", ((N, 2),), {}, {"widths": ((1, 2), (0, 0)), "mode": "reflect"}),
    MayBeEmpty("pad", ((N,),), {}, {"widths": ((1, 0),), "mode": "edge"}),
    MayBeEmpty("conv1d", ((1, 2, N), (3, 2, 4))),
    MayBeEmpty("conv1d", ((1, 2, N), (3, 2, 2)), {}, {"padding": 3, "stride": 2}),
    MayBeEmpty("conv1d", ((1, 2, N), (3, 2, 2)), {}, {"padding": "same", "stride": 2}),
    MayBeEmpty("conv_transpose1d", ((1, 2, N), (2, 3, 2)), {}, {"stride": 2}),
    MayBeEmpty("max_pool1d", ((1, 2, N),), {}, {"kernel": 3, "padding": 2, "ceil_mode": True}),
    MayBeEmpty("avg_pool1d", ((1, 2, N),), {}, {"kernel": 3, "padding": 2, "count_include_pad": False}),
    MayBeEmpty("max_pool_indices", ((1, 2, N),), {}, {"kernel": 3, "padding": 2}),
    MayBeEmpty("argsort", ((2, N),)),
    MayBeEmpty("top_k", ((N, 2),), {}, {"k": 3, "axis": 0}),
    MayBeEmpty("slice", ((N,),), {}, {"starts": (1,), "stops": (-1,)}),
    MayBeEmpty("slice", ((N,),), {}, {"starts": (-2,), "stops": (None,), "steps": (-3,)}),
    MayBeEmpty("concat", ((N, 2), (3, 2))),
    MayBeEmpty("flip", ((2, N),)),
    MayBeEmpty("roll", ((2, N),), {}, {"shift": 3}),
    MayBeEmpty("matmul", ((2, N), (N, 3))),
    MayBeEmpty("einsum", ((2, N), (N,)), {}, {"equation": "ij,j->i"}),
    MayBeEmpty("embedding", ((N, 3), (2,)), {1: [0, 1]}, _CLAMP),
    MayBeEmpty("attention", ((2, 4), (N, 4), (N, 3)), {}, {"causal": True}),
    MayBeEmpty("resize", ((2, N),), {}, {"sizes": (3,), "mode": "linear"}),
    MayBeEmpty("resize", ((N,),), {}, {"scales": (1.5,)}),
    MayBeEmpty("tile", ((N, 2),), {}, {"repeats": (3, 1)}),
)
SIZES = (0, 1, 2, 5, 17)


@pytest.mark.parametrize("use", [u for u in MAY_BE_EMPTY if OPERATORS[u.name].lower], ids=lambda use: use.name)
def test_a_symbolic_size_may_turn_out_to_be_anything(use: MayBeEmpty) -> None:
    for n in SIZES[:-1]:
        arrays = use.arrays(n)
        use.check(run(OPERATORS[use.name], use.types, use.attributes, arrays, {"n": n}), arrays, n)


@pytest.mark.parametrize("level", [0, 2], ids=["O0", "O2"])
def test_a_symbolic_size_may_turn_out_to_be_anything_compiled(level: int) -> None:
    functions = []
    for number, use in enumerate(MAY_BE_EMPTY):
        write = partial(Builder.apply, name=use.name, attributes=use.attributes)
        functions.append(build_function(use.types, lambda b, x, write=write: write(b, inputs=x), f"f{number}"))
    compiled = build_functions(Module("empty", functions[0].symbols(), functions=tuple(functions)), level=level)
    for function, use in zip(functions, MAY_BE_EMPTY, strict=True):
        for n in SIZES:
            arrays = use.arrays(n)
            use.check(compiled[function.name](arrays), arrays, n)


def test_tensors_of_symbolic_sizes_from_nothing() -> None:
    """Sizes come from an argument that is not read."""

    def write(b: Builder, arguments: tuple[Value, ...]) -> Sequence[Value]:
        return (
            b.iota(shape=(2, N)),
            b.full(shape=(N, 3), value=1.5),
            b.size_value(size=2 * N + 1),
            b.triangular_mask(rows=N, columns=N + 2, diagonal=N - 3),
            b.eye(n=N, m=4),
            arguments[0],
        )

    function = build_function((TensorType(F32, (N,)),), write)
    (compiled,) = build_functions(Module("sizes", function.symbols(), functions=(function,)), level=2).values()
    for n in SIZES:
        actual = compiled([np.zeros(n, np.float32)])
        assert np.array_equal(actual[0], np.broadcast_to(np.arange(2)[:, None], (2, n)))
        assert np.array_equal(actual[1], np.full((n, 3), 1.5))
        assert actual[2] == 2 * n + 1
        assert np.array_equal(actual[3], np.tri(n, n + 2, n - 3, dtype=bool))
        assert np.array_equal(actual[4], np.eye(n, 4))


@pytest.mark.parametrize("descending", [False, True])
def test_sorting_is_stable_and_knows_nan(descending: bool) -> None:
    x = np.asarray([2, NAN, -0.0, 0.0, INFINITY, 2, -INFINITY, NAN, 1, 0.0], np.float32)
    (places,) = run(OPERATORS["argsort"], (TensorType(F32, x.shape),), {"descending": descending}, [x], {})
    order = [6, 2, 3, 9, 8, 0, 5, 4, 1, 7] if not descending else [1, 7, 4, 0, 5, 8, 2, 3, 9, 6]
    assert places.tolist() == order
    assert OPERATORS["argsort"].reference(x, axis=-1, descending=descending).tolist() == order


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 31])
@pytest.mark.parametrize("k", [1, 2, 3, 8])
def test_top_k_keeps_the_first_of_equals(size: int, k: int) -> None:
    x = np.random.default_rng(size).integers(0, 4, size)
    try:
        values, places = run(OPERATORS["top_k"], (TensorType(I64, x.shape),), {"k": k}, [x], {})
    except InferenceError:
        assert k > size
        return
    expected = sorted(range(size), key=lambda i: (-x[i], i))[:k]
    assert places.tolist() == expected
    assert values.tolist() == [x[i] for i in expected]
