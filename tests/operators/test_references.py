"""References whose formula is intricate, against an independent and slow way to say the same."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import BF16, F16, Array

Numbers = np.ndarray[Any, np.dtype[Any]]


def reference(name: str, *arrays: Array, **attributes: Any) -> Any:
    operator = OPERATORS[name]
    with np.errstate(all="ignore"):
        return operator.reference(*arrays, **operator.complete(attributes))


def random(*shape: int, seed: int = 0) -> Numbers:
    return np.random.default_rng(seed).standard_normal(shape)


CONVOLUTIONS = [
    ((2, 4, 9), (6, 2, 3), 2, (2,), (1,), ((0, 0),)),
    ((1, 3, 8), (3, 1, 2), 3, (1,), (3,), ((2, 1),)),
    ((1, 2, 6, 5), (3, 2, 2, 3), 1, (2, 1), (1, 2), ((1, 0), (2, 1))),
    ((2, 2, 3, 4, 3), (2, 1, 2, 1, 2), 2, (1, 2, 1), (1, 1, 2), ((0, 1), (0, 0), (1, 1))),
]


def windows_of(size: int, kernel: int, stride: int, dilation: int, pad: tuple[int, int]) -> range:
    """The first places of the windows, found by trying."""
    starts = [s for s in range(-pad[0], size + pad[1]) if s + dilation * (kernel - 1) < size + pad[1]]
    return range(-pad[0], (starts[-1] if starts else -pad[0] - 1) + 1, stride)


@pytest.mark.parametrize(("x", "weight", "groups", "stride", "dilation", "padding"), CONVOLUTIONS)
def test_convolution_element_by_element(
    x: Any, weight: Any, groups: int, stride: Any, dilation: Any, padding: Any
) -> None:
    a, w, bias = random(*x), random(*weight, seed=1), random(weight[0], seed=2)
    rank = len(stride)
    name = f"conv{rank}d"
    actual = reference(name, a, w, bias, stride=stride, dilation=dilation, groups=groups, padding=padding)
    starts = [windows_of(x[2 + i], weight[2 + i], stride[i], dilation[i], padding[i]) for i in range(rank)]
    expected = np.zeros((x[0], weight[0], *map(len, starts)))
    per_group = weight[0] // groups
    for n, o in np.ndindex(x[0], weight[0]):
        for place in np.ndindex(*map(len, starts)):
            total = bias[o]
            for c, *k in np.ndindex(*weight[1:]):
                at = [starts[i][place[i]] + k[i] * dilation[i] for i in range(rank)]
                if all(0 <= p < size for p, size in zip(at, x[2:], strict=True)):
                    total += a[(n, o // per_group * weight[1] + c, *at)] * w[(o, c, *k)]
            expected[(n, o, *place)] = total
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)
    # The transposed convolution is the adjoint: <conv(a), g> == <a, transpose(g)>.
    g = random(*expected.shape, seed=3)
    spare = tuple(
        x[2 + i] - ((expected.shape[2 + i] - 1) * stride[i] + dilation[i] * (weight[2 + i] - 1) + 1 - sum(padding[i]))
        for i in range(rank)
    )
    back = reference(
        f"conv_transpose{rank}d", g, w, stride=stride, dilation=dilation, groups=groups, padding=padding,
        output_padding=spare,
    )  # fmt: skip
    assert back.shape == a.shape
    plain = reference(name, a, w, stride=stride, dilation=dilation, groups=groups, padding=padding)
    np.testing.assert_allclose(np.sum(plain * g), np.sum(a * back), rtol=1e-10)
    slope = reference(
        "conv_weight_gradient", a, g, kernel=weight[2:], stride=stride, dilation=dilation, groups=groups,
        padding=padding,
    )  # fmt: skip
    np.testing.assert_allclose(np.sum(plain * g), np.sum(w * slope), rtol=1e-10)


def test_transposed_convolution_element_by_element() -> None:
    x, w = random(2, 4, 3, 4), random(4, 3, 2, 3, seed=1)
    stride, dilation, padding, spare = (3, 1), (1, 2), ((1, 0), (2, 1)), (2, 0)
    actual = reference("conv_transpose2d", x, w, stride=stride, dilation=dilation, padding=padding,
                       output_padding=spare, groups=2)  # fmt: skip
    shape = [(x.shape[2 + i] - 1) * stride[i] + dilation[i] * (w.shape[2 + i] - 1) + 1 - sum(padding[i]) + spare[i]
             for i in range(2)]  # fmt: skip
    expected = np.zeros((2, 6, *shape))
    for n, c, i, j in np.ndindex(*x.shape):
        for o, k, m in np.ndindex(*w.shape[1:]):
            at = i * stride[0] + k * dilation[0] - padding[0][0], j * stride[1] + m * dilation[1] - padding[1][0]
            if all(0 <= p < size for p, size in zip(at, shape, strict=True)):
                expected[(n, c // 2 * 3 + o, *at)] += x[n, c, i, j] * w[c, o, k, m]
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("size", [1, 2, 5, 6, 7])
@pytest.mark.parametrize(("kernel", "stride", "low", "high"), [(3, 2, 0, 0), (3, 2, 1, 1), (2, 3, 1, 0), (2, 1, 0, 1)])
def test_pooling_window_by_window(size: int, kernel: int, stride: int, low: int, high: int, ceil: bool) -> None:
    if size + low + high < kernel:
        return
    x = random(1, 1, size, seed=size)
    given: dict[str, Any] = {"kernel": kernel, "stride": stride, "padding": ((low, high),), "ceil_mode": ceil}
    starts = []
    start = -low
    while start + kernel <= size + high or (ceil and start < size and start + kernel - stride < size + high):
        starts.append(start)
        start += stride
    largest, places, inside, padded = [], [], [], []
    for start in starts:
        window = [p for p in range(start, start + kernel) if 0 <= p < size]
        values = [x[0, 0, p] for p in window]
        largest.append(max(values, default=-np.inf))
        places.append(window[int(np.argmax(values))] if values else -1)
        inside.append(sum(values) / max(len(values), 1))
        padded.append(sum(values) / max(sum(-low <= p < size + high for p in range(start, start + kernel)), 1))
    for name, expected, extra in (
        ("max_pool1d", largest, {}),
        ("max_pool_indices", places, {}),
        ("avg_pool1d", inside, {"count_include_pad": False}),
        ("avg_pool1d", padded, {}),
    ):
        actual = reference(name, x, **given, **extra)
        assert actual.shape == (1, 1, len(starts)), (name, starts)
        np.testing.assert_allclose(actual[0, 0], expected, rtol=1e-12)


def test_slice_is_that_of_python() -> None:
    bounds = [None, *range(-6, 7)]
    for n in range(5):
        x = np.arange(n)
        for start, stop, step in itertools.product(bounds, bounds, [-3, -2, -1, 1, 2, 3]):
            given = {"starts": (start,), "stops": (stop,), "steps": (step,)}
            expected = x[start:stop:step]
            actual = reference("slice", x, **given)
            assert actual.tolist() == expected.tolist(), (n, given)
            update = np.arange(len(expected)) + 100
            written = x.copy()
            written[start:stop:step] = update
            assert reference("slice_update", x, update, **given).tolist() == written.tolist(), (n, given)


def test_padding() -> None:
    x = np.asarray([1, 2, 3, 4])
    assert reference("pad", x, widths=((2, 1),), value=9).tolist() == [9, 9, 1, 2, 3, 4, 9]
    assert reference("pad", x, widths=((2, 1),), mode="edge").tolist() == [1, 1, 1, 2, 3, 4, 4]
    reflected = reference("pad", x, widths=((7, 4),), mode="reflect").tolist()
    assert reflected == [2, 1, 2, 3, 4, 3, 2, 1, 2, 3, 4, 3, 2, 1, 2]


@pytest.mark.parametrize(
    "equation", ["ij,jk->ik", "ij,jk", "ba", "...ij,...jk", "i...,...i->...", "ii", "iji->ji", "i,i,i->i"]
)
def test_einsum_reads_equations_as_numpy_does(equation: str) -> None:
    shapes = {"i": 3, "j": 4, "k": 2, "a": 2, "b": 5}
    terms = equation.split("->")[0].split(",")
    arrays = []
    for number, term in enumerate(terms):
        before, dots, after = term.partition("...")
        inner = ((2, 1) if number == 0 else (5,)) if dots else ()
        arrays.append(random(*(shapes[x] for x in before), *inner, *(shapes[x] for x in after), seed=number))
    np.testing.assert_allclose(reference("einsum", *arrays, equation=equation), np.einsum(equation, *arrays))


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_contractions_of_halves_are_summed_in_f32(dtype: Any) -> None:
    """The sum of n ones grows exactly up to n, which neither dtype could count up to one by one."""
    n = 4099
    ones = np.ones((1, n), dtype.numpy)
    expected = np.asarray([[n]], np.float32).astype(dtype.numpy)
    assert reference("matmul", ones, ones.T) == expected
    assert reference("einsum", ones, ones, equation="ij,kj->ik") == expected
    assert reference("conv1d", ones[None], ones[None])[0] == expected
    assert reference("avg_pool1d", ones[None], kernel=n)[0] == 1


def test_scatter_one_by_one() -> None:
    rng = np.random.default_rng(0)
    x, updates = rng.integers(0, 9, (3, 4, 2)), rng.integers(0, 9, (3, 7, 2))
    places = rng.integers(-6, 7, (3, 7, 1))
    for name in ("scatter", "scatter_add"):
        expected = x.copy()
        for i, j, k in np.ndindex(*updates.shape):
            p = places[i, j, 0]
            p = min(max(p + 4 if p < 0 else p, 0), 3)
            expected[i, p, k] = updates[i, j, k] + (expected[i, p, k] if name == "scatter_add" else 0)
        assert np.array_equal(reference(name, x, places, updates, axis=1), expected)
    pairs = rng.integers(-5, 6, (5, 2))
    rows = rng.integers(0, 9, (5, 2))
    for name in ("scatter_nd", "scatter_nd_add"):
        expected = x.copy()
        for number, (i, j) in enumerate(pairs):
            at = min(max(i + 3 if i < 0 else i, 0), 2), min(max(j + 4 if j < 0 else j, 0), 3)
            expected[at] = rows[number] + (expected[at] if name == "scatter_nd_add" else 0)
        assert np.array_equal(reference(name, x, pairs, rows), expected)


@pytest.mark.parametrize(("size", "count"), [(1, 3), (4, 7), (5, 10), (7, 3), (6, 1)])
def test_resize_point_by_point(size: int, count: int) -> None:
    x = random(size, seed=size)
    points = {
        "half_pixel": [(i + 0.5) * size / count - 0.5 for i in range(count)],
        "asymmetric": [i * size / count for i in range(count)],
        "align_corners": [i * (size - 1) / max(count - 1, 1) for i in range(count)],
    }
    for coordinates, places in points.items():
        linear = reference("resize", x, sizes=(count,), mode="linear", coordinates=coordinates)
        np.testing.assert_allclose(linear, np.interp(places, range(size), x), rtol=1e-12, atol=1e-12)
        nearest = reference("resize", x, sizes=(count,), coordinates=coordinates)
        # A small amount decides halves the way that is documented, whatever the rounding of the places.
        down = {"half_pixel": 0.5 + 1e-9, "asymmetric": 1e-9, "align_corners": 0.5 + 1e-9}[coordinates]
        chosen = np.clip(np.floor(np.asarray(places) + down), 0, size - 1).astype(int)
        assert np.array_equal(nearest, x[chosen]), coordinates


def test_resize_by_scale_samples_at_the_scale() -> None:
    x = np.arange(5.0)
    # 5 * 1.5 = 7.5 gives 7 elements, which are 2/3 apart and not 5/7.
    actual = reference("resize", x, scales=(1.5,), mode="linear", coordinates="asymmetric")
    np.testing.assert_allclose(actual, np.minimum(np.arange(7) / 1.5, 4))


def test_sorting_against_python() -> None:
    x = np.random.default_rng(0).integers(0, 5, (3, 20))
    for axis, descending in itertools.product((0, 1), (False, True)):
        order = reference("argsort", x, axis=axis, descending=descending)
        for line, places in zip(np.moveaxis(x, axis, -1), np.moveaxis(order, axis, -1), strict=True):
            key = (lambda i, line=line: -line[i]) if descending else (lambda i, line=line: line[i])
            assert places.tolist() == sorted(range(len(line)), key=key)
        values = reference("sort", x, axis=axis, descending=descending)
        assert np.array_equal(values, np.take_along_axis(x, order, axis))


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_embedding_turns_complex_numbers(interleaved: bool) -> None:
    x, angles = random(2, 5, 8), random(5, 4, seed=1)
    turned = reference("rotary_embedding", x, np.cos(angles), np.sin(angles), interleaved=interleaved)
    parts = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, 4), slice(4, 8))
    first, second = (x[..., p] for p in parts)
    expected = (first + 1j * second) * np.exp(1j * angles)
    np.testing.assert_allclose(turned[..., parts[0]], expected.real)
    np.testing.assert_allclose(turned[..., parts[1]], expected.imag)


def test_attention_query_by_query() -> None:
    q, k, v = random(2, 4, 3, 5), random(2, 2, 6, 5, seed=1), random(2, 2, 6, 7, seed=2)
    mask = np.random.default_rng(3).random((2, 1, 3, 6)) < 0.7
    mask[..., 0] = True
    actual = reference("attention", q, k, v, mask, causal=True)
    expected = np.zeros((2, 4, 3, 7))
    for n, h, t in np.ndindex(2, 4, 3):
        seen = [s for s in range(6) if s <= t + 3 and mask[n, 0, t, s]]
        scores = np.asarray([q[n, h, t] @ k[n, h // 2, s] for s in seen]) / np.sqrt(5)
        weights = np.exp(scores) / np.exp(scores).sum()
        expected[n, h, t] = sum(w * v[n, h // 2, s] for w, s in zip(weights, seen, strict=True))
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_blocks_of_pixels_and_channels() -> None:
    x = np.arange(8).reshape(1, 8, 1, 1)
    # Of two results, channel c of pixel (i, j) is 4i + 2j + c with blocks first, 4c + 2i + j with channels first.
    assert reference("depth_to_space", x, block=2).tolist() == [[[[0, 2], [4, 6]], [[1, 3], [5, 7]]]]
    shuffled = reference("depth_to_space", x, block=2, mode="channels_first")
    assert shuffled.tolist() == [[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]]


def test_unfold_without_windows() -> None:
    """An axis whose size is a dim may be smaller than the window."""
    columns = OPERATORS["unfold"].reference(
        np.zeros((1, 2, 1), np.float32), kernel=(3,), stride=1, padding=0, dilation=1
    )
    assert np.shape(columns) == (1, 6, 0)
