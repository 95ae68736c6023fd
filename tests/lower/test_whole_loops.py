"""Loops that are one function: which are, that they compute what loops with launches do, and the reasons against it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.codegen.llvm.inner_kernels import MOST_ACCUMULATORS, count_accumulators, link_inner_kernels
from nacre.compiler.codegen.llvm.machine import Machine
from nacre.compiler.codegen.llvm.machine import Options as LlvmOptions
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import Target
from nacre.dialect.interpreter import Interpreter
from nacre.runtime.observe import record

TEXT = """dim B in 1..200
dim T in 0..64
dim N in 1..40

model lstm(x: f32[T, B, 32], w: f32[8, 32], h0: f32[B, 8], c0: f32[B, 8]) -> f32[T, B, 8], f32[B, 8], f32[B, 8] {
  y = scan t in 0..T with h = h0, c = c0 {
    i, f, g, o = split(x[t] + h @ w, 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    h = sigmoid(o) * tanh(c)
  } collect h
  return y, h, c
}

model nested(x: f32[T, N], limit: f32, turn: bool) -> f32[N], i64 {
  while max(abs(y)) < limit and n < 20 with y = ones([N], f32), n = 0 {
    scan t in 0..T with a = y {
      b = if turn { a + x[t] } else { a - x[t] }
      a = b * 0.5 + cast(t + n, f32)
    }
    y = a + y
    n = n + 1
  }
  return y, n
}

model swapped(x: f32[T, N], w: f32[T, N, N]) -> f32[N], f32[N], f32[T, N] {
  ys = scan t in 0..T with a = zeros([N], f32), b = ones([N], f32) { a, b = b, tanh(x[t] - a @ w[t]) } collect a
  return a, b, ys
}

model looked_up(x: f32[4, 8], ids: i64[T, 3]) -> f32[8] {
  scan t in 0..T with s = zeros([8], f32) {
    v = sum(gather(x, ids[t], axis=0), axis=0)
    scan u in 0..3 with r = s { r = r * 0.5 + v * cast(u, f32) + x[u] * cast(t, f32) }
    s = r
  }
  return s
}

model wide(x: f32[T, 512], w: f32[512, 512]) -> f32[512] {
  scan t in 0..T with h = zeros([512], f32) { h = tanh(h @ w + x[t]) }
  return h
}

model in_turn(x: f32[T, B, 32]) -> f32[B, 32], f32[8] {
  scan t in 0..T with a = zeros([B, 32], f32) { a = tanh(a * 0.5 + x[t]) }
  scan u in 0..T with g = zeros([8], f32) { g = g * 0.5 + x[u, 0, :8] }
  return a, g
}

model kept(x: f32[T, 8]) -> f32[T, 8] {
  state h: f32[8]
  y = scan t in 0..T with a = h { a = a * 0.5 + x[t] } collect a
  h = a
  return y
}
"""


@pytest.fixture(scope="module", params=[0, 2])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path]:
    build = Build(read_model(TEXT), Options(level=request.param))
    path = tmp_path_factory.mktemp("loops") / "m.so"
    build.run(path)
    return build, path


def normal(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def as_tuple(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def calls() -> Iterator[tuple[str, tuple[Any, ...]]]:
    # With 128 rows, the kernels of an iteration of `lstm` touch too much memory for one function.
    for steps, rows in ((0, 1), (1, 1), (7, 1), (64, 3), (5, 8), (3, 128), (2, 200)):
        yield "lstm", (normal(steps, rows, 32), normal(8, 32), normal(rows, 8), normal(rows, 8))
    for steps, width in ((1, 1), (3, 5), (2, 40)):
        for turn in (False, True):
            yield "nested", (normal(steps, width), np.float32(30), np.bool_(turn))
    for steps, width in ((0, 3), (1, 1), (2, 5), (7, 40)):
        yield "swapped", (normal(steps, width), normal(steps, width, width) / 4)
    for steps in (0, 1, 4):
        yield "looked_up", (normal(4, 8), np.arange(3 * steps).reshape(steps, 3) % 4)
    yield "wide", (normal(3, 512), normal(512, 512) / 20)
    # The first loop of `in_turn` is one function or has launches, as the size of B is; the second is one function.
    for steps, rows in ((0, 1), (3, 2), (2, 200)):
        yield "in_turn", (normal(steps, rows, 32),)


@pytest.mark.parametrize("threads", [1, 2])
def test_loops_agree_with_the_interpreter(built: tuple[Build, Path], threads: int) -> None:
    build, path = built
    model = nacre.load(path, threads=threads)
    interpreter = Interpreter(build.source_model.module, build.read_parameters())
    for name, arguments in calls():
        found = as_tuple(model.entries[name](*arguments))
        right = interpreter.run(name, arguments)
        for ours, theirs in zip(found, right, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5, err_msg=name)


def test_observed_calls_launch_each_kernel_and_compute_the_same(built: tuple[Build, Path]) -> None:
    model = nacre.load(built[1])
    for name, arguments in calls():
        plain = as_tuple(model.entries[name](*arguments))
        with record(model) as recording:
            observed = as_tuple(model.entries[name](*arguments))
        assert all(np.array_equal(a, b) for a, b in zip(plain, observed, strict=True)), name
        if name == "lstm" and len(arguments[0]):
            # A launch has one record for each thread that computed a part of it, all with the launch's own times.
            launches = np.unique(recording.records[["call", "begin"]])["call"]
            assert (launches == launches.max()).sum() == len(arguments[0])


def test_a_state_is_carried_through_such_a_loop(built: tuple[Build, Path]) -> None:
    session, h = nacre.load(built[1]).session(), np.zeros(8, np.float32)
    for steps in (3, 0, 1, 5):
        x = normal(steps, 8)
        for row, result in zip(x, session.entries["kept"](x), strict=True):
            h = h * np.float32(0.5) + row
            np.testing.assert_allclose(result, h, atol=1e-6)
        np.testing.assert_allclose(session.states["h"], h, atol=1e-6)


def test_each_loop_has_one_line(built: tuple[Build, Path]) -> None:
    build, path = built
    lines = nacre.load(path).describe()["target"]["levels"][0]["loops"]
    assert build.program is not None and lines == [str(loop.report) for loop in build.program.loops]
    text = "\n".join(lines)
    assert "since `check_indices" in text and " checks indices" in text
    assert "more than 32768" in text
    whole = [line for line in lines if ": one function with" in line]
    if build.options.level == 0:
        assert not whole and "has no vector code" in text
        return
    # The loop inside of the one with a check is a function of its own.
    assert len(whole) == 7 and len(lines) == 9, text
    assert any(line.endswith(" <= 32768") for line in whole), text


def test_kernels_that_fill_the_registers_stay_functions() -> None:
    def loop(count: int) -> str:
        phis = "".join(f"  %{i} = phi <8 x float> [ %a{i}, %2 ], [ %b{i}, %1 ]\n" for i in range(count))
        return f"define void @f() {{\n3:\n  %i = phi i64 [ 0, %2 ]\n{phis}  br label %3\n}}\n"

    assert count_accumulators(loop(0)) == 0 and count_accumulators(loop(12)) == 12 > MOST_ACCUMULATORS
    assert count_accumulators(loop(3) + loop(8) + loop(2)) == 8


def test_copies_of_kernels_admit_that_tensors_alias() -> None:
    """A loop reads what an earlier iteration wrote to the same memory under another name."""
    body = "  call void @f_inner(ptr %p, ptr %p)\n  ret void\n"
    entries = f"declare void @f_inner(ptr, ptr)\ndefine void @entry(ptr %p) {{\n{body}}}\n"
    kernel = "define void @f(ptr noalias readonly %0, ptr noalias %1) {\n  ret void\n}\n"
    text = link_inner_kernels(Machine(Target(), LlvmOptions()), entries, [kernel], "_inner")
    assert "define void @f_inner(ptr readonly %0, ptr %1)" in text
    assert "noalias" not in text and "alwaysinline" in text
