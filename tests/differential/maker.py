"""The growing of one random graph: its sizes, its sources (arguments, parameters, constants) and its pool of values.

What grows on it is written in the files `grow_*`. The same seed gives the same graph.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from nacre.compiler.validate.inputs import Limit
from nacre.dialect.dims import Shape, Size, Symbol, bounds, evaluate
from nacre.dialect.graph import Constant, Function, Module, Node, Parameter, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import BOOL, F16, F32, F64, I32, I64, Array, DType, TensorType

# Around the widths of vectors and of register tiles, and the sizes at which loops do not run at all.
SIZES = (0, 1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33, 47, 48, 49, 64, 97, 130)
_WEIGHTS = (1, 4, 5, 6, 6, 6, 8, 5, 7, 6, 4, 5, 2, 4, 3, 3, 2, 2)
DIMS = (
    Symbol("T", 0, 130),
    Symbol("S", 1, 97),
    Symbol("B", 0, 5),
    Symbol("M", 8, 64, 8),
    Symbol("P", 1, 17),
)
EQUAL_SIZES = (2, 3, 4, 5, 7, 8, 15, 16, 17, 33)
"""The sizes that a graph of equal sizes may have: axes in a wrong order have a shape that fits there."""
MOST_ELEMENTS = 60_000
"""Of any value of a graph: small graphs find what large ones find, and many more of them run."""
MOST_PRODUCTS = 1_500_000
MAIN_DTYPES = (F32,) * 15 + (F64,) * 2 + (F16,) + (I32,) + (I64,)


class Refused(Exception):  # noqa: N818 (not an error: another way is tried)
    """What a way of growing gives up with where it cannot go on."""


Binding = Mapping[str, int]


@dataclass(frozen=True)
class Graph:
    """One function in a module of its own, the sizes that its dims take, and the bounds of integer arguments."""

    seed: int
    module: Module
    bindings: tuple[Binding, ...]
    limits: Mapping[str, Limit]
    given: Mapping[str, Callable[[Sequence[int]], Array]] = field(default_factory=dict)
    """What makes the array of an argument from its shape, where random numbers will not do."""

    @property
    def function(self) -> Function:
        return self.module.functions[0]

    @property
    def name(self) -> str:
        return self.function.name


def random_bindings(rng: random.Random, dims: Sequence[Symbol]) -> tuple[Binding, ...]:
    """Three sets of sizes for the dims, one where there are none; the smallest among them now and then."""
    if not dims:
        return ({},)

    def one(symbol: Symbol) -> int:
        fitting = [s for s in SIZES if symbol.low <= s <= symbol.high and s % symbol.multiple == 0]
        return symbol.low if rng.random() < 0.12 else rng.choice(fitting)

    return tuple({symbol.name: one(symbol) for symbol in dims} for _ in range(3))


class Maker:
    """`pool` holds the values that later nodes may use; the last one is the youngest."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.dtype: DType = self.random.choice(MAIN_DTYPES)
        count = self.random.choice((0, 0, 1, 1, 1, 2))
        self.dims = tuple(self.random.sample(DIMS, count))
        self.bindings = random_bindings(self.random, self.dims)
        self.common = random.Random(f"sizes of {seed}").choice(EQUAL_SIZES) if seed % 4 == 3 else None
        """The size of most axes in every fourth graph; None in the others."""
        self.builder = Builder(OPERATORS)
        self.arguments: list[Value] = []
        self.parameters: list[Parameter] = []
        self.limits: dict[str, Limit] = {}
        self.pool: list[Value] = []

    # --- sizes ---

    def greatest(self, sizes: Sequence[Size]) -> int:
        """The largest product of the sizes that any run will see."""
        return max(math.prod(evaluate(s, b) for s in sizes) for b in self.bindings)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def size(self, *, least: int = 0, most: int = 130) -> Size:
        if self.common is not None and least <= self.common <= most and self.chance(0.75):
            return self.common
        symbols = [d for d in self.dims if d.low >= least and self.greatest([d.size]) <= most]
        if symbols and self.chance(0.4):
            return self.random.choice(symbols).size
        fitting = [(s, w) for s, w in zip(SIZES, _WEIGHTS, strict=True) if least <= s <= most]
        return self.random.choices([s for s, _ in fitting], [w for _, w in fitting])[0]

    def shape(self, rank: int, *, least: int = 0, most: int = 130) -> Shape:
        """Sizes in random order, of which the later ones are smaller where the first ones took the room."""
        room, sizes = MOST_ELEMENTS // 4, []
        for _ in range(rank):
            size = self.size(least=least, most=max(least, 1, min(most, room)))
            room //= max(1, self.greatest([size]))
            sizes.append(size)
        self.random.shuffle(sizes)
        return tuple(sizes)

    # --- sources ---

    def argument(self, dtype: DType, shape: Shape, limit: Limit | None = None) -> Value:
        value = Value(f"x{len(self.arguments)}", TensorType(dtype, shape))
        self.arguments.append(value)
        if limit is not None:
            self.limits[value.name] = limit
        return value

    def source(self, dtype: DType, shape: Shape) -> Value:
        """Data of a type: an argument, or a value that is there, or a parameter or a constant where it is static."""
        if self.greatest(shape) > MOST_ELEMENTS:
            raise Refused
        same = [v for v in self.pool if v.type == TensorType(dtype, shape)]
        if same and self.chance(0.4):
            return self.random.choice(same)
        static = all(isinstance(s, int) for s in shape)
        if static and self.chance(0.5):
            return self.constant(dtype, shape) if self.chance(0.3) else self.parameter(dtype, shape)
        return self.argument(dtype, shape)

    def parameter(self, dtype: DType, shape: Shape) -> Value:
        parameter = Parameter(f"g{self.seed}.w{len(self.parameters)}", TensorType(dtype, shape))
        self.parameters.append(parameter)
        output = self.builder.fresh(parameter.type)
        self.builder.nodes.append(Node("parameter", (), (output,), (("name", parameter.name),)))
        return output

    def constant(self, dtype: DType, shape: Shape) -> Value:
        rng = np.random.default_rng([self.seed, len(self.builder.nodes)])
        integers = tuple(s for s in shape if isinstance(s, int))
        if dtype.is_float:
            array = rng.standard_normal(integers)
        elif dtype is BOOL:
            array = rng.random(integers) < 0.5
        else:
            array = rng.integers(-5, 6, integers)
        return self.apply("constant", [], value=Constant(np.asarray(array).astype(dtype.numpy)))

    def scalar(self, value: float, dtype: DType) -> Value:
        return self.builder.scalar(value, dtype)

    def weight(self, dtype: DType, *shape: Size) -> Value:
        """A matrix as layers have them: now and then stored the other way around."""
        if len(shape) >= 2 and self.chance(0.3):
            return self.apply("matrix_transpose", [self.source(dtype, (*shape[:-2], shape[-1], shape[-2]))])
        return self.source(dtype, shape)

    # --- values ---

    def pick(self, *, rank: int | None = None, least: int = 0, dtype: DType | None = None) -> Value:
        """A value to go on from, young ones more often; a new source where none fits. `dtype` is the main one."""
        dtype = self.dtype if dtype is None else dtype
        fitting = [v for v in self.pool if v.type.dtype is dtype and v.type.rank >= max(least, rank or 0)]
        if fitting and not self.chance(0.1):
            value = fitting[-1 - int(len(fitting) * self.random.random() ** 2)]
            return value if rank is None else self.at_rank(value, rank)
        rank = self.random.choice([r for r in (1, 2, 2, 3, 3, 4) if r >= least]) if rank is None else rank
        return self.argument(dtype, self.shape(rank))

    def at_rank(self, value: Value, rank: int) -> Value:
        """The value with its leading axes merged, or with axes of size 1 before them."""
        over = value.type.rank - rank
        if over > 0:
            return self.apply("flatten", [value], start=0, end=over)
        return self.apply("unsqueeze", [value], axes=tuple(range(-over))) if over < 0 else value

    def apply(self, name: str, inputs: Sequence[Value], **attributes: Any) -> Value:
        return self.apply_all(name, inputs, **attributes)[0]

    def apply_all(self, name: str, inputs: Sequence[Value], **attributes: Any) -> tuple[Value, ...]:
        results = self.builder.apply(name, inputs, attributes)
        if any(self.greatest(r.type.shape) > MOST_ELEMENTS for r in results):
            raise Refused
        for result in results:
            assert all(evaluate(s, b) >= 0 for s in result.type.shape for b in self.bindings), (name, result)
        return results

    def check_products(self, *sizes: Size) -> None:
        if self.greatest(sizes) > MOST_PRODUCTS:
            raise Refused

    def least(self, size: Size) -> int:
        return bounds(size)[0]

    def axis(self, value: Value) -> int:
        """An axis of the value, the last one as often as all others together; counted from either end."""
        rank = value.type.rank
        axis = rank - 1 if self.chance(0.5) else self.random.randrange(rank)
        return axis - rank if self.chance(0.3) else axis

    def keep(self, *values: Value) -> None:
        self.pool += values

    # --- the end ---

    def finish(self) -> Graph:
        """The graph, with the youngest value as a result, and others, so that values are used more than once."""
        computed = [v for v in self.pool if v not in self.arguments]
        results = computed[-1:]
        others = computed[:-1]
        results += self.random.sample(others, min(len(others), self.random.choice((0, 0, 1, 1, 2))))
        if self.chance(0.05):
            results += results[:1]
        function = Function(f"g{self.seed}", tuple(self.arguments), tuple(self.builder.nodes), tuple(results))
        dims = tuple(sorted(function.symbols(), key=lambda s: s.name))
        module = Module(f"graph_{self.seed}", dims, tuple(self.parameters), (function,))
        names = {s.name for s in dims}
        bindings = [{k: v for k, v in b.items() if k in names} for b in self.bindings]
        distinct = tuple(b for i, b in enumerate(bindings) if b not in bindings[:i])
        return Graph(self.seed, module, distinct, self.limits)
