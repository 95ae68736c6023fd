"""Ways to grow a graph by what works along rows: softmax, norms, reductions, attention; whole or written by hand."""

from __future__ import annotations

from nacre.compiler.validate.inputs import Limit
from nacre.dialect.dims import Size
from nacre.dialect.graph import Value
from nacre.dialect.types import BOOL, F16, F32, F64, I32, I64

from .maker import Maker, Refused

FLOATS = (F16, F32, F64)


def _float(m: Maker, **wanted: int) -> Value:
    """A value of floats: of the main dtype, or converted where that one is not."""
    if m.dtype in FLOATS:
        return m.pick(**wanted)
    return m.apply("cast", [m.pick(**wanted)], dtype=F32)


def norm(m: Maker) -> Value:
    x = _float(m, least=1)
    name = m.random.choice(
        ("softmax", "softmax", "log_softmax", "l2_normalize", "layer_norm", "layer_norm", "rms_norm")
    )
    dtype, shape = x.type.dtype, x.type.shape
    if m.chance(0.3):
        x = m.apply("add", [x, m.source(dtype, shape)])
        m.keep(x)
    if x.type.rank >= 3 and m.chance(0.15):
        channels = shape[1]
        if not isinstance(channels, int) or channels < 1:
            raise Refused
        groups = m.random.choice([g for g in (1, 2, 3, channels) if channels % g == 0])
        return m.apply("group_norm", [x, m.source(dtype, (channels,)), m.source(dtype, (channels,))], groups=groups)
    if name == "rms_norm":
        return m.apply(name, [x, *([m.source(dtype, shape[-1:])] if m.chance(0.7) else [])])
    if name == "layer_norm":
        first = m.random.choice((1, 1, 1, x.type.rank))
        weights = [m.source(dtype, shape[-first:]) for _ in range(m.random.choice((0, 1, 2, 2)))]
        return m.apply(name, [x, *weights], axes=tuple(range(-first, 0)))
    return m.apply(name, [x], axis=m.axis(x))


def reduction(m: Maker) -> Value:
    x = m.pick(least=1)
    names = ["sum", "sum", "max", "min", "argmax", "argmin", "prod", "any", "all"]
    if x.type.dtype in FLOATS:
        names += ["mean", "mean", "variance", "standard_deviation", "logsumexp", "norm"]
    name = m.random.choice(names)
    if name in ("argmax", "argmin"):
        return m.apply(name, [x], axis=m.axis(x), keepdims=m.chance(0.3))
    count = m.random.choice((1, 1, 1, 2, x.type.rank))
    axes = tuple(m.random.sample(range(x.type.rank), min(count, x.type.rank)))
    if name == "prod":
        # So that many factors stay in range.
        x = m.apply("clip", [x], low=-1, high=1)
    return m.apply(name, [x], axis=axes if m.chance(0.8) else None, keepdims=m.chance(0.4))


def by_hand(m: Maker) -> Value:
    """Row-wise chains as people write them: statistics of a row, subtracted and divided, along any axes."""
    x = _float(m, least=1)
    axes = tuple(sorted(m.random.sample(range(x.type.rank), m.random.choice((1, 1, min(2, x.type.rank))))))
    if m.chance(0.5):
        axes = (x.type.rank - 1,)
    kind = m.random.choice(("softmax", "standard", "centred", "scaled", "logsumexp", "two"))

    def along(name: str, value: Value) -> Value:
        return m.apply(name, [value], axis=axes, keepdims=True)

    if kind in ("softmax", "logsumexp"):
        centred = m.apply("subtract", [x, along("max", x)])
        e = m.apply("exp", [centred])
        total = along("sum", e)
        if kind == "softmax":
            return m.apply("divide", [e, total])
        return m.apply("subtract", [centred, m.apply("log", [total])])
    if kind == "scaled":
        return m.apply("divide", [x, m.apply("add", [along("max", m.apply("abs", [x])), m.scalar(1, x.type.dtype)])])
    if kind == "two":
        m.keep(m.apply("add", [along("max", x), along("min", x)]))
        return m.apply("multiply", [x, along("sum", m.apply("abs", [x]))])
    centred = m.apply("subtract", [x, along("mean", x)])
    if kind == "centred":
        return centred
    spread = m.apply("add", [along("mean", m.apply("square", [centred])), m.scalar(1e-3, x.type.dtype)])
    if m.chance(0.5):
        return m.apply("multiply", [centred, m.apply("rsqrt", [spread])])
    return m.apply("divide", [centred, m.apply("sqrt", [spread])])


def attention(m: Maker) -> Value:
    """Projections, heads split off and merged; the operator, or scores, mask and softmax written out."""
    if m.dtype not in FLOATS:
        raise Refused
    dtype = m.dtype
    heads, each = m.random.choice((1, 2, 3, 4)), m.random.choice((1, 4, 5, 8, 16, 17, 32))
    shared = m.random.choice([g for g in (1, 1, heads, 2) if heads % g == 0])
    x = m.source(dtype, (m.size(least=0, most=3), m.size(least=1), heads * each))
    y = x if m.chance(0.6) else m.source(dtype, (x.type.shape[0], m.size(least=1), heads * each))
    batch, rows, columns = x.type.shape[0], x.type.shape[1], y.type.shape[1]
    m.check_products(batch, heads, rows, columns, each)
    m.check_products(batch, rows, heads * each, heads * each)

    def split(value: Value, count: int) -> Value:
        if m.chance(0.7):
            value = m.apply("matmul", [value, m.weight(dtype, value.type.shape[-1], count * each)])
            # Scores of one stay within a few, as they do in models.
            value = m.apply("multiply", [value, m.scalar((heads * each) ** -0.5, dtype)])
        elif count != heads:
            value = m.apply("slice", [value], starts=(0, 0, 0), stops=(None, None, count * each))
        value = m.apply("reshape", [value], shape=(*value.type.shape[:2], count, each))
        return m.apply("transpose", [value], axes=(0, 2, 1, 3))

    def turned(value: Value) -> Value:
        angles = [m.source(dtype, (value.type.shape[2], each // 2)) for _ in range(2)]
        return m.apply("rotary_embedding", [value, *angles], interleaved=m.chance(0.3))

    kv = heads // shared
    q, k, v = split(x, heads), split(y, kv), split(y, kv)
    if each % 2 == 0 and m.chance(0.2):
        q, k = turned(q), turned(k)
    if shared == 1 and m.chance(0.5):
        mixed = _scores_and_values(m, q, k, v, rows, columns)
    else:
        mask = _masks(m, batch, rows, columns)
        mixed = m.apply("attention", [q, k, v, *mask], causal=m.chance(0.4))
    if m.chance(0.8):
        mixed = m.apply("transpose", [mixed], axes=(0, 2, 1, 3))
        mixed = m.apply("reshape", [mixed], shape=(batch, rows, heads * each))
    if m.chance(0.3):
        mixed = m.apply("matmul", [mixed, m.weight(dtype, mixed.type.shape[-1], heads * each)])
    return mixed


def _masks(m: Maker, batch: Size, rows: Size, columns: Size) -> list[Value]:
    if m.chance(0.6):
        return []
    shape = m.random.choice(((rows, columns), (batch, 1, 1, columns), (batch, 1, rows, columns)))
    return [m.argument(BOOL if m.chance(0.5) else m.dtype, shape)]


def _scores_and_values(m: Maker, q: Value, k: Value, v: Value, rows: Size, columns: Size) -> Value:
    dtype = m.dtype
    scores = m.apply("matmul", [q, m.apply("matrix_transpose", [k])])
    if m.chance(0.7):
        factor = m.scalar(k.type.shape[-1] ** -0.5 if isinstance(k.type.shape[-1], int) else 0.5, dtype)
        scores = m.apply(*m.random.choice((("multiply", [scores, factor]), ("divide", [scores, m.scalar(3, dtype)]))))
    for mask in _masks(m, q.type.shape[0], rows, columns):
        if mask.type.dtype is BOOL:
            scores = m.apply("where", [mask, scores, m.scalar(m.random.choice((-1e4, float("-inf"))), dtype)])
        else:
            scores = m.apply("add", [scores, mask])
    if m.chance(0.3):
        keep = m.apply("triangular_mask", [], rows=rows, columns=columns, diagonal=columns - rows)
        scores = m.apply("where", [keep, scores, m.scalar(float("-inf"), dtype)])
    weights = m.apply("softmax", [scores], axis=-1)
    if m.chance(0.2):
        m.keep(weights)
    return m.apply("matmul", [weights, v])


def embedding(m: Maker) -> Value:
    """Rows of a table by number, other tables added, and a norm."""
    dtype = m.dtype if m.dtype in FLOATS else F32
    width, depth = m.size(least=1), m.random.choice((1, 3, 17, 64))
    ids = m.argument(
        m.random.choice((I32, I64)), m.shape(m.random.choice((1, 2)), most=33), limit=Limit(depth, checked=True)
    )
    x = m.apply("embedding", [m.source(dtype, (depth, width)), ids])
    if m.chance(0.5) and ids.type.rank:
        x = m.apply("add", [x, m.source(dtype, (ids.type.shape[-1], width))])
    if m.chance(0.6):
        x = m.apply("layer_norm", [x, m.source(dtype, (width,)), m.source(dtype, (width,))])
    return x


def cumulative(m: Maker) -> Value:
    x = m.pick(least=1)
    return m.apply("cumsum", [x], axis=m.axis(x), exclusive=m.chance(0.3), reverse=m.chance(0.3))


WAYS = ((norm, 8), (reduction, 8), (by_hand, 6), (attention, 4), (embedding, 3), (cumulative, 1))
