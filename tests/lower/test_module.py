"""Graphs to kernels and entries: what is shared, what is a view, what is copied, what is a weight."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from nacre.compiler.codegen.jit import build_functions
from nacre.compiler.host.plan import plan_entries
from nacre.compiler.lower.function import FunctionLowering
from nacre.compiler.lower.kernel import KernelEmitter
from nacre.compiler.lower.kinds import kind_of
from nacre.compiler.lower.module import lower_module
from nacre.compiler.lower.storage import Output, Weight, Workspace
from nacre.compiler.lower.writer import Kernel
from nacre.dialect.diagnostics import Span
from nacre.dialect.dims import Symbol
from nacre.dialect.graph import Constant, Function, Module, Node, Parameter, Region, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import F32, I64, Array, TensorType

B, T = Symbol("B", 1, 64), Symbol("T", 0, 512)


def f32(*shape: Any) -> TensorType:
    return TensorType(F32, tuple(s.size if isinstance(s, Symbol) else s for s in shape))


def function(
    name: str, types: Sequence[TensorType], write: Callable[..., Sequence[Value]], span: Span | None = None
) -> Function:
    arguments = tuple(Value(f"x{i}", t) for i, t in enumerate(types))
    b = Builder(OPERATORS, "t", span=span)
    results = tuple(write(b, *arguments))
    return Function(name, arguments, tuple(b.nodes), results, tuple(f"y{i}" for i in range(len(results))))


def module(*functions: Function, parameters: Sequence[Parameter] = ()) -> Module:
    return Module("m", (B, T), tuple(parameters), functions)


def random(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def mlp(b: Builder, x: Value, w: Value, v: Value) -> Sequence[Value]:
    h = b.add(b.matmul(x, w), b.like(0.5, x))
    return [b.add(b.matmul(h, v), b.like(0.25, x))]


def test_equal_kernels_are_emitted_once() -> None:
    lowered = lower_module(module(function("f", [f32(B, 8), f32(8, 8), f32(8, 8)], mlp)))
    assert len(lowered.kernels) == 3
    matmul = next(k for k in lowered.kernels if "matmul" in k.symbol)
    assert [call.symbol for call in lowered.functions[0].calls].count(matmul.symbol) == 2
    assert len(matmul.origins) == 2


def variants(b: Builder, x: Value, y: Value, w: Value, i: Value) -> Sequence[Value]:
    """Nodes that differ in one part each, twice."""
    large = [b.constant(value=Constant(np.full((8, 8), value, np.float32))) for value in (1, 2)]
    found: list[Value] = []
    for _ in range(2):
        found += [b.add(x, y), b.add(y, x), b.add(x, x), b.add(x, b.like(0.5, x)), b.add(x, b.like(0.25, x))]
        found += [b.multiply(x, y), b.subtract(x, b.like(0.5, x)), b.subtract(b.like(0.5, x), x)]
        found += [b.matmul(x, w), *(b.matmul(x, each) for each in large)]
        found += [b.sum(x, axis=(0,)), b.sum(x, axis=(1,))]
        first, second, both = (b.apply("top_k", [x], {"k": 2}) for _ in range(3))
        found += [first[0], second[1], *both]
        few = b.slice(w, starts=(0, 0), stops=(3, 8))
        found += [b.scatter(over, i, few, mode="drop") for over in (b.add(x, x), x, few)]
    return found


def test_kernels_of_equal_nodes_are_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same calls as if each node had a kernel of its own."""
    written: list[Kernel] = []
    finish = KernelEmitter.finish
    monkeypatch.setattr(KernelEmitter, "finish", lambda *given: written.append(finish(*given)) or written[-1])
    f = function("f", [f32(B, 8), f32(B, 8), f32(8, 8), TensorType(I64, (3, 1))], variants)
    found = lower_module(module(f))
    count = len(written)
    monkeypatch.setattr(FunctionLowering, "_key", lambda *given: object())
    apart = lower_module(module(f))
    assert (count, len(written) - count) == (17, 42)
    assert found.functions == apart.functions and found.weights[0].offset == apart.weights[0].offset
    assert found.kernels == apart.kernels


def test_kernels_name_their_source() -> None:
    span = Span('a "b".nacre', 3, 7, 3, 9)
    lowered = lower_module(module(function("f", [f32(B, 8), f32(8, 8), f32(8, 8)], mlp, span)))
    assert 'loc("a \\"b\\".nacre":3:7)' in lowered.mlir
    assert 'a "b".nacre:3:7' in lowered.mlir.splitlines()[0]


def test_strange_file_names_do_no_harm() -> None:
    span = Span('@@\n}"\\\udc80\u00e9 loc("x":1:2).nacre', 3, 7, 3, 9)
    m = module(function("f", [f32(2)], lambda b, x: [b.add(x, x)], span))
    assert np.array_equal(build_functions(m)["f"]([np.ones(2, np.float32)])[0], [2, 2])
    plain = lower_module(module(function("f", [f32(2)], lambda b, x: [b.add(x, x)])))
    assert lower_module(m).kernels[0].kernel.shape_of_text == plain.kernels[0].kernel.shape_of_text


def test_workspace_is_reused_and_symbolic() -> None:
    def deep(b: Builder, x: Value) -> Sequence[Value]:
        for _ in range(10):
            x = b.add(x, b.like(1.0, x))
        return [x]

    (entry,) = plan_entries(lower_module(module(function("f", [f32(B, 64)], deep))))
    assert entry.workspace == B.size * 256 * 2
    assert entry.calls[-1].storages[-1] == Output(0)


def test_symbolic_dims_at_run_time() -> None:
    run = build_functions(module(function("f", [f32(B, 8), f32(8, 8), f32(8, 8)], mlp)))["f"]
    w, v = random(8, 8), random(8, 8) * 2
    for batch in (1, 2, 37, 64):
        x = random(batch, 8)
        (y,) = run([x, w, v])
        assert np.allclose(y, (x @ w + 0.5) @ v + 0.25, atol=1e-4)


def test_an_axis_of_size_zero() -> None:
    run = build_functions(module(function("f", [f32(T, 3)], lambda b, x: [b.add(x, x)])))["f"]
    assert run([random(0, 3)])[0].shape == (0, 3)


def test_views_move_nothing() -> None:
    def turn(b: Builder, x: Value) -> Sequence[Value]:
        y = b.reshape(b.add(x, x), shape=(B.size * 2, 4))
        return [b.multiply(y, y), b.reshape(y, shape=(8 * B.size,))]

    f = function("f", [f32(B, 8)], turn)
    (entry,) = plan_entries(lower_module(module(f)))
    assert [c.kernel.split("_")[0] for c in entry.calls] == ["add", "multiply"]
    assert entry.workspace == 0
    x = random(3, 8)
    squares, flat = build_functions(module(f))["f"]([x])
    assert np.array_equal(squares, (2 * x).reshape(6, 4) ** 2) and np.array_equal(flat, 2 * x.reshape(-1))


def test_results_that_no_kernel_computes_are_copied() -> None:
    parameter = Parameter("w", f32(3))

    def same(b: Builder, x: Value) -> Sequence[Value]:
        w = Value("w0", parameter.type)
        b.nodes.append(Node("parameter", (), (w,), (("name", "w"),)))
        y = b.add(x, x)
        return [x, y, y, w, b.reshape(x, shape=(3, 2)), b.scalar(4.0, F32)]

    m = module(function("f", [f32(2, 3)], same), parameters=[parameter])
    w, x = random(3), random(2, 3)
    results = build_functions(m, load=lambda p: w)["f"]([x])
    for actual, expected in zip(results, [x, 2 * x, 2 * x, w, x.reshape(3, 2), np.float32(4)], strict=True):
        assert np.array_equal(actual, expected) and actual.shape == expected.shape


def test_dead_nodes_are_not_computed() -> None:
    def waste(b: Builder, x: Value) -> Sequence[Value]:
        b.matmul(x, x)
        return [b.add(x, x)]

    (lowered,) = lower_module(module(function("f", [f32(4, 4)], waste))).functions
    assert len(lowered.calls) == 1


def test_constants_and_parameters() -> None:
    big = np.arange(100, dtype=np.float32)
    small = np.arange(3, dtype=np.float32)

    def use(b: Builder, x: Value) -> Sequence[Value]:
        (big_value,) = b.apply("constant", (), {"value": Constant(big)})
        (again,) = b.apply("constant", (), {"value": Constant(big.copy())})
        (small_value,) = b.apply("constant", (), {"value": Constant(small)})
        return [b.add(b.add(x, big_value), again), b.add(small_value, small_value)]

    f = function("f", [f32(100)], use)
    lowered = lower_module(module(f))
    assert [w.type for w in lowered.weights] == [f32(100)] and lowered.weights[0].offset == 0
    places = [p for call in plan_entries(lowered)[0].calls for p in call.storages if isinstance(p, Weight)]
    assert places == [Weight(0), Weight(0)]
    x = random(100)
    assert np.allclose(build_functions(module(f))["f"]([x])[0], x + 2 * big)


def test_weights_are_aligned_and_named() -> None:
    parameters = [Parameter("a.{}", f32(5), (2,)), Parameter("b", f32(7))]

    def use(b: Builder, x: Value) -> Sequence[Value]:
        for name, index in (("a.{}", 1), ("b", None), ("a.{}", 0), ("a.{}", 1)):
            inputs = () if index is None else (b.scalar(index, I64),)
            value = Value(f"p{len(b.nodes)}", f32(5) if index is not None else f32(7))
            b.nodes.append(Node("parameter", inputs, (value,), (("name", name),)))
            x = b.add(x, b.sum(value))
        return [x]

    m = module(function("f", [f32()], use), parameters=parameters)
    lowered = lower_module(m)
    assert [(w.name, w.offset) for w in lowered.weights] == [("a.1", 0), ("b", 64), ("a.0", 128)]
    data = {"a.0": random(5), "a.1": random(5) * 3, "b": random(7)}
    (y,) = build_functions(m, load=lambda p: data[p.name])["f"]([np.zeros((), np.float32)])
    assert np.allclose(y, data["a.0"].sum() + 2 * data["a.1"].sum() + data["b"].sum(), atol=1e-5)


def fused(x: Value) -> Node:
    """(x + 1)^2 + big, as one kernel."""
    inner = Value("inner", x.type)
    b = Builder(OPERATORS, "r")
    (big,) = b.apply("constant", (), {"value": Constant(np.arange(100, dtype=np.float32))})
    y = b.add(inner, b.like(1.0, inner))
    y = b.add(b.multiply(y, y), big)
    return Node("fusion", (x,), (Value("fused", x.type),), regions=(Region((inner,), tuple(b.nodes), (y,)),))


def test_a_fusion_is_one_loop_nest() -> None:
    x = Value("x", f32(T, 100))
    node = fused(x)
    m = module(Function("f", (x,), (node,), node.outputs))
    lowered = lower_module(m)
    assert len(lowered.kernels) == 1 and plan_entries(lowered)[0].workspace == 0
    assert lowered.kernels[0].text().count("linalg.generic") == 1
    a = random(3, 100)
    expected = (a + 1) ** 2 + np.arange(100, dtype=np.float32)
    assert np.allclose(build_functions(m)["f"]([a])[0], expected, rtol=1e-6)


def test_operators_that_are_defined_by_others_are_one_kernel() -> None:
    f = function("f", [f32(T, 7)], lambda b, x: [b.softmax(x, axis=-1)])
    (entry,) = plan_entries(lower_module(module(f)))
    assert len(entry.calls) == 1
    assert any(isinstance(place, Workspace) for place in entry.calls[0].storages)
    x = random(5, 7)
    expected = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    assert np.allclose(build_functions(module(f))["f"]([x])[0], expected, atol=1e-6)


def test_one_contraction_with_rows_is_no_attention() -> None:
    def nodes(write: Callable[[Builder, Value], Value]) -> Sequence[Node]:
        return function("f", [f32(8, 8)], lambda b, x: [write(b, x)]).body

    assert kind_of(nodes(lambda b, x: b.softmax(b.matmul(x, x), axis=1))) == "contraction"
    assert kind_of(nodes(lambda b, x: b.matmul(b.softmax(b.matmul(x, x), axis=1), x))) == "attention"


def test_names_that_c_cannot_spell() -> None:
    functions = [function(name, [f32(2)], lambda b, x: [b.add(x, x)]) for name in ("a.b", "a_b", "a-b")]
    symbols = [f.symbol for f in lower_module(module(*functions)).functions]
    assert len(set(symbols)) == 3 and all(s.isidentifier() for s in symbols)
    assert set(build_functions(module(*functions))) == {"a.b", "a_b", "a-b"}


PROGRAM = """
from nacre.compiler.lower.module import lower_module
from nacre.compiler.host.plan import entry_modules, plan_entries
from nacre.dialect.dims import Symbol
from nacre.dialect.graph import Function, Module, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import F32, TensorType
B, T = Symbol("B", 1, 64), Symbol("T", 1, 512)
x = Value("x", TensorType(F32, (B.size, T.size, 12)))
b = Builder(OPERATORS, "t")
y = b.softmax(b.matmul(x, b.transpose(x, axes=(0, 2, 1))), axis=-1)
y = b.add(b.gelu(b.matmul(y, x)), x)
lowered = lower_module(Module("m", (B, T), (), (Function("f", (x,), tuple(b.nodes), (y,)),)))
print(lowered.mlir, entry_modules(plan_entries(lowered)), [k.kernel.scratch for k in lowered.kernels])
"""


def test_texts_do_not_depend_on_hashes() -> None:
    texts = set()
    for seed in ("0", "1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        texts.add(done.stdout)
    assert len(texts) == 1
