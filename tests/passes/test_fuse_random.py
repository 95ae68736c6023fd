"""Random networks of what groups are made of: the pass keeps every bit, and compiled groups compute the same."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from nacre.compiler.codegen.jit import build_functions
from nacre.compiler.host.calls import kind_of
from nacre.dialect.dims import Symbol
from nacre.dialect.graph import Function, Module, Node, Value
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.operator import Builder, InferenceError
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import F32, F64, I64, TensorType
from nacre.dialect.verifier import verify
from nacre.passes.fusion.fuse import Fuse
from random_graphs import assert_close, assert_same_bits

B, T = Symbol("B", 1, 5), Symbol("T", 1, 9)
SIZES = ({"B": 3, "T": 4}, {"B": 1, "T": 1}, {"B": 2, "T": 9})
ARGUMENTS = (
    Value("x", TensorType(F32, (B.size, T.size, 8))),
    Value("y", TensorType(F32, (B.size, T.size, 8))),
    Value("mask", TensorType(F32, (B.size, 1, T.size))),
    Value("square", TensorType(F32, (8, 8))),
    Value("vector", TensorType(F32, (8,))),
    Value("table", TensorType(F32, (20, 8))),
    Value("ids", TensorType(I64, (B.size, T.size))),
)
UNARY = ("tanh", "sigmoid", "negate", "relu", "square", "gelu", "softmax", "layer_norm", "rms_norm", "cumsum", "abs")
REDUCTIONS = ("mean", "max", "sum", "variance")


class Network:
    """Writes a function whose nodes mostly read what was computed last, as those of networks do."""

    def __init__(self, seed: int, steps: int) -> None:
        self.random = random.Random(seed)
        self.b = Builder(OPERATORS)
        self.pool = [a for a in ARGUMENTS if a.type.dtype is F32 and a.name != "table"]
        while len(self.b.nodes) < steps:
            try:
                made = self.random.choice(
                    (self.unary, self.unary, self.binary, self.binary, self.move, self.multiply)
                )()
            except InferenceError:
                continue
            self.pool += [v for v in made if v.type.dtype is F32]

    def pick(self) -> Value:
        return self.random.choice(self.pool[-4:] if self.random.random() < 0.8 else self.pool)

    def unary(self) -> Sequence[Value]:
        x = self.pick()
        if x.type.rank and self.random.random() < 0.2:
            axis = self.random.choice((-1, -1, 0))
            return self.b.apply(
                self.random.choice(REDUCTIONS), [x], {"axis": axis, "keepdims": self.random.random() < 0.7}
            )
        return self.b.apply(self.random.choice(UNARY), [x])

    def binary(self) -> Sequence[Value]:
        x = self.pick()
        # Broadcasting often fails where two tensors are picked at random.
        fitting = [y for y in self.pool if y.type.shape == x.type.shape or y.type.shape in ((8,), x.type.shape[-1:])]
        y = self.random.choice([*fitting, self.pick()])
        return self.b.apply(self.random.choice(("add", "multiply", "subtract", "maximum")), [x, y])

    def move(self) -> Sequence[Value]:
        x, b = self.pick(), self.b
        shape = x.type.shape
        match self.random.randrange(5):
            case 0:
                return [b.matrix_transpose(x)]
            case 1 if shape[-1:] == (8,):
                return b.apply("split", [x], {"parts": 2, "axis": -1})
            case 2 if shape[-1:] == (8,):
                return [b.transpose(b.reshape(x, shape=(*shape[:-1], 2, 4)), axes=(*range(len(shape) - 1), -1, -2))]
            case 3:
                return [b.embedding(ARGUMENTS[5], ARGUMENTS[6])]
            case _:
                return [b.reshape(x, shape=(*shape, 1))] if len(shape) < 4 else [b.squeeze(x, axes=-1)]

    def multiply(self) -> Sequence[Value]:
        x, b = self.pick(), self.b
        if self.random.random() < 0.4:
            # Attention of a tensor with itself and another one.
            other = self.pick()
            scores = b.matmul(x, b.matrix_transpose(x)) if self.random.random() < 0.5 else b.matmul(x, other)
            scores = b.add(scores, ARGUMENTS[2]) if self.random.random() < 0.5 else scores
            return [b.matmul(b.softmax(scores, axis=-1), self.random.choice((x, other)))]
        return [b.matmul(x, self.random.choice((ARGUMENTS[3], self.pick())))]

    def function(self, name: str) -> Function:
        results = [self.pool[-1], *self.random.sample(self.pool[-10:], 2)]
        return Function(name, ARGUMENTS, tuple(self.b.nodes), tuple(results))


def network(seed: int, steps: int = 25) -> Module:
    module = Module("m", (B, T), (), (Network(seed, steps).function("main"),))
    verify(module)
    return module


def arguments(sizes: dict[str, int]) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [
        rng.integers(0, 20, v.type.concrete(sizes))
        if v.type.dtype is I64
        else rng.normal(size=v.type.concrete(sizes)).astype(np.float32) / 2
        for v in ARGUMENTS
    ]


def no_parameters(parameter):
    raise AssertionError(parameter)


def run(module: Module, sizes: dict[str, int], **options) -> Sequence[np.ndarray]:
    return Interpreter(module, no_parameters, **options).run("main", arguments(sizes))


def fusions(module: Module) -> list[Node]:
    return [n for n in module.functions[0].body if n.op == "fusion"]


@pytest.mark.parametrize("seed", range(60))
def test_networks_keep_every_bit(seed: int) -> None:
    module = network(seed)
    fused = Fuse().run(module)
    verify(fused)
    for sizes in SIZES[:2]:
        assert_same_bits(run(module, sizes), run(fused, sizes))


def test_networks_have_groups_of_every_kind_and_with_several_results() -> None:
    groups = [node for seed in range(60) for node in fusions(Fuse().run(network(seed)))]
    counts = Counter(kind_of(g.regions[0].body) for g in groups)
    assert all(counts[kind] > 4 for kind in ("attention", "contraction", "rows", "elements")), counts
    assert sum(len(g.outputs) > 1 for g in groups) > 10


def test_compiled_networks_compute_the_same() -> None:
    modules = {f"f{seed}": network(111 + seed) for seed in range(13)}
    functions = tuple(replace(Fuse().run(m).functions[0], name=name) for name, m in modules.items())
    compiled = build_functions(Module("m", (B, T), (), functions), level=2)
    for name, module in modules.items():
        for sizes in SIZES:
            expected = run(module, sizes, precision=F64)
            assert_close([x.astype(np.float32) for x in expected], compiled[name](arguments(sizes)), 1e-4)
