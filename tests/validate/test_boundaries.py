"""Sizes on both sides of the boundaries of loops and of memory."""

from __future__ import annotations

import pytest
from nacre.compiler.lower.cost import count_operations
from nacre.compiler.pipeline import Build
from nacre.compiler.readers.language import load_module
from nacre.compiler.validate.boundaries import (
    is_short,
    random_boundary_dims,
    random_crossing_dims,
    random_largest_dims,
    steps_of,
)
from nacre.compiler.validate.kernels import random_trials
from nacre.dialect.dims import evaluate
from nacre.dialect.graph import Function


def function(text: str) -> Function:
    return load_module(f"language 1\n{text}", text=True).module.functions[0]


ROWS = function("dim B in 1..20\ndim T in 1..4096\nmodel f(x: f32[B, T]) -> f32[B, T] { return softmax(x) }\n")


def test_each_dim_is_below_at_and_above_each_step() -> None:
    drawn = random_boundary_dims(ROWS, (8, 512))
    assert {7, 8, 9} <= {dims["B"] for dims in drawn}
    assert {7, 8, 9, 511, 512, 513} <= {dims["T"] for dims in drawn}
    assert all(1 <= dims["B"] <= 20 and is_short(ROWS, dims) for dims in drawn)


def test_every_one_of_many_steps_is_reached_on_both_sides() -> None:
    steps = (8, 16, 32, 64, 128, 256, 512)
    sizes = {dims["T"] for dims in random_boundary_dims(ROWS, steps)}
    assert {step + offset for step in steps for offset in (-1, 0, 1)} <= sizes


def test_the_calls_together_are_bounded() -> None:
    heavy = function("dim T in 1..4096\nmodel f(x: f32[T, 64], w: f32[64, 64]) -> f32[T, 64] { return x @ w }\n")
    steps = tuple(range(8, 512, 8))
    work = count_operations(heavy.body)
    drawn = random_boundary_dims(heavy, steps)
    assert 8 < len(drawn) < len(steps)
    assert sum(evaluate(work, dims) for dims in drawn) <= 1 << 25


def test_a_kernel_is_tried_at_the_largest_sizes_of_a_short_call() -> None:
    trials = [trial.dims for trial in random_trials(ROWS, (8,))]
    assert random_largest_dims(ROWS) in trials


def test_products_of_dims_reach_a_step() -> None:
    flat = function("dim T in 1..4096\nmodel f(x: f32[T, 21]) -> f32[21 * T] { return reshape(x, (21 * T,)) }\n")
    sizes = {21 * dims["T"] for dims in random_boundary_dims(flat, (512,))}
    assert any(n < 512 for n in sizes) and any(512 <= n < 512 + 21 for n in sizes)


def test_neighbouring_axes_that_become_one_loop_reach_every_step() -> None:
    merged = function(
        "dim B in 1..20\ndim T in 1..4096\nmodel f(x: f32[B, T, 21]) -> f32[B, T, 21] { return exp(x) }\n"
    )
    sizes = {21 * dims["T"] for dims in random_boundary_dims(merged, (16, 64, 1024))}
    assert any(1024 - 21 <= n < 1024 for n in sizes) and any(1024 <= n < 1024 + 21 for n in sizes)


def test_nothing_is_drawn_without_dims_or_steps() -> None:
    assert random_boundary_dims(function("model f(x: f32[3]) -> f32[3] { return relu(x) }\n"), (8,)) == []
    assert random_boundary_dims(ROWS, ()) == []


def test_a_crossing_has_a_size_beyond_it() -> None:
    squares = function("dim T in 1..512\nmodel f(x: f32[T, 100]) -> f32[T, T] { return x[:, :1] + x[:, :1].T }\n")
    sizes = [dims["T"] for dims in random_crossing_dims(squares, squares)]
    assert 101 in sizes and max(sizes) >= 200


def test_the_largest_sizes_are_short_calls() -> None:
    largest = random_largest_dims(ROWS)
    assert largest is not None and is_short(ROWS, largest) and largest["B"] == 20 and largest["T"] > 1000
    heavy = function("model f(x: f32[600, 600]) -> f32[600, 600] { return x @ x }\n")
    assert random_largest_dims(heavy) is None


def test_sizes_that_an_artifact_refuses_are_not_tried() -> None:
    powers = function(
        "dim T in 1..100000\nmodel f(x: f32[T]) -> i64 { return cast(T*T*T*T, i64) + cast(sum(x), i64) }\n"
    )
    largest = random_largest_dims(powers)
    assert largest is not None and 1000 < largest["T"] < 55109  # 55109 ** 4 > 2 ** 63
    assert all(dims["T"] < 55109 for dims in random_boundary_dims(powers, (1 << 12, 1 << 16)))


@pytest.mark.parametrize(
    ("model", "numbers"),
    [
        ("(x: f32[3, T]) -> v: f32[3, 8], i: i64[3, 8] { return top_k(x, 8) }", {64, 96, 456}),
        ("(x: f32[2, T]) -> f32[2, T] { return sort(x) }", {32}),
        ("(x: f32[2, 64, T]) -> re: f32[2, 64, T], im: f32[2, 64, T] { return fft(x, axes=1) }", {8, 16}),
    ],
)
def test_kernels_that_are_not_tiled_have_boundaries_too(model: str, numbers: set[int]) -> None:
    build = Build(load_module(f"language 1\ndim T in 8..4096\nmodel f{model}\n", text=True))
    found = steps_of(build.generate(build.lower(build.optimize())))
    assert numbers <= {step for steps in found.values() for step in steps}


def test_steps_are_reported_with_the_object() -> None:
    text = "language 1\ndim T in 1..4096\nmodel f(x: f32[T]) -> f32[T] { return exp(relu(x)) + x }\n"
    for _ in range(2):  # made, then taken from the cache
        build = Build(load_module(text, text=True))
        program = build.generate(build.lower(build.optimize()))
        (code,) = next(iter(program.kernels.values())).values()
        lanes = code.report.steps[0]
        assert code.report.steps == (lanes, 4 * lanes, 64 * lanes)
