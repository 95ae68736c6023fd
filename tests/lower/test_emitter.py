"""The methods of the emitter protocol against numpy: sizes 0, 1 and odd, symbolic sizes, every dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from kernel_harness import Written, run_kernels
from nacre.compiler.lower.shapes import reshape_groups
from nacre.dialect.dims import Symbol
from nacre.dialect.emitter import ZERO, Loop, Result, identity, loop, loops
from nacre.dialect.types import ANY, F32, I64, Array, DType, TensorType, dtype_of

T, S = Symbol("T", 0, 100), Symbol("S", 0, 100)
EVEN = Symbol("E", 0, 64, 2)
Write = Callable[..., Sequence[object]]


def f32(*shape: Any) -> TensorType:
    return TensorType(F32, tuple(s.size if isinstance(s, Symbol) else s for s in shape))


def array(*shape: int, dtype: DType = F32) -> Array:
    count = int(np.prod(shape))
    values = np.arange(count).reshape(shape)
    return (values % 2 == 1) if dtype.name == "bool" else (values % 100).astype(dtype.numpy)


class Batch:
    """Kernels that are compiled together and checked one after another."""

    def __init__(self) -> None:
        self.written: dict[str, Written] = {}
        self.checks: list[tuple[str, list[Array], list[Array]]] = []

    def add(
        self, types: Sequence[TensorType], write: Write, *examples: tuple[Sequence[Array], Sequence[Array]]
    ) -> None:
        name = f"k{len(self.written)}"
        self.written[name] = Written(types, write)
        self.checks += [(name, list(inputs), list(results)) for inputs, results in examples]

    def check(self, level: int = 0) -> None:
        functions = run_kernels(self.written, level=level)
        for name, inputs, expected in self.checks:
            for actual, want in zip(functions[name](inputs), expected, strict=True):
                assert actual.dtype == want.dtype and actual.shape == want.shape, (name, actual.shape, want.shape)
                assert np.array_equal(actual, want), (name, inputs, actual, want)


def static(x: Array) -> TensorType:
    return TensorType(dtype_of(x), x.shape)


@pytest.mark.parametrize("level", [0, 2])
def test_map(level: int) -> None:
    batch = Batch()
    for shape in ((), (1,), (0,), (7,), (3, 5), (2, 0, 3), (2, 3, 4)):
        x = array(*shape)
        batch.add(
            [static(x)],
            lambda e, a: [e.map(a.type, [(a, identity(a.type.rank))], lambda s, v: s.binary("add", v, v))],
            ([x], [x + x]),
        )
    for dtype in ANY:
        x = array(3, 4, dtype=dtype)
        batch.add(
            [static(x)],
            lambda e, a: [e.map(a.type.with_shape((4, 3)), [(a, loops(1, 0))], lambda s, v: v)],
            ([x], [x.T]),
        )
    # Broadcasting, a window, and a map that runs backwards.
    row, column = array(5), array(3, 1)
    batch.add(
        [static(row), static(column)],
        lambda e, r, c: [
            e.map(f32(3, 5), [(r, loops(1)), (c, (loop(0), ZERO))], lambda s, a, b: s.binary("sub", a, b))
        ],
        ([row, column], [row - column]),
    )
    batch.add(
        [static(array(9))],
        lambda e, a: [e.map(f32(4), [(a, (loop(0) * 2 + 1,))], lambda s, v: v)],
        ([array(9)], [array(9)[1:8:2]]),
    )
    batch.add(
        [static(array(9))],
        lambda e, a: [e.map(f32(9), [(a, (loop(0) * -1 + 8,))], lambda s, v: v)],
        ([array(9)], [array(9)[::-1]]),
    )
    # Symbolic sizes, and indices as numbers.
    batch.add(
        [f32(T, 3, S)],
        lambda e, a: [
            e.map(
                TensorType(I64, (S.size, 3, T.size)),
                [(a, loops(2, 1, 0))],
                lambda s, v: s.binary("add", s.cast(v, I64), s.binary("mul", s.index(0), s.size(T.size))),
            )
        ],
        *(
            ([x], [x.T.astype(np.int64) + np.arange(x.shape[2])[:, None, None] * x.shape[0]])
            for x in (array(4, 3, 5), array(0, 3, 5), array(4, 3, 0), array(1, 3, 1))
        ),
    )
    batch.check(level)


def reduce(x: Any, e: Any, axis: int, shape: Sequence[Any], start: float, function: str) -> Any:
    kept = [i for i in range(x.type.rank) if i != axis]
    (total,) = e.structured(
        [Loop(size, parallel=i != axis) for i, size in enumerate(x.type.shape)],
        [(x, identity(x.type.rank))],
        [Result(x.type.with_shape(shape), loops(*kept), start)],
        lambda s, v, a: [s.binary(function, a, v)],
    )
    return total


@pytest.mark.parametrize("level", [0, 2])
def test_structured(level: int) -> None:
    batch = Batch()
    for shape in ((3, 5), (0, 5), (3, 0), (1, 1)):
        x = array(*shape)
        batch.add([static(x)], lambda e, a: [reduce(a, e, 1, a.type.shape[:1], 0, "add")], ([x], [x.sum(1)]))
        batch.add(
            [static(x)],
            lambda e, a: [reduce(a, e, 0, a.type.shape[1:], -np.inf, "max")],
            ([x], [x.max(0, initial=-np.inf)]),
        )
    batch.add(
        [f32(T, S)],
        lambda e, a: [reduce(a, e, 1, (T.size,), 0, "add")],
        *(([x], [x.sum(1)]) for x in (array(4, 3), array(0, 3), array(4, 0))),
    )
    # Two results of one op, and one that starts from a tensor that is read again.
    x = array(4, 6)

    def extremes(e: Any, a: Any) -> Sequence[Any]:
        return e.structured(
            [Loop(4), Loop(6, parallel=False)],
            [(a, identity(2))],
            [Result(f32(4), loops(0), np.inf), Result(f32(4), loops(0), -np.inf)],
            lambda s, v, low, high: [s.binary("min", low, v), s.binary("max", high, v)],
        )

    batch.add([static(x)], extremes, ([x], [x.min(1), x.max(1)]))

    def accumulate(e: Any, a: Any, start: Any) -> Sequence[Any]:
        (total,) = e.structured(
            [Loop(4), Loop(6, parallel=False)],
            [(a, identity(2))],
            [Result(f32(4), loops(0), start)],
            lambda s, v, so_far: [s.binary("add", so_far, v)],
        )
        return [total, e.map(f32(4), [(start, identity(1))], lambda s, v: s.unary("neg", v))]

    start = array(4)
    batch.add([static(x), f32(4)], accumulate, ([x, start], [start + x.sum(1), -start]))
    # A window: its loops are in no operand's shape.
    signal = array(10)

    def pool(e: Any, a: Any) -> Sequence[Any]:
        return e.structured(
            [Loop(4), Loop(3, parallel=False)],
            [(a, (loop(0) * 2 + loop(1),))],
            [Result(f32(4), loops(0), -np.inf)],
            lambda s, v, best: [s.binary("max", best, v)],
        )

    batch.add(
        [static(signal)], pool, ([signal], [np.array([max(signal[2 * i : 2 * i + 3]) for i in range(4)], np.float32)])
    )
    batch.check(level)


@pytest.mark.parametrize("level", [0, 2])
def test_producers_are_written_where_they_are_read(level: int) -> None:
    """A chain of maps is one loop nest and needs no memory; what would be computed again and again is stored."""
    x, bias = array(3, 5), array(5)

    def chain(e: Any, a: Any, b: Any) -> Sequence[Any]:
        moved = e.map(f32(5, 3), [(a, loops(1, 0))], lambda s, v: v)
        sums = e.map(f32(5, 3), [(moved, identity(2)), (b, loops(0))], lambda s, v, w: s.binary("add", v, w))
        squares = e.map(f32(5, 3), [(sums, identity(2)), (sums, identity(2))], lambda s, v, w: s.binary("mul", v, w))
        places = e.map(f32(5, 3), [(squares, identity(2))], lambda s, v: s.binary("add", v, s.cast(s.index(0), F32)))
        turned = e.map(f32(3, 5), [(places, loops(1, 0))], lambda s, v: v)
        return [reduce(turned, e, 0, (5,), 0, "add")]

    one_nest = Written([static(x), static(bias)], chain)
    kernel = one_nest.kernel()
    assert kernel.text.count("linalg.generic") == 1 and kernel.scratch == (), kernel.text

    def broadcast(e: Any, a: Any, b: Any) -> Sequence[Any]:
        costly = e.map(f32(5), [(b, identity(1))], lambda s, v: s.unary("exp", v))
        return [e.map(f32(3, 5), [(a, identity(2)), (costly, loops(1))], lambda s, v, w: s.binary("mul", v, w))]

    def shared(e: Any, a: Any, b: Any) -> Sequence[Any]:
        """Two nests read the same costly elements, each all of them."""
        costly = e.map(a.type, [(a, identity(2))], lambda s, v: s.unary("exp", v))
        return [reduce(costly, e, 0, (5,), 0, "add"), reduce(costly, e, 1, (3,), 0, "add")]

    kernel = Written([static(x), static(bias)], shared).kernel()
    assert kernel.text.count("math.exp") == 1 and kernel.scratch == (f32(3, 5),), kernel.text

    two_nests = Written([static(x), static(bias)], broadcast)
    kernel = two_nests.kernel()
    assert kernel.text.count("linalg.generic") == 2 and kernel.scratch == (f32(5),), kernel.text

    run = run_kernels({"one": one_nest, "two": two_nests}, level=level)
    expected = ((x.T + bias[:, None]) ** 2 + np.arange(5)[:, None]).sum(1).astype(np.float32)
    assert np.array_equal(run["one"]([x, bias])[0], expected)
    assert np.allclose(run["two"]([x, bias])[0], x * np.exp(bias), rtol=1e-6)


def negate(s: Any, v: Any) -> Any:
    return s.unary("neg", v)


@pytest.mark.parametrize("level", [0, 2])
def test_reshape(level: int) -> None:
    batch = Batch()
    pairs = [
        ((), (1,)), ((1,), ()), ((1, 1), ()), ((), (1, 1, 1)), ((6,), (2, 3)), ((2, 3), (6,)), ((2, 3), (3, 2)),
        ((2, 3, 4), (2, 12)), ((2, 3, 4), (4, 3, 2)), ((2, 1, 3), (2, 3)), ((2, 3), (1, 2, 1, 3, 1)), ((0, 3), (0,)),
        ((0, 3), (5, 0, 2)), ((0,), (0, 7)), ((4, 1), (1, 4)), ((1, 4, 1), (4, 1, 1)),
    ]  # fmt: skip
    for source, target in pairs:
        x = array(*source)
        # At the end, at the start, and between two ops.
        batch.add([static(x)], lambda e, a, t=target: [e.reshape(a, t)], ([x], [x.reshape(target)]))
        batch.add(
            [static(x)],
            lambda e, a, t=target: [e.reshape(e.map(a.type, [(a, identity(a.type.rank))], negate), t)],
            ([x], [-x.reshape(target)]),
        )

        def between(e: Any, a: Any, t: Any = target) -> Sequence[Any]:
            first = e.map(a.type, [(a, identity(a.type.rank))], negate)
            second = e.reshape(first, t)
            return [e.map(second.type, [(second, identity(len(t)))], negate), first]

        batch.add([static(x)], between, ([x], [x.reshape(target), -x]))
    symbolic = [
        ((T, 6), (T, 2, 3)),
        ((T, 2, 3), (T, 6)),
        ((T, S), (S, T)),
        ((T, 4), (2 * T.size, 2)),
        ((EVEN, 3), (3, EVEN)),
    ]
    for before, after in symbolic:
        target = f32(*after).shape
        examples = [(4, 3), (0, 3), (2, 0), (1 if EVEN not in before else 2, 1)]
        arrays = [np.arange(t * s).reshape(t, s).astype(np.float32) for t, s in examples]
        if before[1] is not S:
            arrays = [array(t, *before[1:]) for t, _ in examples]
        results = [x.reshape(_at(target, x, before)) for x in arrays]
        batch.add(
            [f32(*before)],
            lambda e, a, t=target: [e.reshape(a, t)],
            *(([x], [y]) for x, y in zip(arrays, results, strict=True)),
        )
    batch.check(level)


def _at(shape: Sequence[Any], x: Array, before: Sequence[Any]) -> tuple[int, ...]:
    values = {s.name: x.shape[i] for i, s in enumerate(before) if isinstance(s, Symbol)}
    return TensorType(F32, tuple(shape)).concrete(values)


def test_reshape_merges_as_little_as_it_can() -> None:
    b, t = T.size, S.size
    assert reshape_groups((b, t, 12), (b, t, 3, 4)) == ([[0], [1], [2]], [[0], [1], [2, 3]])
    assert reshape_groups((b, t, 3, 4), (b * t, 12)) == ([[0, 1], [2, 3]], [[0], [1]])
    assert reshape_groups((2, 3), (3, 2)) == ([[0, 1]], [[0, 1]])
    assert reshape_groups((0, 3), (0, 5)) == ([[0, 1]], [[0, 1]])


@pytest.mark.parametrize("level", [0, 2])
def test_slice_and_insert(level: int) -> None:
    batch = Batch()
    x = array(6, 7)
    batch.add([static(x)], lambda e, a: [e.slice(a, (1, 2), (3, 2), (2, 3))], ([x], [x[1:6:2, 2:6:3]]))
    batch.add([static(x)], lambda e, a: [e.slice(a, (6, 7), (0, 0), (1, 1))], ([x], [x[6:, 7:]]))
    batch.add(
        [f32(T, 4)],
        lambda e, a: [e.slice(a, (T.size // 2, 1), (T.size - T.size // 2, 2), (1, 1))],
        *(([y], [y[len(y) // 2 :, 1:3]]) for y in (array(5, 4), array(1, 4), array(0, 4))),
    )
    part = array(2, 3)
    expected = np.full((6, 7), -1, np.float32)
    expected[1:5:3, 0:6:2] = part

    def paste(e: Any, p: Any) -> Sequence[Any]:
        return [e.insert(p, e.full(f32(6, 7), -1), (1, 0), (3, 2))]

    batch.add([static(part)], paste, ([part], [expected]))
    # Into an argument, which stays as it is, also where both are wanted.
    pasted = x.copy()
    pasted[2:4, 4:7] = part
    batch.add([static(x), static(part)], lambda e, a, p: [e.insert(p, a, (2, 4), (1, 1))], ([x, part], [pasted]))
    batch.add([static(x), static(part)], lambda e, a, p: [e.insert(p, a, (2, 4), (1, 1)), a], ([x, part], [pasted, x]))

    def twice(e: Any, p: Any) -> Sequence[Any]:
        base = e.full(f32(4, 3), 0)
        return [e.insert(p, base, (0, 0), (1, 1)), e.insert(p, base, (2, 0), (1, 1))]

    zeros = np.zeros((2, 3), np.float32)
    batch.add([static(part)], twice, ([part], [np.vstack([part, zeros]), np.vstack([zeros, part])]))

    def join(e: Any, a: Any, b: Any) -> Sequence[Any]:
        both = e.full(f32(T.size + S.size), 0)
        return [e.insert(b, e.insert(a, both, (0,), (1,)), (T.size,), (1,))]

    batch.add(
        [f32(T), f32(S)],
        join,
        *(([a, b], [np.concatenate([a, b])]) for a in (array(3), array(0)) for b in (array(2), array(0))),
    )
    batch.add(
        [static(array(0, 3)), static(x)], lambda e, p, a: [e.insert(p, a, (6, 0), (1, 1))], ([array(0, 3), x], [x])
    )
    # A slice of what is overwritten afterwards.

    def shift(e: Any, a: Any) -> Sequence[Any]:
        own = e.map(a.type, [(a, identity(1))], lambda s, v: v)
        return [e.insert(e.slice(own, (0,), (4,), (1,)), own, (1,), (1,))]

    batch.add([f32(5)], shift, ([array(5)], [np.array([0, 0, 1, 2, 3], np.float32)]))
    batch.check(level)


@pytest.mark.parametrize("level", [0, 2])
def test_scan(level: int) -> None:
    batch = Batch()

    def running(e: Any, a: Any) -> Sequence[Any]:
        def step(s: Any, indices: Any, tensors: Any) -> Sequence[Any]:
            total = s.binary("add", s.load(tensors[1], []), s.load(a, indices))
            return [s.store(tensors[0], indices, total), s.store(tensors[1], [], total)]

        return e.scan(a.type.shape, [e.full(a.type, 0), e.full(f32(), 0)], step)

    for x in (array(3, 5), array(0, 5), array(1, 1)):
        batch.add([static(x)], running, ([x], [np.cumsum(x).reshape(x.shape).astype(np.float32), np.float32(x.sum())]))
    batch.add(
        [f32(T)],
        running,
        *(([x], [np.cumsum(x).astype(np.float32), np.float32(x.sum())]) for x in (array(4), array(0))),
    )

    def sort(e: Any, a: Any) -> Sequence[Any]:
        """Bubbles through an argument, which may not be written."""

        def step(s: Any, indices: Any, tensors: Any) -> Sequence[Any]:
            (t,) = tensors
            here, following = indices[1], s.binary("add", indices[1], s.constant(1, I64))
            x, y = s.load(t, [here]), s.load(t, [following])

            def swap() -> Sequence[Any]:
                return [s.store(s.store(t, [here], y), [following], x)]

            return s.branch(s.compare("gt", x, y), swap, [t])

        return e.scan((5, 4), [a], step)

    x = np.array([3, 1, 4, 1, 5], np.float32)
    batch.add([f32(5)], lambda e, a: [*sort(e, a), a], ([x], [np.sort(x), x]))

    def count(e: Any, a: Any) -> Sequence[Any]:
        """As often as an element says, adding up the numbers from 0."""
        wide = TensorType(I64, (4,))

        def element(s: Any, v: Any) -> Any:
            return s.iterate(v, [s.constant(0, I64)], lambda inner, i, c: [inner.binary("add", c[0], i)])[0]

        return [e.map(wide, [(a, identity(1))], element)]

    n = np.array([0, 1, 5, 10])
    batch.add([TensorType(I64, (4,))], count, ([n], [n * (n - 1) // 2]))
    batch.check(level)


def test_loads_constants_and_repeated_results() -> None:
    batch = Batch()
    table = [5.0, 7.0, 11.0]

    def gather(e: Any, places: Any) -> Sequence[Any]:
        values = e.constant(f32(3), table)
        first = e.map(f32(4), [(places, identity(1))], lambda s, i: s.load(values, [i]))
        return [first, first, e.constant(f32(3), table), e.full(f32(2), 3)]

    places = np.array([2, 0, 1, 2])
    looked_up = np.array(table, np.float32)[places]
    expected = [looked_up, looked_up, np.array(table, np.float32), np.full(2, 3, np.float32)]
    batch.add([TensorType(I64, (4,))], gather, ([places], expected))
    for dtype in ANY:
        values = array(2, 3, dtype=dtype)
        flat = [v.item() for v in values.reshape(-1)]
        batch.add([], lambda e, d=dtype, v=flat: [e.constant(TensorType(d, (2, 3)), v)], ([], [values]))
        batch.add([], lambda e, d=dtype: [e.full(TensorType(d, ()), 1)], ([], [np.ones((), dtype.numpy)]))
        batch.add([], lambda e, d=dtype: [e.constant(TensorType(d, (0,)), [])], ([], [np.ones(0, dtype.numpy)]))
    batch.check()


@pytest.mark.parametrize("level", [0, 2])
def test_a_load_that_is_not_done_gives_zero(level: int) -> None:
    batch = Batch()
    for dtype in ANY:
        x = array(7, dtype=dtype)
        kept = np.where(np.arange(7) < 4, x, np.zeros(7, x.dtype))
        batch.add(
            [static(x)],
            lambda e, a: [
                e.map(
                    a.type,
                    [],
                    lambda s: s.load_if(s.compare("lt", s.index(0), s.constant(4, I64)), a, [s.index(0)]),
                )
            ],
            ([x], [kept]),
        )
    batch.check(level)


def test_movements_are_written_where_they_are_read_though_that_is_twice() -> None:
    def write(e: Any, a: Any) -> Sequence[Any]:
        turned = e.map(f32(3, 3), [(a, loops(1, 0))], lambda s, v: v)
        return [e.map(f32(3, 3), [(turned, loops(0, 1)), (turned, loops(1, 0))], lambda s, v, w: s.binary("sub", v, w))]

    assert Written([f32(3, 3)], write).kernel().text.count("linalg.generic") == 1
    batch = Batch()
    x = array(3, 3)
    batch.add([static(x)], write, ([x], [x.T - x]))
    batch.check()


def test_floor_division_in_shapes() -> None:
    """Sizes with quotients of what may be negative, evaluated in the kernel and, for its scratch, in the entry."""
    parts = Symbol("P", 1, 100)
    size = (T.size - 5) // parts.size + 5

    def write(e: Any, a: Any, b: Any) -> Sequence[Any]:
        first = e.map(f32(size), [], lambda s: s.cast(s.size(size), F32))
        # What is read through a reshape is stored: two of these live at once.
        column = e.reshape(first, (size, 1))
        second = e.map(f32(size, 1), [(column, identity(2))], negate)
        row = e.reshape(second, (1, size))
        return [e.map(f32(1, size), [(row, identity(2))], negate)]

    assert len(Written([f32(T), f32(parts)], write).kernel().scratch) == 2
    batch = Batch()
    examples = [(0, 1), (0, 2), (3, 7), (4, 3), (5, 5), (9, 2)]
    batch.add(
        [f32(T), f32(parts)],
        write,
        *(([array(t), array(p)], [np.full((1, (t - 5) // p + 5), (t - 5) // p + 5, np.float32)]) for t, p in examples),
    )
    batch.check()


def test_equal_kernels_have_equal_texts() -> None:
    """Whatever dims are called, and wherever they were written."""

    def kernel(symbol: Symbol) -> str:
        def double(e: Any, a: Any) -> Sequence[Any]:
            return [e.map(a.type, [(a, identity(2))], lambda s, v: s.binary("add", v, v))]

        return Written([f32(symbol, 3)], double).kernel().shape_of_text

    assert kernel(Symbol("A", 0, 10)) == kernel(Symbol("Z", 0, 10))
