"""Random convolutional networks, and the arrays to run them with: what the passes over convolutions are tested on.

The same seed gives the same network.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from nacre.dialect.dims import DimError, Symbol
from nacre.dialect.graph import Function, Module, Node, Parameter, Value
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.operator import Builder, InferenceError
from nacre.dialect.ops import OPERATORS
from nacre.dialect.ops.support.layouts import first_order, last_order
from nacre.dialect.types import F32, Array, DType, TensorType

BATCH = Symbol("N", 0, 4)
HEIGHT = Symbol("H", 6, 20, 2)
DIM_VALUES: tuple[dict[str, int], ...] = ({"N": 2, "H": 8}, {"N": 1, "H": 6}, {"N": 0, "H": 10})


class Net:
    """Writes one function: `x` is what it has come to, `others` are values that it may come back to."""

    def __init__(self, seed: int, rank: int = 2, *, transposed: bool = False) -> None:
        self.random = random.Random(seed)
        self.rank = rank
        self.upsampled = seed % 7 if transposed else None
        self.b = Builder(OPERATORS)
        self.parameters: list[Parameter] = []
        channels = self.random.choice([1, 3, 8, 12])
        spatial = (HEIGHT.size, *(self.random.choice([1, 7, 9]) for _ in range(rank - 1)))
        self.x = self.argument = Value("x", TensorType(F32, (BATCH.size, channels, *spatial)))
        self.others: list[Value] = []

    # --- parts ---

    def parameter(self, *shape: int) -> Value:
        parameter = Parameter(f"p{len(self.parameters)}", TensorType(F32, shape))
        self.parameters.append(parameter)
        output = self.b.fresh(parameter.type)
        self.b.nodes.append(Node("parameter", (), (output,), (("name", parameter.name),)))
        return output

    @property
    def channels(self) -> int:
        channels = self.x.type.shape[1]
        assert isinstance(channels, int)
        return channels

    def convolution(self) -> Value:
        pick, inputs = self.random.choice, self.channels
        groups = pick([g for g in (1, 1, 1, 2, 4, inputs) if inputs % g == 0])
        outputs = groups * pick([1, 2]) if groups == inputs > 1 else groups * pick([1, 3, 4, 8, 12])
        kernel = tuple(pick([1, 1, 2, 3, 3]) for _ in range(self.rank))
        padding = pick([0, 1, "same", tuple(pick([0, 1, 2]) for _ in range(2 * self.rank))])
        bias = [self.parameter(outputs)] if self.random.random() < 0.4 else []
        return self.b.apply(
            f"conv{self.rank}d",
            [self.x, self.parameter(outputs, inputs // groups, *kernel), *bias],
            {
                "padding": padding,
                "stride": pick([1, 1, 2, tuple(pick([1, 2, 3]) for _ in range(self.rank))]),
                "dilation": pick([1, 1, 2]),
                "groups": groups,
            },
        )[0]

    def transposed(self) -> Value:
        pick, inputs = self.random.choice, self.channels
        groups = pick([g for g in (1, 1, 2, inputs) if inputs % g == 0])
        kernel = tuple(pick([1, 2, 3, 4]) for _ in range(self.rank))
        each = pick([1, 4]) if groups > 2 else pick([2, 3, 8])
        bias = [self.parameter(groups * each)] if self.random.random() < 0.4 else []
        return self.b.apply(
            f"conv_transpose{self.rank}d",
            [self.x, self.parameter(inputs, each, *kernel), *bias],
            {
                "padding": pick([0, 1, tuple(pick([0, 1, 2]) for _ in range(2 * self.rank))]),
                "output_padding": pick([0, 0, 1, 3]),
                "stride": pick([1, 2, 2, tuple(pick([1, 2, 3]) for _ in range(self.rank))]),
                "dilation": pick([1, 1, 1, 2, 3]),
                "groups": groups,
            },
        )[0]

    def norm(self) -> Value:
        b, size = self.b, self.channels
        variance = b.add(b.square(self.parameter(size)), b.scalar(0.5, F32))
        more = [self.parameter(size) for _ in range(self.random.choice([0, 1, 2]))]
        return b.batch_norm(self.x, self.parameter(size), variance, *more, eps=self.random.choice([1e-5, 1e-2]))

    def affine(self) -> Value:
        """Something done to each channel by a parameter, or to all elements by a number."""
        per_channel = self.parameter(*self.random.choice([(self.channels, *(1,) * self.rank), (1,) * self.rank, ()]))
        pair = [self.x, per_channel]
        op = self.random.choice(["add", "multiply", "multiply", "subtract"])
        if op != "subtract" and self.random.random() < 0.3:
            pair.reverse()
        return self.b.apply(op, pair)[0]

    def activation(self) -> Value:
        return self.b.apply(self.random.choice(["relu", "tanh", "sigmoid", "hard_swish", "abs"]), [self.x])[0]

    def pool(self) -> Value:
        pick = self.random.choice
        kind = pick(["max", "avg"])
        more = {"count_include_pad": pick([True, False])} if kind == "avg" else {"dilation": pick([1, 1, 2])}
        given = {"kernel": pick([2, 3]), "stride": pick([None, 1, 2]), "padding": pick([0, 1, "same"])}
        return self.b.apply(f"{kind}_pool{self.rank}d", [self.x], given | more | {"ceil_mode": pick([False, True])})[0]

    def residual(self) -> Value:
        fitting = [v for v in self.others if v.type == self.x.type]
        other = self.random.choice(fitting) if fitting else self.x
        return self.b.apply(self.random.choice(["add", "multiply"]), [self.x, other])[0]

    def join(self) -> Value:
        fitting = [
            v for v in self.others if v.type.rank == self.x.type.rank and v.type.shape[2:] == self.x.type.shape[2:]
        ]
        return self.b.concat(
            self.x, self.random.choice([*fitting, self.x]), axis=self.random.choice([1, -1 - self.rank])
        )

    def excite(self) -> Value:
        reduced = self.b.mean(self.x, axis=tuple(range(-self.rank, 0)), keepdims=True)
        weight = self.parameter(self.channels, self.channels, *(1,) * self.rank)
        gate = self.b.sigmoid(self.b.apply(f"conv{self.rank}d", [reduced, weight])[0])
        return self.b.multiply(gate, self.x)

    def move(self) -> Value:
        b, x, pick = self.b, self.x, self.random.choice
        return pick(
            [
                lambda: b.pad(x, widths=((0, 0), (0, pick([0, 1])), *((1, 0),) * self.rank), value=0.5),
                lambda: b.slice(x, starts=(0,) * x.type.rank, stops=(None, None, *(-1,) * self.rank)),
                lambda: b.resize(x, sizes=(5,) * self.rank, mode=pick(["linear", "nearest"])),
                lambda: b.softmax(x, axis=pick([1, -1])),
                lambda: b.split(x, parts=1, axis=1),
                lambda: b.flip(x, axes=(2,)),
                lambda: b.transpose(b.transpose(x, axes=last_order(x.type.rank)), axes=first_order(x.type.rank)),
            ]
        )()

    def step(self) -> None:
        ways = [self.convolution, self.norm, self.affine, self.activation, self.pool, self.residual, self.join]
        weights = [6, 3, 2, 3, 1, 2, 1]
        way = self.random.choices([*ways, self.excite, self.move], [*weights, 1, 1])[0]
        if len(self.others) == self.upsampled:
            way = self.transposed
        before = len(self.b.nodes), len(self.parameters)
        try:
            result = way()
        except (InferenceError, DimError):
            del self.b.nodes[before[0] :], self.parameters[before[1] :]
            return
        self.others.append(self.x)
        self.x = result

    def end(self) -> tuple[Value, ...]:
        b, x = self.b, self.x
        spatial = tuple(range(2, x.type.rank))
        ways = [
            lambda: (x,),
            lambda: (b.flatten(b.apply("global_avg_pool", [x])[0], start=1),),
            lambda: (b.max(x, axis=1), b.sum(x, axis=(-1,))),
            lambda: (b.mean(x, axis=spatial), self.random.choice([*self.others, x])),
            lambda: (b.transpose(x, axes=(0, *spatial, 1)), x),
            lambda: (b.argmax(b.round(b.sum(x, axis=spatial, keepdims=True)), axis=1, keepdims=True), b.sum(x, axis=0)),
        ]
        return tuple(self.random.choice(ways)())


def random_net(seed: int, rank: int = 2, steps: int = 12, *, transposed: bool = False) -> Module:
    """With `transposed`, one step is a transposed convolution; more would make the tensors large."""
    net = Net(seed, rank, transposed=transposed)
    for _ in range(steps):
        net.step()
    results = net.end()
    function = Function("main", (net.argument,), tuple(net.b.nodes), results)
    return Module("net", (BATCH, HEIGHT), tuple(net.parameters), (function,))


def load(parameter: Parameter) -> Array:
    shape = tuple(s for s in parameter.type.shape if isinstance(s, int))
    rng = np.random.default_rng(list(parameter.name.encode()))
    fan = max(1.0, float(np.prod(shape[1:])))
    return (rng.normal(size=shape) / np.sqrt(fan)).astype(np.float32)


def arguments(module: Module, dims: dict[str, int]) -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=v.type.concrete(dims)).astype(np.float32) for v in module.functions[0].arguments]


def run_net(module: Module, precision: DType | None = None) -> list[Array]:
    """The results for each of `DIM_VALUES`."""
    interpreter = Interpreter(module, load, precision=precision)
    return [r for dims in DIM_VALUES for r in interpreter.run("main", arguments(module, dims))]


def largest_error(expected: Sequence[Array], actual: Sequence[Array]) -> float:
    """The largest difference, relative to the largest number of its array; infinite where a NaN stands alone."""
    worst = 0.0
    for wanted, found in zip(expected, actual, strict=True):
        assert wanted.shape == found.shape
        a, b = wanted.astype(np.float64), found.astype(np.float64)
        if not np.array_equal(np.isnan(a), np.isnan(b)) or not np.array_equal(np.isinf(a), np.isinf(b)):
            return float("inf")
        kept = np.isfinite(a)
        if kept.any():
            worst = max(worst, float(np.max(np.abs(a - b)[kept]) / max(1e-30, float(np.max(np.abs(a[kept]))))))
    return worst
