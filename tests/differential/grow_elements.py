"""Ways to grow a graph element by element and by movement: chains with broadcasts, layouts, joins, windows, casts."""

from __future__ import annotations

from nacre.compiler.validate.inputs import Limit
from nacre.dialect.dims import Shape, divide_exactly, product
from nacre.dialect.graph import Value
from nacre.dialect.ops.support.index_modes import MODE
from nacre.dialect.types import BOOL, F16, F32, F64, I32, I64

from .maker import Maker, Refused

FLOATS = (F16, F32, F64)
# Smooth, and tame on what stands in a graph: what makes small errors large would only make the test lax.
FLOAT_UNARY = (
    "relu", "gelu", "silu", "tanh", "sigmoid", "sin", "cos", "erf", "abs", "negate", "square", "exp", "softplus",
    "softsign", "hard_sigmoid", "elu", "atan", "asinh", "log1p", "sqrt", "sign", "floor", "cbrt", "leaky_relu",
)  # fmt: skip
INTEGER_UNARY = ("abs", "negate", "square", "sign", "relu", "bitwise_not")
FLOAT_BINARY = ("add", "add", "subtract", "multiply", "multiply", "maximum", "minimum", "squared_difference", "atan2")
INTEGER_BINARY = ("add", "subtract", "multiply", "maximum", "minimum", "bitwise_and", "bitwise_xor", "floor_divide")
NON_NEGATIVE = ("sqrt", "log1p")


def _broadcast(m: Maker, shape: Shape) -> Shape:
    """A shape that broadcasts to `shape`."""
    kept = shape[m.random.randint(0, len(shape)) :] if m.chance(0.4) else shape
    return tuple(1 if m.chance(0.3) else s for s in kept)


def chain(m: Maker) -> Value:
    x = m.pick()
    is_float = x.type.dtype in FLOATS
    for _ in range(m.random.randint(1, 6)):
        if m.chance(0.45):
            name = m.random.choice(FLOAT_UNARY if is_float else INTEGER_UNARY)
            if name == "exp":
                x = m.apply("clip", [x], low=-20, high=5)
            x = m.apply(name, [m.apply("abs", [x]) if name in NON_NEGATIVE else x])
        elif m.chance(0.8):
            y = m.source(x.type.dtype, _broadcast(m, x.type.shape))
            name = m.random.choice(FLOAT_BINARY if is_float else INTEGER_BINARY)
            x = m.apply(name, [x, y] if m.chance(0.6) else [y, x])
        else:
            condition = m.argument(BOOL, _broadcast(m, x.type.shape))
            if m.chance(0.4):
                condition = m.apply("less", [x, m.source(x.type.dtype, _broadcast(m, x.type.shape))])
            x = m.apply("where", [condition, x, m.source(x.type.dtype, _broadcast(m, x.type.shape))])
        if m.chance(0.15):
            m.keep(x)
    return x


def transpose(m: Maker) -> Value:
    x = m.pick(least=2)
    axes = list(range(x.type.rank))
    m.random.shuffle(axes)
    return m.apply("transpose", [x], axes=tuple(axes))


def reshape(m: Maker) -> Value:
    """Neighbouring axes merged, or one of them split."""
    x = m.pick(least=1)
    shape = list(x.type.shape)
    place = m.random.randrange(len(shape))
    parts = [p for p in (2, 3, 4, 8, 16) if divide_exactly(shape[place], p) is not None and m.least(shape[place]) > 0]
    if parts and m.chance(0.6):
        part = m.random.choice(parts)
        rest = divide_exactly(shape[place], part)
        assert rest is not None
        shape[place : place + 1] = [part, rest] if m.chance(0.5) else [rest, part]
    elif place + 1 < len(shape):
        shape[place : place + 2] = [product(shape[place : place + 2])]
    else:
        shape = [product(shape)]
    return m.apply("reshape", [x], shape=tuple(shape))


def slice_(m: Maker) -> Value:
    x = m.pick(least=1)
    starts, stops, steps = [], [], []
    for size in x.type.shape:
        step = m.random.choice((1, 1, 1, 2, -1))
        most = max(m.least(size), 0)
        low = m.random.choice((0, 0, 1, most // 2))
        starts.append(None if step < 0 else low)
        stops.append(m.random.choice((None, None, max(low, most - 1), -1)) if step > 0 else None)
        steps.append(step)
    return m.apply("slice", [x], starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))


def join(m: Maker) -> Value:
    x = m.pick(least=1)
    axis = m.axis(x)
    parts = [x]
    for _ in range(m.random.choice((0, 1, 1, 2))):
        shape = list(x.type.shape)
        shape[axis] = m.size(most=33)
        parts.append(x if m.chance(0.3) else m.source(x.type.dtype, tuple(shape)))
    m.random.shuffle(parts)
    return m.apply("concat", parts, axis=axis)


def split(m: Maker) -> Value:
    x = m.pick(least=1)
    axis = m.axis(x)
    parts = m.random.choice((2, 3, 4))
    if divide_exactly(x.type.shape[axis], parts) is None:
        raise Refused
    values = m.apply_all("split", [x], parts=parts, axis=axis)
    m.keep(*values)
    return m.apply("multiply", [values[0], m.apply("tanh" if m.dtype in FLOATS else "abs", [values[1]])])


def pad(m: Maker) -> Value:
    x = m.pick(least=1)
    widths = tuple((m.random.choice((0, 0, 1, 2)), m.random.choice((0, 0, 1, 3))) for _ in x.type.shape)
    mode = m.random.choice(("constant", "constant", "edge", "reflect"))
    if mode != "constant" and any(m.least(s) < 4 for s in x.type.shape):
        mode = "constant"
    return m.apply("pad", [x], widths=widths, mode=mode, value=m.random.choice((0, 1)))


def rearrange(m: Maker) -> Value:
    x = m.pick(least=1)
    name = m.random.choice(("flip", "roll", "tile", "broadcast_to", "tril", "stack"))
    rank = x.type.rank
    if name == "flip":
        return m.apply(name, [x], axes=(m.axis(x),))
    if name == "roll":
        return m.apply(name, [x], shift=m.random.choice((1, -2, 9)), axis=m.axis(x))
    if name == "tile":
        return m.apply(name, [x], repeats=tuple(m.random.choice((1, 1, 2)) for _ in range(rank)))
    if name == "broadcast_to":
        grown = tuple(m.random.choice((3, 8)) if s == 1 else s for s in x.type.shape)
        return m.apply(name, [x], shape=(*((2,) if m.chance(0.5) else ()), *grown))
    if name == "stack":
        return m.apply(name, [x, m.source(x.type.dtype, x.type.shape)], axis=m.axis(x))
    return m.apply(name, [m.at_rank(x, max(2, rank))], diagonal=m.random.choice((0, 1, -1)))


def cast(m: Maker) -> Value:
    """To another dtype and back, with something done in between; the first of them may stay as it is."""
    x = m.pick()
    narrow = (F16, F32, F64) if m.dtype is F16 else (F64, F32, F32, F16)
    target = m.random.choice([d for d in (*narrow, I32, I64, BOOL) if d is not x.type.dtype])
    y = m.apply("cast", [m.apply("clip", [x], low=-100, high=100)], dtype=target)
    if target in FLOATS:
        y = m.apply("multiply", [m.apply("tanh", [y]), m.scalar(3, target)])
    elif target is not BOOL:
        y = m.apply("add", [y, m.source(target, _broadcast(m, y.type.shape))])
    else:
        y = m.apply("logical_not", [y])
    m.keep(y)
    return m.apply("cast", [y], dtype=m.dtype)


def gather(m: Maker) -> Value:
    x = m.pick(least=1)
    axis = m.axis(x)
    if m.least(x.type.shape[axis]) < 1:
        raise Refused
    mode = m.random.choice(MODE.choices)
    limit = Limit(x.type.shape[axis], checked=mode == "error")
    if m.chance(0.3) and x.type.rank:
        shape = list(x.type.shape)
        shape[axis] = m.size(least=1, most=17)
        ids = m.argument(I64, tuple(shape), limit=limit)
        return m.apply("take_along_axis", [x, ids], axis=axis, mode=mode)
    ids = m.argument(m.random.choice((I32, I64)), m.shape(m.random.choice((0, 1, 1, 2)), most=17), limit=limit)
    return m.apply("gather", [x, ids], axis=axis, mode=mode)


def pooling(m: Maker) -> Value:
    rank = m.random.choice((1, 2, 2, 3))
    x = m.pick(rank=rank + 2)
    if any(m.least(s) < 1 for s in x.type.shape[2:]):
        raise Refused
    name = m.random.choice(("max_pool", "avg_pool")) if m.dtype in FLOATS else "max_pool"
    kernel = tuple(min(m.random.choice((1, 2, 3)), m.least(s)) for s in x.type.shape[2:])
    padding = m.random.choice((0, 0, tuple(k // 2 for k in kernel)))
    stride = m.random.choice((None, 1, 2))
    return m.apply(f"{name}{rank}d", [x], kernel=kernel, stride=stride, padding=padding)


def order(m: Maker) -> Value:
    x = m.pick(least=1)
    axis = m.axis(x)
    if m.chance(0.5):
        return m.apply("sort", [x], axis=axis, descending=m.chance(0.5))
    k = min(3, m.least(x.type.shape[axis]))
    values, places = m.apply_all("top_k", [x], k=k, axis=axis)
    m.keep(places)
    return values


def scatter(m: Maker) -> Value:
    x = m.pick(least=1)
    axis = m.axis(x)
    if m.least(x.type.shape[axis]) < 1:
        raise Refused
    shape = list(x.type.shape)
    count = m.size(most=8)
    mode = m.random.choice(MODE.choices)
    ids = m.argument(I64, (count,), limit=Limit(x.type.shape[axis], checked=mode == "error"))
    shape[axis] = count
    return m.apply("scatter_add", [x, ids, m.source(x.type.dtype, tuple(shape))], axis=axis, mode=mode)


WAYS = (
    (chain, 12), (transpose, 5), (reshape, 5), (slice_, 4), (join, 4), (split, 2), (pad, 2), (rearrange, 3), (cast, 3),
    (gather, 2), (pooling, 3), (order, 1), (scatter, 1),
)  # fmt: skip
