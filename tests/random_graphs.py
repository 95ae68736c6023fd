"""Random valid graphs for the tests of the printer, the verifier and the passes, made from the operator table.

The same seed gives the same graph. A new operator takes part as soon as it is in the table: elementwise operators and
reductions by their properties, the others by a line in `NAMED`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from nacre.dialect.diagnostics import Span
from nacre.dialect.dims import DimError, Symbol, parse_size
from nacre.dialect.graph import Constant, Function, Module, Node, Parameter, Region, Value
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.operator import REQUIRED, Builder, InferenceError, Operator
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import BOOL, F32, F64, FLOATS, I8, I32, I64, U8, Array, DType, TensorType, dtype_of

DIMS = (Symbol("B", 1, 5), Symbol("T", 2, 12, 2))
DIM_VALUES = ({"B": 3, "T": 4}, {"B": 1, "T": 2})
_BY_NAME = {symbol.name: symbol for symbol in DIMS}
PARAMETERS = (
    Parameter("w", TensorType(F32, (4, 4)), source="weights.w", transpose=(1, 0)),
    Parameter("layer.{}.w", TensorType(F32, (4, 4)), counts=(3,), span=Span("model.nacre", 3, 1, 3, 9)),
    Parameter("layer.{}.part.{}.b", TensorType(F32, (4,)), counts=(3, 3)),
    Parameter("unused", TensorType(I8, (2, 3))),
)
ARGUMENTS = (
    "f32[B, 4]",
    "f32[B, T, 4]",
    "f32[4]",
    "f32",
    "f32[B, 1]",
    "i32[B, 4]",
    "i64[B, T]",
    "bool[B, 4]",
    "f64[T//2, 4]",
)

# What numpy computes differently for zeros of other signs, or rounds differently when written in another way.
INEXACT = frozenset({"maximum", "minimum", "power", "clip"})
SPECIAL_FLOATS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 8.0, float("inf"), float("nan"), 1e-30)
TAME_FLOATS = (1.0, -1.0, 2.0, 0.5, 8.0)
SPECIAL_INTEGERS = (0, 1, 2, 3)


def parse_type(text: str) -> TensorType:
    name, _, shape = text.rstrip("]").partition("[")
    dtype = {d.name: d for d in (F32, F64, I32, I64, BOOL, U8, I8)}[name]
    return TensorType(dtype, tuple(parse_size(s, _BY_NAME) for s in shape.split(",")) if shape else ())


@dataclass
class Generator:
    """Writes one function. `tame` leaves out whatever makes a small error large; `exact` what numpy is not exact in."""

    random: random.Random
    exact: bool = True
    tame: bool = False
    builder: Builder = field(default_factory=lambda: Builder(OPERATORS))
    indices: list[Value] = field(default_factory=list)

    def __post_init__(self) -> None:
        left_out = INEXACT if self.exact else frozenset()
        admitted = [o for o in OPERATORS.values() if o.name not in left_out and not o.has("structure")]
        if self.tame:
            admitted = [o for o in admitted if _is_smooth(o)]
        self.elementwise = [o for o in admitted if o.has("elementwise")]
        # What has most algebra comes most often.
        self.elementwise += [o for o in self.elementwise if o.name in _COMMON] * 4
        self.reductions = [o for o in admitted if o.has("reduction") and len(o.operands) == 1]
        names = {o.name for o in admitted}
        self.named = [produce for name, produce in NAMED if name in names]

    # --- choices ---

    def pick(self, pool: Sequence[Value], dtypes: Sequence[DType], shape: object = None) -> Value | None:
        fitting = [v for v in pool if v.type.dtype in dtypes and shape in (None, v.type.shape)]
        # Young values more often, so that graphs get deep.
        return fitting[-1 - int(len(fitting) * self.random.random() ** 2)] if fitting else None

    def constant(self, dtype: DType) -> Value:
        shape = self.random.choice([(), (), (4,), (1, 4), (2, 3, 4), (0,)])
        if dtype.is_float:
            choices: Sequence[float] = TAME_FLOATS if self.tame else SPECIAL_FLOATS
        else:
            choices = SPECIAL_INTEGERS
        if self.random.random() < 0.6:
            array = np.full(shape, self.random.choice(choices))
        else:
            array = np.array([self.random.choice(choices) for _ in range(int(np.prod(shape)))]).reshape(shape)
        return self.builder.apply("constant", (), {"value": Constant(array.astype(dtype.numpy))})[0]

    # --- nodes ---

    def add_elementwise(self, pool: list[Value]) -> Sequence[Value]:
        operator = self.random.choice(self.elementwise)
        first = self.pick(pool, operator.operands[0].dtypes)
        if first is None:
            return ()
        chosen: dict[str, DType] = {operator.operands[0].group: first.type.dtype}
        inputs = [first]
        for operand in operator.operands[1:]:
            dtype = chosen.setdefault(operand.group, self.random.choice(operand.dtypes))
            value = self.pick(pool, [dtype], self.random.choice([None, first.type.shape]))
            inputs.append(self.constant(dtype) if value is None or self.random.random() < 0.3 else value)
        if len(inputs) == 2 and self.random.random() < 0.2:
            inputs.reverse()
        return self.builder.apply(operator.name, inputs, self.attributes(operator))

    def attributes(self, operator: Operator) -> dict[str, object]:
        given: dict[str, object] = {}
        for spec in operator.attributes:
            if spec.kind == "dtype" and spec.default is REQUIRED:
                given[spec.name] = self.random.choice([F32, F64, I32, I64, BOOL, U8] if not self.tame else [F32, F64])
            elif spec.choices:
                given[spec.name] = self.random.choice(spec.choices)
        return given

    def add_reduction(self, pool: list[Value]) -> Sequence[Value]:
        operator = self.random.choice(self.reductions)
        x = self.pick(pool, operator.operands[0].dtypes)
        if x is None:
            return ()
        attributes: dict[str, object] = {}
        for spec in operator.attributes:
            axes = range(-x.type.rank, x.type.rank)
            if spec.kind == "axes":
                one = self.random.choice(axes) if axes else ()
                attributes[spec.name] = self.random.choice([None, one, tuple(range(x.type.rank))])
            elif spec.kind == "axis" and axes:
                attributes[spec.name] = self.random.choice(axes)
            elif spec.name == "keepdims":
                attributes[spec.name] = self.random.random() < 0.5
        return self.builder.apply(operator.name, [x], attributes)

    def add_again(self, pool: list[Value]) -> Sequence[Value]:
        """A node that is there already, for `cse` to find."""
        nodes = [n for n in self.builder.nodes if not n.regions and n.op != "parameter"]
        if not nodes:
            return ()
        node = self.random.choice(nodes)
        return self.builder.apply(node.op, node.inputs, dict(node.attributes))

    def add_parameter(self, pool: list[Value]) -> Sequence[Value]:
        parameter = self.random.choice([p for p in PARAMETERS if len(p.counts) <= len(self.indices)])
        output = self.builder.fresh(parameter.type)
        indices = tuple(self.random.sample(self.indices, len(parameter.counts)))
        self.builder.nodes.append(Node("parameter", indices, (output,), (("name", parameter.name),)))
        if parameter.type.rank == 2 and self.random.random() < 0.3:
            return output, *self.builder.apply("matrix_transpose", [output])
        return (output,)

    def add_repeat(self, pool: list[Value]) -> Sequence[Value]:
        if len(self.indices) == 2:
            return ()
        carried = tuple(self.random.sample(pool, min(len(pool), self.random.randint(1, 3))))
        outside, self.builder.nodes = self.builder.nodes, []
        index = self.builder.fresh(TensorType(I64))
        arguments = tuple(self.builder.fresh(v.type) for v in carried)
        inner = [*pool, index, *arguments]
        self.indices.append(index)
        self.grow(inner, self.random.randint(1, 8))
        self.indices.pop()
        results = tuple(
            a if self.random.random() < 0.2 else self.pick(inner[len(pool) + 1 :], [a.type.dtype], a.type.shape) or a
            for a in arguments
        )
        body, self.builder.nodes = tuple(self.builder.nodes), outside
        outputs = tuple(self.builder.fresh(v.type) for v in carried)
        region = Region((index, *arguments), body, results)
        count = self.random.randint(0, 3)
        self.builder.nodes.append(Node("repeat", carried, outputs, (("count", count),), (region,), scope="stack"))
        return outputs

    def grow(self, pool: list[Value], steps: int) -> None:
        ways: list[tuple[Callable[[list[Value]], Sequence[Value]], int]] = [
            (self.add_elementwise, 10),
            (self.add_reduction, 2),
            (self.add_again, 2),
            (self.add_parameter, 1),
            (self.add_repeat, 1),
            (lambda pool: (self.constant(self.random.choice([F32, F64, I32, BOOL])),), 1),
            (lambda pool: self.random.choice(self.named)(self, pool), 6),
        ]
        for _ in range(steps):
            way = self.random.choices([w for w, _ in ways], [weight for _, weight in ways])[0]
            self.builder.scope = self.random.choice(["", "head", "stack.layer.{}", "odd scope"])
            line = self.random.randint(1, 99)
            self.builder.span = Span("model.nacre", line, 1, line, 9) if line < 70 else None
            try:
                pool += way(pool)
            except (InferenceError, DimError):
                continue


def _is_smooth(operator: Operator) -> bool:
    """Does a small change of the operands make but a small change of the result, on what tame graphs compute?"""
    floats = all(set(operand.dtypes) & set(FLOATS) for operand in operator.operands)
    return floats and operator.gradient is not None and operator.name not in _STEEP


# fmt: off
_STEEP = frozenset({
    "floor", "ceil", "round", "trunc", "sign", "remainder", "floor_divide", "exp", "exp2", "expm1", "power", "tan",
    "sinh", "cosh", "divide", "reciprocal", "rsqrt", "log", "log2", "log10", "log1p", "square", "prod", "cumprod",
    "sqrt", "cbrt", "norm", "standard_deviation", "variance", "acosh", "atanh", "asin", "acos", "atan2", "max", "min",
    "squared_difference", "l2_normalize", "sort", "top_k", "logsumexp", "selu", "where", "cast", "multiply",
})
_COMMON = frozenset({
    "add", "subtract", "multiply", "divide", "negate", "abs", "square", "cast", "where", "logical_not", "logical_and",
    "equal", "less", "bitwise_and",
})
# fmt: on


# --- operators that need their own choice of operands ---

Produce = Callable[[Generator, list[Value]], Sequence[Value]]


def _matmul(g: Generator, pool: list[Value]) -> Sequence[Value]:
    x = g.pick(pool, [F32])
    y = g.pick(pool, [F32], (4, 4))
    return g.builder.apply("matmul", [x, y]) if x and y else ()


def _along(name: str) -> Produce:
    def produce(g: Generator, pool: list[Value]) -> Sequence[Value]:
        x = g.pick([v for v in pool if v.type.rank], OPERATORS[name].operands[0].dtypes)
        return g.builder.apply(name, [x], {"axis": g.random.choice([-1, 0])}) if x else ()

    return produce


def _transpose(g: Generator, pool: list[Value]) -> Sequence[Value]:
    x = g.random.choice(pool)
    return g.builder.apply("transpose", [x], {"axes": tuple(g.random.sample(range(x.type.rank), x.type.rank))})


def _matrix_transpose(g: Generator, pool: list[Value]) -> Sequence[Value]:
    return g.builder.apply("matrix_transpose", [g.random.choice(pool)])


def _reshape(g: Generator, pool: list[Value]) -> Sequence[Value]:
    x = g.random.choice(pool)
    shapes = [(-1,), (1, -1), (*x.type.shape, 1), (-1, 2), x.type.shape, (-1, 4)]
    return g.builder.apply("reshape", [x], {"shape": g.random.choice(shapes)})


def _flatten(g: Generator, pool: list[Value]) -> Sequence[Value]:
    return g.builder.apply("flatten", [g.random.choice(pool)])


def _unsqueeze(g: Generator, pool: list[Value]) -> Sequence[Value]:
    return g.builder.apply("unsqueeze", [g.random.choice(pool)], {"axes": g.random.choice([0, -1, (0, -1)])})


def _squeeze(g: Generator, pool: list[Value]) -> Sequence[Value]:
    x = g.random.choice(pool)
    axes = tuple(i for i, size in enumerate(x.type.shape) if size == 1)
    return g.builder.apply("squeeze", [x], {"axes": axes[: g.random.randint(0, 2)]})


def _broadcast(g: Generator, pool: list[Value]) -> Sequence[Value]:
    x = g.random.choice(pool)
    front = g.random.choice([(), (2,), (_BY_NAME["B"].size,)])
    grown = tuple(3 if size == 1 and g.random.random() < 0.5 else size for size in x.type.shape)
    return g.builder.apply("broadcast_to", [x], {"shape": (*front, *grown)})


def _concat(g: Generator, pool: list[Value]) -> Sequence[Value]:
    x = g.random.choice([v for v in pool if v.type.rank] or pool)
    same = [v for v in pool if v.type == x.type]
    inputs = [g.random.choice(same) for _ in range(g.random.randint(1, 3))]
    return g.builder.apply(g.random.choice(["concat", "stack"]), inputs, {"axis": g.random.choice([0, -1])})


def _split(g: Generator, pool: list[Value]) -> Sequence[Value]:
    x = g.random.choice(pool)
    parts = g.builder.apply("split", [x], {"parts": g.random.choice([1, 2]), "axis": -1})
    joined = g.builder.apply("concat", parts, {"axis": -1})
    return (*parts, *joined)


def _flip(g: Generator, pool: list[Value]) -> Sequence[Value]:
    x = g.random.choice(pool)
    return g.builder.apply("flip", [x], {"axes": g.random.choice([(), (0,), (-1,)])})


def _roll(g: Generator, pool: list[Value]) -> Sequence[Value]:
    return g.builder.apply("roll", [g.random.choice(pool)], {"shift": g.random.choice([0, 1, -3]), "axis": -1})


def _tile(g: Generator, pool: list[Value]) -> Sequence[Value]:
    x = g.random.choice(pool)
    return g.builder.apply("tile", [x], {"repeats": tuple(g.random.choice([1, 1, 2]) for _ in x.type.shape)})


def _iota(g: Generator, pool: list[Value]) -> Sequence[Value]:
    return g.builder.apply("iota", [], {"shape": g.random.choice([(4,), (3, 4), (_BY_NAME["B"].size, 4)])})


def _size_value(g: Generator, pool: list[Value]) -> Sequence[Value]:
    return g.builder.apply("size_value", [], {"size": parse_size(g.random.choice(["B", "2*B + T", "T//2"]), _BY_NAME)})


NAMED: tuple[tuple[str, Produce], ...] = (
    ("matmul", _matmul),
    ("softmax", _along("softmax")),
    ("log_softmax", _along("log_softmax")),
    ("cumsum", _along("cumsum")),
    ("l2_normalize", _along("l2_normalize")),
    ("transpose", _transpose),
    ("matrix_transpose", _matrix_transpose),
    ("reshape", _reshape),
    ("flatten", _flatten),
    ("unsqueeze", _unsqueeze),
    ("squeeze", _squeeze),
    ("broadcast_to", _broadcast),
    ("concat", _concat),
    ("split", _split),
    ("flip", _flip),
    ("roll", _roll),
    ("tile", _tile),
    ("iota", _iota),
    ("size_value", _size_value),
)


def random_module(seed: int, *, steps: int = 25, exact: bool = True, tame: bool = False) -> Module:
    """A valid module with one function `main`, of about `steps` nodes."""
    g = Generator(random.Random(seed), exact=exact, tame=tame)
    arguments = tuple(Value(f"x{i}", parse_type(text)) for i, text in enumerate(ARGUMENTS))
    pool = list(arguments)
    g.grow(pool, steps)
    results = [pool[-1], *g.random.sample(pool, g.random.randint(1, 3))]
    names = tuple(f"r{i}" for i in range(len(results))) if seed % 2 else ()
    function = Function("main", arguments, tuple(g.builder.nodes), tuple(results), names)
    return Module(f"random_{seed}", DIMS, PARAMETERS, (function,))


# --- running ---


def random_array(shape: Sequence[int], dtype: DType, rng: np.random.Generator, tame: bool = False) -> Array:
    if dtype.is_float:
        values = rng.standard_normal(shape)
        if not tame:
            values = np.where(rng.random(shape) < 0.15, rng.choice(SPECIAL_FLOATS, shape), values)
    elif dtype is BOOL:
        values = rng.random(shape) < 0.5
    else:
        values = rng.integers(-5 if dtype.is_signed else 0, 6, shape)
    return np.asarray(values).astype(dtype.numpy)


def run_module(
    module: Module, seed: int, *, precision: DType | None = None, tame: bool = False, function: str = "main"
) -> list[Array]:
    """The results of a function on random arguments and parameters, for each of `DIM_VALUES`."""

    def load(parameter: Parameter) -> Array:
        # As a checkpoint has it: by key, before it is transposed.
        shape = [s for s in parameter.type.shape if isinstance(s, int)]
        order = parameter.transpose or tuple(range(len(shape)))
        stored = [shape[order.index(axis)] for axis in range(len(shape))]
        rng = np.random.default_rng([seed, *parameter.key.encode()])
        return random_array(stored, parameter.type.dtype, rng, tame).transpose(order)

    interpreter = Interpreter(module, load, precision=precision)
    results: list[Array] = []
    for dims in DIM_VALUES:
        rng = np.random.default_rng(seed)
        arguments = [
            random_array(a.type.concrete(dims), a.type.dtype, rng, tame) for a in module.function(function).arguments
        ]
        results += interpreter.run(function, arguments)
    return results


def assert_same_bits(before: Sequence[Array], after: Sequence[Array]) -> None:
    """Equal in type, shape and every bit, but for the bits of NaN, which no operator promises."""
    assert len(before) == len(after)
    for x, y in zip(before, after, strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        if dtype_of(x).is_float:
            x, y = x.astype(np.float64), y.astype(np.float64)
            np.testing.assert_array_equal(np.signbit(x[~np.isnan(x)]), np.signbit(y[~np.isnan(y)]))
        np.testing.assert_array_equal(x, y)


def assert_close(before: Sequence[Array], after: Sequence[Array], tolerance: float) -> None:
    """Equal within `tolerance`, relative to the largest number of each result."""
    assert len(before) == len(after)
    for x, y in zip(before, after, strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        largest = float(np.max(np.abs(x.astype(np.float64)), initial=1.0, where=np.isfinite(x.astype(np.float64))))
        np.testing.assert_allclose(y.astype(np.float64), x.astype(np.float64), rtol=0, atol=tolerance * largest)
