"""Weights in the order in which contractions read them: which are packed, how, and that nothing is lost."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from nacre.compiler.api import in_precision, read_model
from nacre.compiler.codegen.jit import build_functions
from nacre.compiler.lower.lowered import PackingError
from nacre.compiler.lower.module import lower_module
from nacre.compiler.lower.packing import Packing, read_packing
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.vector_unit import PanelSizes
from nacre.dialect.graph import Constant, Function, Module, Node, Parameter, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.ops.support.layouts import LAST
from nacre.dialect.types import BF16, F32, I8, I32, U8, Array, DType, TensorType


def product(rows: int, inner: int, columns: int, dtype: DType = F32, *, again: bool = False) -> Module:
    """x @ w of a parameter w, and where it is wanted `again`, exp(w) besides."""
    x, w = Value("x", TensorType(dtype, (rows, inner))), Value("w", TensorType(dtype, (inner, columns)))
    b = Builder(OPERATORS)
    b.nodes.append(Node("parameter", (), (w,), (("name", "w"),)))
    results = [b.matmul(x, w), *([b.exp(w)] if again else [])]
    names = ("y", "z")[: len(results)]
    return Module("m", (), (Parameter("w", w.type),), (Function("f", (x,), tuple(b.nodes), tuple(results), names),))


WIDE = PanelSizes(lanes=16, most=3)
NARROW = PanelSizes(lanes=8, most=3)
EVEN = PanelSizes(lanes=8, most=3, narrow=16)


@pytest.mark.parametrize(
    ("columns", "sizes", "panels", "width"),
    [
        *((8, WIDE, 1, 16), (16, WIDE, 1, 16), (48, WIDE, 1, 48), (64, WIDE, 2, 32), (100, WIDE, 3, 48)),
        *((8, NARROW, 1, 8), (16, NARROW, 1, 16), (48, NARROW, 2, 24), (64, NARROW, 3, 24), (100, NARROW, 5, 24)),
        # 16 vectors of columns are 8 panels of 2, rather than 5 of 3 and one of 1.
        *((128, NARROW, 6, 24), (128, EVEN, 8, 16), (32, EVEN, 2, 16), (8, EVEN, 1, 8), (64, EVEN, 3, 24)),
        # 13 and 19 vectors, which 2 does not divide; more vectors than 16.
        *((104, EVEN, 5, 24), (152, EVEN, 7, 24), (176, EVEN, 8, 24)),
    ],
)
def test_panels_hold_every_column(columns: int, sizes: PanelSizes, panels: int, width: int) -> None:
    (weight,) = lower_module(product(4, 5, columns), pack=sizes).weights
    assert weight.packing is not None and weight.type.shape == (panels, 5, width)
    data = np.arange(5 * columns, dtype=np.float32).reshape(5, columns)
    stored = weight.store(data)
    assert stored.shape == weight.type.shape and stored.flags.c_contiguous
    together = np.moveaxis(stored, 0, 1).reshape(5, -1)
    assert np.array_equal(together[:, :columns], data) and not together[:, columns:].any()


@pytest.mark.parametrize("group", [1, 2, 4])
def test_packed_weights_are_found_by_name(group: int) -> None:
    packing = Packing(batch=(2,), summed=(3, 0), lane=1, width=16, group=group)
    data = np.arange(1, 7 * 20 * 3 * 4 + 1, dtype=np.float32).reshape(7, 20, 3, 4)
    assert read_packing(f"a.packed.{packing.name}") == ("a.packed", packing)
    unpacked = packing.unpacked(packing(data))
    assert unpacked.shape == (-(-7 // group) * group, 32, 3, 4)
    assert np.array_equal(unpacked[:7, :20], data)
    assert not unpacked[7:].any() and not unpacked[:, 20:].any()
    assert read_packing("a.packed_weight") == ("a.packed_weight", None)


def test_batches_and_several_summed_axes_keep_their_order() -> None:
    packing = Packing(batch=(2,), summed=(3, 0), lane=1, width=16)
    data = np.arange(2 * 20 * 3 * 4, dtype=np.float32).reshape(2, 20, 3, 4)
    stored = packing(data)
    assert stored.shape == packing.type(TensorType(F32, data.shape)).shape == (3, 2, 4, 2, 16)
    for b, c, k, m in ((0, 0, 0, 0), (2, 19, 3, 1), (1, 16, 2, 0)):
        assert stored[b, c // 16, k, m, c % 16] == data[m, c, b, k]


@pytest.mark.parametrize(("inner", "groups"), [(1, 1), (6, 3), (7, 4)])
def test_steps_of_bfloats_stand_in_pairs(inner: int, groups: int) -> None:
    (weight,) = lower_module(product(4, inner, 40, BF16), pack=PanelSizes()).weights
    assert weight.packing is not None and weight.packing.group == 2 and weight.type.shape == (1, groups, 48, 2)
    data = np.arange(inner * 40).reshape(inner, 40).astype(BF16.numpy)
    stored = weight.store(data)
    assert stored.shape == weight.type.shape and stored.flags.c_contiguous
    together = stored[0].transpose(0, 2, 1).reshape(2 * groups, 48)
    assert np.array_equal(together[:inner, :40], data)
    assert not together[inner:].any() and not together[:, 40:].any()


def test_groups_are_of_the_last_summed_axis() -> None:
    packing = Packing(batch=(), summed=(2, 0), lane=1, width=16, group=4)
    data = np.arange(6 * 20 * 3, dtype=np.int8).reshape(6, 20, 3)
    stored = packing(data)
    assert stored.shape == packing.type(TensorType(F32, data.shape)).shape == (2, 3, 2, 16, 4)
    for c, k, m in ((0, 0, 0), (19, 2, 5), (16, 1, 3)):
        assert stored[c // 16, k, m // 4, c % 16, m % 4] == data[m, c, k]


@pytest.mark.parametrize("columns", [1, 7])
def test_few_columns_stay_as_they_are(columns: int) -> None:
    (weight,) = lower_module(product(4, 5, columns), pack=PanelSizes()).weights
    assert weight.packing is None and weight.type.shape == (5, columns)


def test_nothing_is_packed_unless_asked_for() -> None:
    (weight,) = lower_module(product(4, 5, 48)).weights
    assert weight.packing is None


def test_other_readers_of_a_packed_weight_read_it_unpacked() -> None:
    module = product(3, 5, 40, again=True)
    packings = [weight.packing is None for weight in lower_module(module, pack=PanelSizes()).weights]
    assert sorted(packings) == [False, True]
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((3, 5), (5, 40)))

    def load(parameter: Parameter) -> Array:
        return w

    y, z = build_functions(module, level=2, load=load)["f"]([x])
    assert np.allclose(y, x @ w, rtol=1e-5, atol=1e-6) and np.allclose(z, np.exp(w), rtol=1e-6)


def test_a_view_of_a_weight_is_packed_as_it_is_seen() -> None:
    x, w = Value("x", TensorType(F32, (4, 6))), Value("w", TensorType(F32, (2, 3, 40)))
    b = Builder(OPERATORS)
    b.nodes.append(Node("parameter", (), (w,), (("name", "w"),)))
    result = b.matmul(x, b.reshape(w, shape=(6, 40)))
    module = Module("m", (), (Parameter("w", w.type),), (Function("f", (x,), tuple(b.nodes), (result,), ("y",)),))
    (weight,) = lower_module(module, pack=PanelSizes()).weights
    data = np.arange(240, dtype=np.float32).reshape(2, 3, 40)
    stored = weight.store(data)
    assert stored.shape == weight.type.shape == (1, 6, 48)
    assert np.array_equal(stored[0, :, :40], data.reshape(6, 40))


def test_a_weight_is_stored_once_for_each_way_to_read_it() -> None:
    """Of one parameter, each shape and each order of elements is stored by itself; one that is read twice is not."""
    w = Value("w", TensorType(F32, (48, 2, 48)))
    b = Builder(OPERATORS)
    b.nodes.append(Node("parameter", (), (w,), (("name", "w"),)))
    x, y = Value("x", TensorType(F32, (3, 48))), Value("y", TensorType(F32, (3, 96)))
    matrices = {
        "tall": b.reshape(w, shape=(96, 48)),
        "wide": b.reshape(w, shape=(48, 96)),
        "turned": b.matrix_transpose(b.reshape(w, shape=(96, 48))),
        "wide again": b.reshape(w, shape=(48, 96)),
    }
    left = {"tall": y, "wide": x, "turned": x, "wide again": x}
    results = [b.matmul(left[name], matrix) for name, matrix in matrices.items()]
    results += [b.exp(w), b.exp(b.reshape(w, shape=(48, 96)))]
    names = tuple(f"r{i}" for i in range(len(results)))
    module = Module("m", (), (Parameter("w", w.type),), (Function("f", (x, y), tuple(b.nodes), tuple(results), names),))
    rng = np.random.default_rng(0)
    shapes = ((48, 2, 48), (3, 48), (3, 96))
    data, rows, long_rows = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    wide, tall = data.reshape(48, 96), data.reshape(96, 48)
    made = build_functions(module, level=2, load=lambda parameter: data)["f"]([rows, long_rows])
    expected = [long_rows @ tall, rows @ wide, rows @ tall.T, rows @ wide, np.exp(data), np.exp(wide)]
    for actual, wanted in zip(made, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-4)
    ways = [(weight.packing, weight.seen.shape) for weight in lower_module(module, pack=PanelSizes()).weights]
    assert len(ways) == len(set(ways)) == 3, "wide, tall, and as it is"


def test_constants_of_equal_bytes_are_kept_apart() -> None:
    """Bytes may be the same under another dtype or shape."""
    bits = np.arange(64, dtype=np.int32) + 0x3F800000
    arrays = [bits, bits.view(np.float32), bits.reshape(8, 8), bits.view(np.float32).reshape(8, 8)]
    b = Builder(OPERATORS)
    x = Value("x", TensorType(I32, ()))
    constants = [b.apply("constant", (), {"value": Constant(a)})[0] for a in arrays]
    results = [b.add(c, b.cast(x, dtype=c.type.dtype)) for c in constants]
    names = tuple(f"r{i}" for i in range(len(results)))
    module = Module("m", (), (), (Function("f", (x,), tuple(b.nodes), tuple(results), names),))
    made = build_functions(module, level=2)["f"]([np.array(1, np.int32)])
    for actual, array in zip(made, arrays, strict=True):
        assert np.array_equal(actual, array + array.dtype.type(1))


def depthwise(x: DType, kernel: tuple[int, int], channels: int, into: DType) -> Module:
    image = Value("x", TensorType(x, (1, 9, 9, channels)))
    w = Value("w", TensorType(I8 if into is I32 else F32, (*kernel, 1, channels)))
    b = Builder(OPERATORS)
    b.nodes.append(Node("parameter", (), (w,), (("name", "w"),)))
    y = b.conv2d(image, w, groups=channels, layout=LAST, into=into)
    return Module("m", (), (Parameter("w", w.type),), (Function("f", (image,), tuple(b.nodes), (y,), ("y",)),))


@pytest.mark.parametrize(
    ("kernel", "channels", "shape"), [((3, 2), 40, (2, 2, 1, 32, 4)), ((5, 3), 96, (3, 3, 2, 32, 4))]
)
def test_rows_of_windows_of_bytes_stand_in_groups(
    kernel: tuple[int, int], channels: int, shape: tuple[int, ...]
) -> None:
    (weight,) = lower_module(depthwise(U8, kernel, channels, I32), pack=PanelSizes()).weights
    assert weight.packing is not None and weight.type.shape[1:] == shape
    data = np.arange(np.prod(kernel) * channels).reshape(*kernel, 1, channels).astype(np.int8)
    stored = weight.store(data)[0]
    for c, y, x in ((0, 0, 0), (channels - 1, kernel[0] - 1, kernel[1] - 1), (17, 1, 0)):
        assert stored[c // 32, x, y // 4, c % 32, y % 4] == data[y, x, 0, c]


@pytest.mark.parametrize(
    ("kernel", "channels", "into"), [((1, 3), 40, I32), ((3, 3), 7, I32), ((3, 3), 40, F32)], ids=str
)
def test_other_windows_stay_as_they_are(kernel: tuple[int, int], channels: int, into: DType) -> None:
    (weight,) = lower_module(depthwise(U8 if into is I32 else F32, kernel, channels, into), pack=PanelSizes()).weights
    assert weight.packing is None


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
@pytest.mark.parametrize("batched", [0, 1])
@pytest.mark.parametrize("group", [1, 4])
def test_unpacking_inverts_packing(order: tuple[int, ...], batched: int, group: int) -> None:
    *outer, lane = order
    packing = Packing(tuple(outer[:batched]), tuple(outer[batched:]), lane, 16, group)
    data = np.arange(27, dtype=np.float32).reshape(3, 3, 3)
    unpacked = packing.unpacked(packing(data))
    assert np.array_equal(unpacked[:3, :3, :3], data)
    # A tensor under a transpose is packed like the tensor itself, if the axes are counted there.
    turned = data.transpose(1, 2, 0)
    number = (1, 2, 0)
    again = Packing(
        tuple(number.index(a) for a in packing.batch),
        tuple(number.index(a) for a in packing.summed),
        number.index(lane),
        16,
        group,
    )
    assert np.array_equal(again(turned), packing(data))


@pytest.mark.parametrize("sizes", [WIDE, NARROW])
@pytest.mark.parametrize("columns", [64, 100])
@pytest.mark.parametrize("activations", ["", "activations matmul to i8 dynamic"])
@pytest.mark.parametrize("dtype", ["q8[block 32]", "q4[block 32]", "q4[block 32, zero]"])
def test_scales_have_the_panels_of_their_values(dtype: str, activations: str, columns: int, sizes: PanelSizes) -> None:
    text = f"""model f(x: f32[3, 64]) -> f32[3, {columns}] {{
      param weight: f32[{columns}, 64]
      return x @ weight.T
    }}
    quantize f {{ weights "*" to {dtype}; {activations} }}
    """
    module = Build(in_precision(read_model(text.replace("; }", " }")), None)).optimize()
    packings = [weight.packing for weight in lower_module(module, pack=sizes).weights]
    assert len(packings) == 2 + ("zero" in dtype)
    assert len({packing and packing.width for packing in packings}) == 1


@pytest.mark.parametrize(
    "made", [None, np.zeros((1, 8, 16)), np.zeros((8, 16), np.float32)], ids=["none", "f64", "flat"]
)
def test_a_packing_that_gives_another_type_is_named(made: Array | None, monkeypatch: pytest.MonkeyPatch) -> None:
    (weight,) = lower_module(product(2, 8, 16), pack=WIDE).weights
    assert weight.store(np.ones((8, 16), np.float32)).shape == (1, 8, 16)
    monkeypatch.setattr(Packing, "__call__", lambda self, data: made)
    with pytest.raises(PackingError, match=r"`w\..*` cannot be packed: it gives .*, where f32\[1, 8, 16\] is read"):
        weight.store(np.ones((8, 16), np.float32))
