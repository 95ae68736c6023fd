"""Every scalar function of the emitter protocol, in every dtype that has it, on values that hurt."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from kernel_harness import Written, run_kernels
from nacre.compiler.codegen.jit import Run
from nacre.compiler.lower.arithmetic import BINARY, PREDICATES, UNARY
from nacre.dialect.emitter import identity
from nacre.dialect.ops.support.conversion import cast_array
from nacre.dialect.types import (
    ANY,
    BF16,
    BOOL,
    COMPUTED,
    DTYPES,
    F16,
    F32,
    F64,
    FLOATS,
    INTEGERS,
    Array,
    DType,
    Kind,
    TensorType,
    dtype_of,
)

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
COMPARE = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def samples(dtype: DType) -> Array:
    """Values with every corner of the dtype among them."""
    if dtype is BOOL:
        return np.array([False, True])
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        near = [0, 1, 2, 3, 5, 7, 8, 31, 63, 64, 100]
        values = {*near, *(-x for x in near), info.min, info.min + 1, info.max, info.max - 1}
        return np.array(sorted(v for v in values if info.min <= v <= info.max), dtype.numpy)
    info = ml_dtypes.finfo(dtype.numpy)
    tiny, large = float(info.tiny), float(info.max)
    values = [0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 7.0, 10.3, 1e-3, tiny, tiny / 4, large, math.inf]
    with np.errstate(all="ignore"):
        return np.array([*values, *(-v for v in values), math.nan]).astype(dtype.numpy)


def pairs(dtype: DType) -> tuple[Array, Array]:
    x, y = np.meshgrid(samples(dtype), samples(dtype), indexing="ij")
    return np.ascontiguousarray(x.reshape(-1)), np.ascontiguousarray(y.reshape(-1))


def dtypes_with(table: dict[tuple[Kind, str], object], function: str) -> list[DType]:
    return [dtype for dtype in COMPUTED if (dtype.kind, function) in table]


UNARY_USES = [(f, d) for f in sorted({f for _, f in UNARY}) for d in dtypes_with(dict(UNARY), f)]
BINARY_USES = [(f, d) for f in sorted({f for _, f in BINARY}) for d in dtypes_with(dict(BINARY), f)]
COMPARE_USES = [(f, d) for f in COMPARISONS for d in ANY]
CAST_USES = [(a, b) for a in ANY for b in ANY]


def elementwise(result: DType, operands: list[DType], count: int, body: Callable[..., object]) -> Written:
    def write(e, *inputs):  # type: ignore[no-untyped-def]
        return [e.map(TensorType(result, (count,)), [(x, identity(1)) for x in inputs], body)]

    return Written([TensorType(d, (count,)) for d in operands], write)


def all_kernels() -> tuple[dict[str, Written], dict[str, list[Array]]]:
    """A kernel per function and dtype, and what to call it with."""
    written: dict[str, Written] = {}
    arrays: dict[str, list[Array]] = {}
    for f, d in UNARY_USES:
        result = BOOL if f in PREDICATES else d
        written[f"{f}_{d}"] = elementwise(result, [d], len(samples(d)), lambda s, x, f=f: s.unary(f, x))
        arrays[f"{f}_{d}"] = [samples(d)]
    for f, d in BINARY_USES:
        written[f"{f}_{d}"] = elementwise(d, [d, d], len(pairs(d)[0]), lambda s, x, y, f=f: s.binary(f, x, y))
        arrays[f"{f}_{d}"] = list(pairs(d))
    for f, d in COMPARE_USES:
        written[f"{f}_{d}"] = elementwise(BOOL, [d, d], len(pairs(d)[0]), lambda s, x, y, f=f: s.compare(f, x, y))
        arrays[f"{f}_{d}"] = list(pairs(d))
    for a, b in CAST_USES:
        written[f"cast_{a}_{b}"] = elementwise(b, [a], len(samples(a)), lambda s, x, b=b: s.cast(x, b))
        arrays[f"cast_{a}_{b}"] = [samples(a)]
    return written, arrays


@pytest.fixture(scope="module")
def functions() -> dict[str, Run]:
    return run_kernels(all_kernels()[0])


def test_optimized_code_computes_the_same(functions: dict[str, Run]) -> None:
    written, arrays = all_kernels()
    for name, run in run_kernels(written, level=1).items():
        (fast,), (slow,) = run(arrays[name]), functions[name](arrays[name])
        assert np.array_equal(fast, slow, equal_nan=dtype_is_float(fast)), (name, fast, slow)


_ERF = np.vectorize(math.erf, otypes=[np.float64])
_ERFC = np.vectorize(math.erfc, otypes=[np.float64])


REFERENCES: dict[str, Callable[..., Array]] = {
    **{f: getattr(np, f) for f in ("ceil", "floor", "trunc", "sqrt", "cbrt", "exp", "exp2", "expm1", "log", "log2")},
    **{f: getattr(np, f) for f in ("log1p", "log10", "sin", "cos", "tan", "sinh", "cosh", "tanh", "isnan", "isinf")},
    **{f"a{f}": getattr(np, f"arc{f}") for f in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "isfinite": np.isfinite,
    "erf": _ERF,
    "erfc": _ERFC,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "round": np.rint,
    "neg": np.negative,
    "abs": np.abs,
    "not": np.invert,
    "sign": np.sign,
}


@pytest.mark.parametrize(("function", "dtype"), UNARY_USES, ids=str)
def test_unary(functions: dict[str, Run], function: str, dtype: DType) -> None:
    x = samples(dtype)
    (actual,) = functions[f"{function}_{dtype}"]([x])
    wide = x.astype(np.float64) if dtype.is_float else x
    with np.errstate(all="ignore"):
        exact = np.asarray(REFERENCES[function](wide))
    compare(function, dtype, actual, exact, x)


def compare(function: str, dtype: DType, actual: Array, exact: Array, *operands: Array) -> None:
    """Equal, floats to within two units in the last place (libm's bound for the worst of these functions is below)."""
    if not dtype_is_float(actual):
        assert np.array_equal(actual, exact), (function, dtype, list(zip(*operands, actual, exact, strict=True)))
        return
    with np.errstate(all="ignore"):
        expected = exact.astype(actual.dtype)
        got, want = actual.astype(np.float64), expected.astype(np.float64)
        ulp = np.maximum(np.abs(want) * dtype.epsilon, float(ml_dtypes.finfo(actual.dtype).smallest_subnormal))
        close = np.abs(got - want) <= 2 * ulp
        # Where rounding decides between infinity and the largest number, either will do.
        largest = float(ml_dtypes.finfo(actual.dtype).max)
        edge = (np.abs(got) >= largest) & (np.abs(want) >= largest) & (np.sign(got) == np.sign(want))
        agree = np.where(np.isnan(want), np.isnan(got), (got == want) | close | edge)
    wrong = np.flatnonzero(~agree)
    assert not len(wrong), [(function, *(x[i] for x in operands), actual[i], expected[i]) for i in wrong[:5]]
    exactly = expected == 0
    signs = np.signbit(actual.astype(np.float64)) == np.signbit(expected.astype(np.float64))
    if function not in ("max", "min"):
        wrong = np.flatnonzero(exactly & (actual == 0) & ~signs)
        assert not len(wrong), ("sign of zero", [(*(x[i] for x in operands), actual[i]) for i in wrong[:5]])


def dtype_is_float(array: Array) -> bool:
    return dtype_of(array).is_float


def divide(x: Array, y: Array) -> Array:
    """Truncating; 0 where the divisor is 0, wrapping at the least integer."""
    return integers(x, y, lambda a, b: 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))


def integers(x: Array, y: Array, function: Callable[[int, int], int]) -> Array:
    bits, signed = 8 * x.dtype.itemsize, x.dtype.kind == "i"
    values = [function(int(a), int(b)) % (1 << bits) for a, b in zip(x, y, strict=True)]
    return np.array([v - (1 << bits) if signed and v >> (bits - 1) else v for v in values], x.dtype)


def remainder(a: int, b: int) -> int:
    return 0 if b == 0 else int(math.copysign(1, a)) * (abs(a) % abs(b))


def power(bits: int) -> Callable[[int, int], int]:
    def one(a: int, b: int) -> int:
        if b >= 0:
            return pow(a, b, 1 << bits)
        return 1 if a == 1 else (1 if b % 2 == 0 else -1) if a == -1 else 0

    return one


def shift(bits: int, function: str) -> Callable[[int, int], int]:
    def one(a: int, b: int) -> int:
        if not 0 <= b < bits:
            return -1 if function == "shr" and a < 0 else 0
        return a << b if function == "shl" else a >> b

    return one


@pytest.mark.parametrize(("function", "dtype"), BINARY_USES, ids=str)
def test_binary(functions: dict[str, Run], function: str, dtype: DType) -> None:
    x, y = pairs(dtype)
    (actual,) = functions[f"{function}_{dtype}"]([x, y])
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact = (
            FLOAT_BINARY[function](x.astype(np.float64), y.astype(np.float64))
            if dtype.is_float
            else whole(function, dtype, x, y)
        )
    if dtype is F32 and function in ("mod", "floordiv", "rem"):
        with np.errstate(all="ignore"):
            exact = FLOAT_BINARY[function](x, y)
    compare(function, dtype, actual, exact, x, y)


def whole(function: str, dtype: DType, x: Array, y: Array) -> Array:
    if function in ("and", "or", "xor"):
        return np.asarray(getattr(np, f"bitwise_{function}")(x, y))
    if function in ("max", "min"):
        return np.asarray({"max": np.maximum, "min": np.minimum}[function](x, y))
    exact: dict[str, Callable[[int, int], int]] = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "floordiv": lambda a, b: a // b if b else 0,
        "mod": lambda a, b: a % b if b else 0,
        "rem": remainder,
        "pow": power(dtype.bits),
        "shl": shift(dtype.bits, "shl"),
        "shr": shift(dtype.bits, "shr"),
    }
    return divide(x, y) if function == "div" else integers(x, y, exact[function])


FLOAT_BINARY: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "rem": np.fmod,
    "pow": np.power,
    "atan2": np.arctan2,
    "max": np.maximum,
    "min": np.minimum,
}


@pytest.mark.parametrize(("function", "dtype"), COMPARE_USES, ids=str)
def test_compare(functions: dict[str, Run], function: str, dtype: DType) -> None:
    x, y = pairs(dtype)
    (actual,) = functions[f"{function}_{dtype}"]([x, y])
    with np.errstate(invalid="ignore"):
        assert np.array_equal(actual, COMPARE[function](x, y))


def saturate(x: Array, dtype: DType) -> Array:
    info = np.iinfo(dtype.numpy)
    values = [0 if math.isnan(v) else int(max(info.min, min(info.max, v))) if math.isinf(v) else int(v) for v in x]
    return np.array([max(info.min, min(info.max, v)) for v in values], dtype.numpy)


@pytest.mark.parametrize(("source", "target"), CAST_USES, ids=str)
def test_cast(functions: dict[str, Run], source: DType, target: DType) -> None:
    x = samples(source)
    (actual,) = functions[f"cast_{source}_{target}"]([x])
    with np.errstate(all="ignore"):
        if source.is_float and target.is_integer:
            expected = saturate(x.astype(np.float64), target)
        elif source.is_integer and target in (F16, BF16):
            expected = x.astype(np.float32).astype(target.numpy)
        elif target.is_storage:
            expected = cast_array(x, target)
        else:
            expected = x.astype(target.numpy)
    assert np.array_equal(actual, expected, equal_nan=target.is_float and dtype_is_float(expected)), (
        x,
        actual,
        expected,
    )


@pytest.mark.parametrize("target", [F16, BF16], ids=str)
def test_rounding_to_narrow_floats(target: DType) -> None:
    """Ties, values next to ties, and the borders of the subnormals and of overflow: f64 becomes bf16 through f32."""
    info = ml_dtypes.finfo(target.numpy)
    rng = np.random.default_rng(0)
    words = rng.integers(0, 1 << 16, 2000, np.uint16).view(target.numpy)
    with np.errstate(all="ignore"):
        base = words.astype(np.float64)
        base = base[np.isfinite(base) & (np.abs(base) < float(info.max))]
        step = np.maximum(np.abs(base) * float(info.eps) / 2, float(info.smallest_subnormal)) / 2
    wide = np.concatenate([base + step * k for k in (0.5, 1.0, 2.0)] + [np.array([65519.999, 65520.0, 3.4e38, 3.5e38])])
    wide = np.concatenate([wide, np.nextafter(wide, np.inf), np.nextafter(wide, -np.inf)])
    with np.errstate(over="ignore"):
        single = wide.astype(np.float32)
    run = run_kernels(
        {
            "f64": elementwise(target, [F64], len(wide), lambda s, x: s.cast(x, target)),
            "f32": elementwise(target, [F32], len(wide), lambda s, x: s.cast(x, target)),
        }
    )
    with np.errstate(all="ignore"):
        assert np.array_equal(run["f32"]([single])[0], single.astype(target.numpy), equal_nan=True)
        assert np.array_equal(run["f64"]([wide])[0], cast_array(wide, target), equal_nan=True)


def test_every_dtype_is_tested() -> None:
    assert {d.name for _, d in COMPARE_USES} == set(DTYPES)
    assert {d for f, d in BINARY_USES if f == "add"} == {*FLOATS, *INTEGERS}
