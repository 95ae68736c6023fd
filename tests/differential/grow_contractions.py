"""Ways to grow a graph by contractions: products of matrices, einsum, convolutions; and what follows one in a layer."""

from __future__ import annotations

from nacre.dialect.graph import Value
from nacre.dialect.types import F16, F32, F64

from .maker import Maker, Refused

ACTIVATIONS = (
    "relu",
    "gelu",
    "silu",
    "tanh",
    "sigmoid",
    "relu6",
    "leaky_relu",
    "elu",
    "hard_swish",
    "softplus",
    "mish",
)
EXACT_ACTIVATIONS = ("relu", "abs", "negate")
FLOATS = (F16, F32, F64)
EQUATIONS = {
    2: (
        "ij,jk->ik",
        "ij,kj->ik",
        "ij,jk->ki",
        "ji,jk->ik",
        "ij,ij->i",
        "ij,j->i",
        "ij,kj->ijk",
        "ij,ij->",
        "ij,ik->jk",
    ),
    3: ("bij,bjk->bik", "bij,bkj->bik", "bij,kj->bki", "bij,jk->ibk", "bij,bij->bi", "bij,bik->bjk", "ibj,kbj->bik"),
    4: ("bhid,bhjd->bhij", "bihd,bjhd->bhij", "bhij,bhjd->bihd", "abij,jk->abik", "bhid,bjd->bhij", "bhij,bhij->bh"),
}


def linear(m: Maker) -> Value:
    """x @ w, with the weight as layers store it."""
    x = m.pick(least=2)
    *outer, inner = x.type.shape
    columns = m.size(most=97)
    m.check_products(*outer, inner, columns)
    return epilogue(m, m.apply("matmul", [x, m.weight(m.dtype, inner, columns)]))


def batched(m: Maker) -> Value:
    """Two products of matrices with batch dims that broadcast; either operand may be a transposed one."""
    x = m.pick(least=2)
    *batch, rows, inner = x.type.shape
    columns = m.size(most=64)
    kept = [1 if m.chance(0.25) else s for s in batch][m.random.choice((0, 0, len(batch) // 2, len(batch))) :]
    if m.chance(0.15):
        kept = [m.random.choice((2, 3)), *batch]
    m.check_products(*kept, *batch, rows, inner, columns)
    if m.chance(0.5):
        return epilogue(m, m.apply("matmul", [x, m.weight(m.dtype, *kept, inner, columns)]))
    return epilogue(m, m.apply("matmul", [m.weight(m.dtype, *kept, columns, rows), x]))


def square(m: Maker) -> Value:
    """x @ x^T, one value as both operands."""
    x = m.pick(least=2)
    m.check_products(*x.type.shape, x.type.shape[-2])
    other = m.apply("matrix_transpose", [x])
    pair = [x, other] if m.chance(0.6) else [other, x]
    return epilogue(m, m.apply("matmul", pair))


def einsum(m: Maker) -> Value:
    x = m.pick(rank=m.random.choice((2, 3, 3, 4)))
    equation = m.random.choice(EQUATIONS[x.type.rank])
    left, right = equation.partition("->")[0].split(",")
    sizes = dict(zip(left, x.type.shape, strict=True))
    for letter in right:
        sizes.setdefault(letter, m.size(most=49))
    m.check_products(*sizes.values())
    y = m.source(m.dtype, tuple(sizes[letter] for letter in right))
    return epilogue(m, m.apply("einsum", [x, y], equation=equation))


def convolution(m: Maker) -> Value:
    rank = m.random.choice((1, 1, 2, 2, 2, 3))
    most = {1: 130, 2: 17, 3: 7}[rank]
    reused = [v for v in m.pool if v.type.rank == rank + 2 and v.type.dtype is m.dtype]
    if reused and m.chance(0.6):
        x = m.random.choice(reused)
    else:
        batch = m.size(most=3)
        spatial = [m.size(least=1, most=most) for _ in range(rank)]
        x = m.source(m.dtype, (batch, m.size(least=1, most=17), *spatial))
    channels = x.type.shape[1]
    if not isinstance(channels, int) or m.least(channels) < 1:
        raise Refused
    groups = m.random.choice([g for g in (1, 1, 1, 1, 2, channels, channels) if channels % g == 0])
    out = groups * (m.random.choice((1, 1, 2)) if groups > 1 else m.random.choice((1, 3, 8, 16, 17, 33)))
    kernel = tuple(m.random.choice((1, 2, 3, 3, 5)) for _ in range(rank))
    padding = m.random.choice((0, 1, "same", "same", tuple(k // 2 for k in kernel), ((1, 0),) * rank))
    attributes = {
        "stride": m.random.choice((1, 1, 1, 2, 3)),
        "dilation": m.random.choice((1, 1, 1, 2)),
        "padding": padding,
        "groups": groups,
    }
    m.check_products(x.type.shape[0], *x.type.shape[2:], out, channels // groups, *kernel)
    operands = [x, m.source(m.dtype, (out, channels // groups, *kernel))]
    if m.chance(0.4):
        operands.append(m.source(m.dtype, (out,)))
    y = m.apply(f"conv{rank}d", operands, **attributes)
    if m.dtype in FLOATS and m.chance(0.3):
        moments = [m.source(m.dtype, (out,)) for _ in range(2)]
        variance = m.apply("square", [moments[1]])
        y = m.apply("batch_norm", [y, moments[0], variance, m.source(m.dtype, (out,))])
    return epilogue(m, y)


def blocks(m: Maker) -> Value:
    """A convolution that is worth computing in blocks: many channels, a 3x3 kernel that is known."""
    channels, out = m.random.choice((32, 33)), m.random.choice((32, 48))
    x = m.argument(
        F32, (m.random.choice((1, m.size(least=1, most=2))), channels, *m.random.sample((16, 17, 18, 20), 2))
    )
    operands = [x, m.parameter(F32, (out, channels, 3, 3))]
    if m.chance(0.5):
        operands.append(m.parameter(F32, (out,)))
    m.dtype = F32
    return epilogue(m, m.apply("conv2d", operands, padding=m.random.choice((0, 1, "same"))))


def epilogue(m: Maker, y: Value) -> Value:
    """Bias along any axis, activation, residual, scale: some of them, in any order."""
    m.keep(y)
    rank = y.type.rank
    for step in m.random.sample(("bias", "activation", "residual", "scale", "clip"), m.random.choice((0, 1, 2, 2, 3))):
        if step == "bias" and rank:
            axis = m.random.choice((-1, -1, *range(-rank, 0)))
            y = m.apply("add", [y, m.source(m.dtype, (y.type.shape[axis], *(1,) * (-axis - 1)))])
        elif step == "activation":
            y = m.apply(m.random.choice(ACTIVATIONS if m.dtype in FLOATS else EXACT_ACTIVATIONS), [y])
        elif step == "residual":
            other = m.source(m.dtype, y.type.shape)
            y = m.apply("add", [y, other] if m.chance(0.5) else [other, y])
        elif step == "scale":
            y = m.apply("multiply", [y, m.scalar(m.random.choice((2, 3)) if m.chance(0.5) else 1, m.dtype)])
        elif step == "clip":
            y = m.apply("clip", [y], low=-3, high=3)
        if m.chance(0.15):
            m.keep(y)
    return y


WAYS = ((linear, 8), (batched, 6), (square, 1), (einsum, 5), (convolution, 6), (blocks, 0.5))
