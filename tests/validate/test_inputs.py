"""What functions are tried with."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from nacre.compiler.validate.inputs import (
    EDGES,
    KINDS,
    ORDINARY,
    SPECIAL,
    made_up,
    random_array,
    random_dims,
    random_large_dims,
    random_trial,
)
from nacre.dialect.dims import INFINITY, Symbol
from nacre.dialect.graph import Function, Parameter, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import ANY, F32, F64, FLOATS, I8, I64, U8, DType, TensorType

B, T, M = Symbol("B", 1, 8), Symbol("T", 0, INFINITY), Symbol("M", 16, 64, 16)


def test_sizes_are_in_range() -> None:
    drawn = random_dims([B, T, M])
    assert drawn == ({"B": 5, "T": 3, "M": 16}, {"B": 1, "T": 0, "M": 16}, {"B": 1, "T": 1, "M": 16},
                     {"B": 8, "T": 2, "M": 16})  # fmt: skip
    assert random_dims([]) == ({},)


def test_large_sizes_are_in_range_and_new() -> None:
    assert random_large_dims([T, M]) == ({"T": 147, "M": 16}, {"T": 3, "M": 64})
    assert random_large_dims([]) == random_large_dims([Symbol("B", 1, 2)]) == ()


@pytest.mark.parametrize("dtype", ANY, ids=str)
def test_numbers_have_their_dtype(dtype: DType) -> None:
    for kind in KINDS:
        array = random_array(np.random.default_rng(1), dtype, (4, 0, 3), kind)
        assert array.shape == (4, 0, 3) and array.dtype == dtype.numpy
        assert random_array(np.random.default_rng(1), dtype, (), kind).shape == ()


@pytest.mark.parametrize("dtype", [I8, U8], ids=str)
def test_special_bytes_have_every_bit(dtype: DType) -> None:
    drawn = random_array(np.random.default_rng(0), dtype, (5000,), SPECIAL)
    assert set(drawn.tolist()) == set(range(-128, 128) if dtype is I8 else range(256))


def test_products_of_huge_numbers_in_float64_are_finite() -> None:
    """Where they overflow, the order of a sum and fused multiply-adds decide between an infinity and NaN."""
    drawn = random_array(np.random.default_rng(0), F64, (300, 40), EDGES)
    huge = np.abs(drawn[np.isfinite(drawn)]).max()
    assert huge > 1e140 and np.isfinite(huge * huge * 1000)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_special_numbers_are_among_the_others(dtype: DType) -> None:
    rng = np.random.default_rng(0)
    wide = [random_array(rng, dtype, (500,), SPECIAL).astype(np.float64) for _ in range(60)]
    whole = np.concatenate(wide)
    tiny = np.abs(whole[(whole != 0) & np.isfinite(whole)]).min()
    assert np.isnan(whole).any() and np.isposinf(whole).any() and np.isneginf(whole).any()
    assert np.signbit(whole[whole == 0]).any() and tiny < float(ml_dtypes.finfo(dtype.numpy).smallest_normal)
    assert np.isfinite(random_array(rng, dtype, (500,), ORDINARY).astype(np.float64)).all()


def embedding() -> Function:
    b = Builder(OPERATORS)
    table, ids = Value("table", TensorType(F32, (1000, 4))), Value("ids", TensorType(I64, (B.size, T.size)))
    scale = Value("scale", TensorType(I64, (B.size,)))
    flat = b.reshape(ids, shape=(B.size * T.size,))
    rows = b.gather(table, flat, axis=0)
    return Function("f", (table, ids, scale), tuple(b.nodes), (rows,))


def test_places_are_drawn_from_their_axis(tmp_path: Path) -> None:
    function, dims = embedding(), {"B": 5, "T": 40}
    trial = random_trial(function, dims)
    ids, scale = trial.arguments[1:]
    assert ids.shape == (5, 40) and np.abs(ids).max() > 500 and (np.abs(ids) <= 1000).mean() > 0.9
    assert np.abs(scale).max() <= 5
    again = random_trial(function, dims)
    assert all(np.array_equal(a, b) for a, b in zip(trial.arguments, again.arguments, strict=True))
    assert not np.array_equal(random_trial(function, dims, seed=1).arguments[1], ids)
    with np.load(trial.save(tmp_path)) as file:
        saved = dict(file)
    assert list(saved) == ["table", "ids", "scale"] and np.array_equal(saved["ids"], ids)
    assert str(trial) == "ordinary inputs with B=5, T=40"


def test_labels_do_not_count_from_the_end() -> None:
    scores, labels = Value("x", TensorType(F32, (50, 3))), Value("labels", TensorType(I64, (50,)))
    for operator, operands in (("one_hot", (labels,)), ("cross_entropy", (scores, labels))):
        b = Builder(OPERATORS)
        attributes = {"depth": 3, "mode": "error"} if operator == "one_hot" else {}
        results = b.apply(operator, operands, attributes)
        function = Function("f", (scores, labels), tuple(b.nodes), results)
        assert set(random_trial(function, {}).arguments[1].tolist()) == {0, 1, 2}


def test_computed_positions_are_in_range() -> None:
    b = Builder(OPERATORS)
    x, positions = Value("x", TensorType(F32, (2, 3, T.size))), Value("positions", TensorType(I64, (2, 40)))
    b.apply("mix_taps", [x, positions], {"weighted": False})
    function = Function("f", (x, positions), tuple(b.nodes), ())
    for size in (0, 1, 5):
        drawn = random_trial(function, {"T": size}).arguments[1]
        assert set(np.unique(drawn)) == set(range(-1, size))


@pytest.mark.parametrize("kind", [SPECIAL, EDGES])
def test_weights_of_transposed_convolutions_are_finite(kind: str) -> None:
    x, w = Value("x", TensorType(F32, (1, 2, 9, 9))), Value("w", TensorType(F32, (3, 3, 3, 2)))
    b = Builder(OPERATORS)
    turned = b.apply("transpose", [w], {"axes": (3, 2, 0, 1)})[0]
    y = b.apply("conv_transpose2d", [x, turned], {"stride": 2})
    drawn = [random_trial(Function("f", (x, w), tuple(b.nodes), tuple(y)), {}, kind, seed=seed) for seed in range(9)]
    assert all(np.isfinite(trial.arguments[1]).all() for trial in drawn)
    assert not all(np.isfinite(trial.arguments[0]).all() for trial in drawn)


def test_parameters_are_made_up_as_they_are_stored() -> None:
    plain = made_up(Parameter("w", TensorType(F32, (3, 5))))
    turned = made_up(Parameter("v", TensorType(F32, (5, 3)), source="w", transpose=(1, 0)))
    assert np.array_equal(plain, turned.T)


def test_integers_that_are_moved_are_small() -> None:
    b = Builder(OPERATORS)
    x, y = Value("x", TensorType(I64, (3, 2))), Value("y", TensorType(I64, (3, 2)))
    both = b.stack(x, y, axis=2)
    trial = random_trial(Function("f", (x, y), tuple(b.nodes), (both,)), {})
    assert all(np.abs(a).max() <= 5 for a in trial.arguments)


@pytest.mark.parametrize("order", [None, (1, 0, 2), (1, 2, 0), (2, 0, 1)])
def test_made_up_data_have_the_shape_of_the_parameter(order: tuple[int, ...] | None) -> None:
    parameter = Parameter("w", TensorType(F32, (2, 3, 5)), transpose=order)
    found = made_up(parameter)
    assert found.shape == (2, 3, 5)
    # In the order of the checkpoint, they are its elements one after another.
    stored = found if order is None else found.transpose(np.argsort(order))
    assert stored.flags.c_contiguous
