"""NaN, infinities, signed zeros, denormals, the ends of the integers: the reference by hand, compiled code by it.

Compiled code must give the reference's bits, except for functions of the C library, whose last places differ between
libraries; for each of them the table says how many. Operators that are made of several such functions must give the
reference's NaNs, infinities and signs of zeros, and numbers near to its own. All of it holds at each optimisation level
and for each CPU variant that this machine runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from joined_kernels import generate_joined
from nacre.compiler.codegen.objects import CodeOptions
from nacre.compiler.lower.module import lower_module
from nacre.compiler.targets.target import Target, choose_panels, parse_targets
from nacre.compiler.validate.isolated import Died, Progress, run_isolated
from nacre.compiler.validate.native import Library
from nacre.dialect.graph import Function, Module
from nacre.dialect.operator import Operator
from nacre.dialect.ops import OPERATORS
from nacre.dialect.ops.support.common import integer_range
from nacre.dialect.types import (
    ANY,
    BF16,
    BOOL,
    DTYPES,
    F16,
    F32,
    F64,
    FLOATS,
    I8,
    I16,
    I32,
    I64,
    INTEGERS,
    U8,
    U32,
    U64,
    Array,
    DType,
    TensorType,
)
from operator_harness import build_function

NAN, INF = float("nan"), float("inf")

# What each operator means, by hand: operator, dtype, operands, attributes, result.
LITERALS: tuple[tuple[str, DType, tuple[Any, ...], dict[str, Any], Any], ...] = (
    ("add", I8, (127, 1), {}, -128),
    ("add", U8, (255, 1), {}, 0),
    ("subtract", U32, (0, 1), {}, 4294967295),
    ("multiply", I16, (256, 256), {}, 0),
    ("add", F16, (65504.0, 65504.0), {}, INF),
    ("divide", F32, (1.0, 0.0), {}, INF),
    ("divide", F32, (-1.0, 0.0), {}, -INF),
    ("divide", F64, (0.0, 0.0), {}, NAN),
    ("floor_divide", I32, (-7, 2), {}, -4),
    ("floor_divide", I32, (7, 0), {}, 0),
    ("floor_divide", I8, (-128, -1), {}, -128),
    ("floor_divide", F64, (1.0, 0.1), {}, 9.0),
    ("floor_divide", F64, (-7.0, 2.0), {}, -4.0),
    ("remainder", I32, (-7, 3), {}, 2),
    ("remainder", I32, (7, -3), {}, -2),
    ("remainder", I32, (7, 0), {}, 0),
    ("remainder", F64, (-7.0, 3.0), {}, 2.0),
    ("remainder", F64, (7.0, -3.0), {}, -2.0),
    ("remainder", F64, (-1.0, INF), {}, INF),
    ("power", I32, (3, 4), {}, 81),
    ("power", I8, (2, 7), {}, -128),
    ("power", I32, (2, -1), {}, 0),
    ("power", I32, (-1, -3), {}, -1),
    ("power", I32, (1, -3), {}, 1),
    ("power", I32, (0, -1), {}, 0),
    ("power", I64, (0, 0), {}, 1),
    ("power", F64, (0.0, 0.0), {}, 1.0),
    ("power", F64, (-8.0, 1 / 3), {}, NAN),
    ("maximum", F32, (1.0, NAN), {}, NAN),
    ("minimum", F32, (NAN, 1.0), {}, NAN),
    ("atan2", F64, (1.0, -1.0), {}, 3 * np.pi / 4),
    ("shift_left", I32, (1, 31), {}, -(2**31)),
    ("shift_left", I32, (1, 32), {}, 0),
    ("shift_left", I8, (1, -1), {}, 0),
    ("shift_right", I32, (-8, 1), {}, -4),
    ("shift_right", I32, (-8, 40), {}, -1),
    ("shift_right", U8, (200, 8), {}, 0),
    ("less", F32, (NAN, 1.0), {}, False),
    ("greater_equal", F32, (NAN, NAN), {}, False),
    ("equal", F32, (NAN, NAN), {}, False),
    ("not_equal", F32, (NAN, NAN), {}, True),
    ("equal", F32, (0.0, -0.0), {}, True),
    ("less", U64, (2**63, 1), {}, False),
    ("negate", I8, (-128,), {}, -128),
    ("negate", U8, (1,), {}, 255),
    ("abs", I8, (-128,), {}, -128),
    ("sign", F32, (NAN,), {}, NAN),
    ("sign", F32, (-INF,), {}, -1.0),
    ("round", F32, (2.5,), {}, 2.0),
    ("round", F32, (-3.5,), {}, -4.0),
    ("trunc", F32, (-2.7,), {}, -2.0),
    ("floor", F32, (-0.5,), {}, -1.0),
    ("bitwise_not", U8, (1,), {}, 254),
    ("log", F32, (-1.0,), {}, NAN),
    ("log", F32, (0.0,), {}, -INF),
    ("log1p", F64, (-1.0,), {}, -INF),
    ("sqrt", F32, (-1.0,), {}, NAN),
    ("rsqrt", F32, (0.0,), {}, INF),
    ("cbrt", F64, (-27.0,), {}, -3.0),
    ("asin", F32, (1.5,), {}, NAN),
    ("acosh", F32, (0.5,), {}, NAN),
    ("atanh", F32, (1.0,), {}, INF),
    ("exp", F32, (1000.0,), {}, INF),
    ("exp", F32, (-INF,), {}, 0.0),
    ("erf", F64, (INF,), {}, 1.0),
    ("erfc", F64, (-INF,), {}, 2.0),
    ("bitcast", F32, (-2.0,), {"dtype": U32}, 0xC0000000),
    ("bitcast", I16, (0x3C00,), {"dtype": F16}, 1.0),
    ("cast", F32, (NAN,), {"dtype": I32}, 0),
    ("cast", F32, (3e9,), {"dtype": I32}, 2**31 - 1),
    ("cast", F32, (-1.0,), {"dtype": U8}, 0),
    ("cast", F64, (-INF,), {"dtype": I64}, -(2**63)),
    ("cast", F64, (1e30,), {"dtype": U64}, 2**64 - 1),
    ("cast", F32, (-2.9,), {"dtype": I8}, -2),
    ("cast", F32, (NAN,), {"dtype": BOOL}, True),
    ("cast", F32, (-0.0,), {"dtype": BOOL}, False),
    ("cast", I32, (300,), {"dtype": U8}, 44),
    ("cast", I32, (-1,), {"dtype": U64}, 2**64 - 1),
    ("cast", I32, (70000,), {"dtype": F16}, INF),
    ("cast", F64, (1.0 + 2.0**-11 + 2.0**-40,), {"dtype": F16}, 1.0 + 2.0**-10),
    ("cast", BOOL, (True,), {"dtype": BF16}, 1.0),
    ("where", F32, (True, NAN, 1.0), {}, NAN),
    ("where", F32, (False, NAN, 1.0), {}, 1.0),
    ("relu", F32, (NAN,), {}, NAN),
    ("relu", F32, (-INF,), {}, 0.0),
    ("sigmoid", F32, (-1000.0,), {}, 0.0),
    ("sigmoid", F32, (1000.0,), {}, 1.0),
    ("softplus", F32, (1000.0,), {}, 1000.0),
    ("log_sigmoid", F32, (-1000.0,), {}, -1000.0),
    ("elu", F32, (-INF,), {}, -1.0),
    ("clip", F32, (NAN,), {"low": 0.0, "high": 1.0}, NAN),
    ("clip", I8, (-128,), {"low": -1, "high": 1}, -1),
    ("sum", I8, ([100, 100],), {}, -56),
    ("sum", F32, ([],), {}, 0.0),
    ("prod", F32, ([],), {}, 1.0),
    ("mean", F32, ([],), {}, NAN),
    ("sum", F16, ([60000.0, 60000.0, -60000.0],), {}, 60000.0),
    ("mean", F16, ([60000.0, 60000.0],), {}, 60000.0),
    ("max", F32, ([1.0, NAN, 2.0],), {}, NAN),
    ("max", F32, ([-INF, -INF],), {}, -INF),
    ("argmax", F32, ([1.0, 3.0, 3.0],), {}, 1),
    ("argmin", F32, ([1.0, NAN, 0.0, NAN],), {}, 1),
    ("argmax", F32, ([-INF, -INF],), {}, 0),
    ("argmax", I8, ([-128, -128],), {}, 0),
    ("logsumexp", F32, ([1000.0, 1000.0],), {}, 1000.0 + np.log(2.0)),
    ("logsumexp", F32, ([-INF, -INF],), {}, -INF),
    ("logsumexp", F32, ([INF, 0.0],), {}, INF),
    ("logsumexp", F32, ([],), {}, -INF),
    ("norm", F32, ([3.0, -4.0],), {}, 5.0),
    ("norm", F32, ([3.0, -4.0],), {"order": INF}, 4.0),
    ("norm", F32, ([3.0, -4.0],), {"order": 1}, 7.0),
    ("variance", F32, ([1.0, 3.0],), {"correction": 1}, 2.0),
    ("cumsum", I8, ([100, 100, 1],), {}, [100, -56, -55]),
    ("cumsum", I32, ([1, 2, 3],), {"exclusive": True, "reverse": True}, [5, 3, 0]),
    ("cumprod", I32, ([2, 3, 4],), {"exclusive": True}, [1, 2, 6]),
    ("linear_recurrence", F32, ([NAN, 2.0, 3.0], [1.0, 1.0, 1.0]), {}, [1.0, 3.0, 10.0]),
    ("softmax", F32, ([1000.0, 1000.0],), {}, [0.5, 0.5]),
    ("softmax", F32, ([0.0, -INF],), {}, [1.0, 0.0]),
    ("log_softmax", F32, ([-1000.0, 0.0],), {}, [-1000.0, 0.0]),
    ("l2_normalize", F32, ([0.0, 0.0],), {}, [0.0, 0.0]),
    ("layer_norm", F32, ([7.0, 7.0],), {}, [0.0, 0.0]),
)


def _literal_name(row: tuple[Any, ...]) -> str:
    return f"{row[0]}-{row[1]}-{'-'.join(map(str, row[2]))}"


def _as_operand(operator: Operator, number: int, dtype: DType, value: Any) -> Array:
    operand = operator.operands[min(number, len(operator.operands) - 1)]
    return np.asarray(value).astype(dtype.numpy if dtype in operand.dtypes else operand.dtypes[0].numpy)


@pytest.mark.parametrize("row", LITERALS, ids=map(_literal_name, LITERALS))
def test_reference(row: tuple[str, DType, tuple[Any, ...], dict[str, Any], Any]) -> None:
    name, dtype, values, attributes, expected = row
    operator = OPERATORS[name]
    arrays = [_as_operand(operator, i, dtype, v) for i, v in enumerate(values)]
    with np.errstate(all="ignore"):
        actual = np.asarray(operator.reference(*arrays, **operator.complete(attributes)))
    (type,) = operator.check([TensorType(_dtype(a), a.shape) for a in arrays], attributes)
    assert (_dtype(actual), actual.shape) == (type.dtype, type.shape)
    if type.dtype.is_float:
        np.testing.assert_allclose(actual.astype(np.float64), expected, rtol=2 * type.dtype.epsilon, atol=1e-300)
    else:
        np.testing.assert_array_equal(actual, expected)


def _dtype(array: Array) -> DType:
    return next(d for d in ANY if d.numpy == array.dtype)


# Compiled code

LIBRARY_FUNCTIONS = """
exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh cbrt erf erfc
power atan2
"""
LIBRARY_PLACES = dict.fromkeys(LIBRARY_FUNCTIONS.split(), 4)
"""Units in the last place by which functions of the C library may differ; all others must not."""
COMPOSED_PLACES = 256
"""Units in the last place, of the result or of the operand, for operators that are composed of several functions."""


def special_values(dtype: DType) -> Array:
    if dtype is BOOL:
        return np.array([False, True])
    if dtype.is_integer:
        low, high = integer_range(dtype)
        near = {-7, -3, -2, -1, 0, 1, 2, 3, 5, 7, dtype.bits - 1, dtype.bits, dtype.bits + 1}
        values = {low, low + 1, high - 1, high} | near
        return np.array(sorted(v for v in values if low <= v <= high), dtype.numpy)
    limits = ml_dtypes.finfo(dtype.numpy)
    least, normal, most = map(float, (limits.smallest_subnormal, limits.smallest_normal, limits.max))
    bits = -int(np.log2(dtype.epsilon))
    positive = [0.0, least, 3 * least, normal - least, normal, dtype.epsilon, 0.1, 0.25, 0.5, 0.75]
    positive += [1 - dtype.epsilon / 2]
    positive += [1.0, 1 + dtype.epsilon, 1.5, 2.0, 2.5, 3.0, 3.5, 10.0, 88.0, 127.5, 128.0, 255.0, 256.0, 300.0]
    positive += [2.0**bits - 0.5, 2.0**bits, 2.0**31, 2.0**32, 2.0**63, 2.0**64, most, INF]
    with np.errstate(over="ignore", invalid="ignore"):
        return np.array([NAN, *positive, *(-p for p in positive)]).astype(dtype.numpy)


def ordered_bits(x: Array) -> Any:
    """Floats as integers of which neighbours differ by 1, so that a difference counts units in the last place."""
    width = x.dtype.itemsize * 8
    bits = x.view(f"u{x.dtype.itemsize}").astype(object)
    sign = 1 << (width - 1)
    return np.where((bits & sign).astype(bool), sign - bits, bits)


def wrong_indices(operator: Operator, actual: Array, expected: Array, operand: Array) -> Any:
    """Where the results differ by more than the tables allow."""
    if not _dtype(expected).is_float:
        return actual != expected
    both_nan = np.isnan(actual) & np.isnan(expected)
    if operator.decompose is not None and operator.has("elementwise"):
        got, exact, x = (a.astype(np.float64) for a in (actual, expected, operand))
        size = np.maximum(np.abs(exact), np.minimum(np.abs(x), 1))
        with np.errstate(all="ignore"):
            near = np.abs(got - exact) <= COMPOSED_PLACES * _dtype(expected).epsilon * size
        agree = both_nan | (got == exact) | (near & np.isfinite(exact) & np.isfinite(got))
    else:
        distance = np.abs(ordered_bits(actual) - ordered_bits(expected))
        allowed = LIBRARY_PLACES.get(operator.name, 0)
        agree = both_nan | (distance <= allowed) & (np.isnan(actual) == np.isnan(expected))
    same_zero = (actual != 0) | (expected != 0) | (np.signbit(actual) == np.signbit(expected))
    return ~(agree & (both_nan | same_zero))


LANES = 64
"""Elements of the longest vector."""
OTHER_OPERANDS = {"prelu", "quantize", "requantize", "dequantize"}
"""Operators whose operands have shapes of their own, and those that need attributes."""
Try = tuple[Operator, dict[str, Any], list[Array]]


def tries(dtype: DType) -> Iterator[Try]:
    """Every elementwise operator of one or two operands of the dtype, on all special values or pairs of them. There is
    one more than whole vectors hold, so that the last element of each tensor is computed under a mask."""
    values = special_values(dtype)
    left, right = map(_odd, (np.array(side) for side in zip(*itertools.product(values, values), strict=True)))
    values = _odd(values)
    for operator in OPERATORS.values():
        if not operator.has("elementwise") or any(dtype not in o.dtypes for o in operator.operands):
            continue
        if operator.name == "cast":
            yield from ((operator, {"dtype": target}, [values]) for target in DTYPES.values())
        elif operator.name == "bitcast":
            same = [d for d in operator.operands[0].dtypes if d.bits == dtype.bits]
            yield from ((operator, {"dtype": target}, [values]) for target in same)
        elif operator.name not in OTHER_OPERANDS and len(operator.operands) <= 2:
            yield operator, operator.complete({}), [values] if len(operator.operands) == 1 else [left, right]


def _odd(values: Array) -> Array:
    return np.resize(values, -(-(values.size - 1) // LANES) * LANES + 1)


def test_every_dtype_has_its_tries() -> None:
    assert len(list(tries(F32))) > 50 and len(list(tries(I32))) > 25 and len(list(tries(BOOL))) > 15


def check(chosen: Sequence[Try], level: int, cpu: str) -> None:
    (target,) = parse_targets(cpu)
    if not target.runs_here:
        pytest.skip(f"this CPU does not run {cpu}")
    functions = [
        build_function(
            [TensorType(_dtype(a), a.shape) for a in arrays],
            lambda b, v, o=operator, a=attributes: b.apply(o.name, v, a),
            f"f{i}",
        )
        for i, (operator, attributes, arrays) in enumerate(chosen)
    ]
    # LLVM's optimisations are the same for all variants.
    options = CodeOptions((target,), level, quick=level == 0 or cpu != "native", visible=True)
    lowered = lower_module(
        Module("special", functions=tuple(functions)), pack=choose_panels((Target(),)) if level >= 2 else None
    )
    library = Library(*generate_joined(lowered, options), None)

    def task(function: Function, entry: Try) -> Callable[[Progress], str | None]:
        return lambda tell: _failure(library, function, entry)

    answers = run_isolated([task(f, entry) for f, entry in zip(functions, chosen, strict=True)])
    messages = [a.message if isinstance(a, Died) else a for a in answers]
    failures = [f"{o.name} {a or ''}: {m}" for (o, a, _), m in zip(chosen, messages, strict=True) if m]
    assert not failures, f"{len(failures)} failures:\n" + "\n".join(failures)


def _failure(library: Library, function: Function, entry: Try) -> str | None:
    """How a call on guarded memory differs from the reference, if it does."""
    operator, attributes, arrays = entry
    with np.errstate(all="ignore"):
        expected = np.asarray(operator.reference(*arrays, **attributes))
    for at_end in (True, False):
        outcome = library.run(function, arrays, {}, at_end=at_end)
        if outcome.damage:
            return outcome.damage
        (actual,) = outcome.results
        wrong = wrong_indices(operator, actual, expected, arrays[0])
        if wrong.any():
            place = int(np.argmax(wrong))
            operands = ", ".join(repr(a[place].item()) for a in arrays)
            return f"({operands}) is {actual[place]!r}, expected {expected[place]!r} ({int(wrong.sum())} differ)"
    return None


@pytest.mark.parametrize("dtype", ANY, ids=str)
def test_without_optimisation(dtype: DType) -> None:
    check(list(tries(dtype)), 0, "native")


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_at_the_default_level(dtype: DType) -> None:
    check(list(tries(dtype)), 2, "native")


@pytest.mark.parametrize("cpu", ["native", "x86-64-v3"])
def test_integers_in_other_dtypes(cpu: str) -> None:
    """A vector of wide integers that becomes narrow ones writes no more than the last element."""
    check([each for d in (*INTEGERS, BOOL) for each in tries(d) if each[0].name == "cast"], 2, cpu)


@pytest.mark.parametrize(("cpu", "dtype"), [("x86-64-v3", BF16), ("x86-64-v3", F32), ("x86-64-v4-vnni", BF16)], ids=str)
def test_cpu_variants(cpu: str, dtype: DType) -> None:
    check(list(tries(dtype)), 2, cpu)


@pytest.mark.parametrize("level", [0, 2])
def test_integers_become_bfloats(level: int) -> None:
    """On a CPU without instructions for bf16, no function of a compiler's library is called."""
    casts = [(OPERATORS["cast"], {"dtype": BF16}, [_odd(special_values(d))]) for d in (*INTEGERS, BOOL)]
    one_hot = (OPERATORS["one_hot"], {"depth": 5, "dtype": BF16}, [np.arange(-1, 6)])
    check([*casts, one_hot], level, "x86-64-v3")


def test_the_comparison_sees_a_difference() -> None:
    add, exp, silu = (OPERATORS[name] for name in ("add", "exp", "silu"))
    one, two, nan = (np.array([value], np.float32) for value in (1.0, 2.0, NAN))
    next_one = np.nextafter(one, two)
    zeros = np.array([0.0], np.float32), np.array([-0.0], np.float32)
    assert wrong_indices(add, one, next_one, one)[0]
    assert not wrong_indices(exp, one, next_one, one)[0] and not wrong_indices(silu, one, next_one, one)[0]
    assert wrong_indices(silu, one, np.float32(1.001) * one, one)[0]
    for operator in (add, exp, silu):
        assert wrong_indices(operator, *zeros, one)[0]
        assert wrong_indices(operator, nan, one, one)[0] and wrong_indices(operator, one, nan, one)[0]
