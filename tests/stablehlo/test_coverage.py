"""Operations of StableHLO: the dialect is covered as listed, and JAX functions that use them agree with JAX."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from interpreting import run
from nacre.compiler.base.mlir import PACKAGE, ir
from nacre.compiler.readers.stablehlo.convert import operation_names
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.interpreter import Interpreter

MISSING = Path(__file__).with_name("missing.txt")
"""The operations of the dialect without a converter, each with the reason, after a line with the count."""
PAGE = Path(__file__).parents[2] / "compiler" / "docs" / "stablehlo.md"


def listed_operations() -> tuple[set[str], set[str], str]:
    """Returns the operations of StableHLO with a converter, those without, and the line with the count."""
    first, *lines = MISSING.read_text(encoding="utf-8").splitlines()
    supported = {name for name in operation_names() if "." not in name} | {"return"}
    return supported, {line.split(": ", 1)[0] for line in lines}, first


def test_the_dialect_is_covered_as_listed() -> None:
    """The bindings of MLIR know each name; JAX's bindings list all names."""
    supported, missing, first = listed_operations()
    context = ir.Context()
    import_module(f"{PACKAGE}._mlir_libs._stablehlo").register_dialect(context)
    assert not [name for name in supported | missing if not context.is_registered_operation(f"stablehlo.{name}")]
    assert not supported & missing
    counts = f"{len(supported)} of {len(supported | missing)} operations of StableHLO are supported"
    assert first == f"{counts}. Missing:" and counts.replace(" of StableHLO", "") in PAGE.read_text(encoding="utf-8")


def test_all_operations_of_the_dialect_are_listed() -> None:
    pytest.importorskip("jaxlib", reason="JAX is not installed")
    module = import_module("jaxlib.mlir.dialects._stablehlo_ops_gen")
    names = {getattr(each, "OPERATION_NAME", "") for each in vars(module).values()} - {""}
    supported, missing, _ = listed_operations()
    assert {name.removeprefix("stablehlo.") for name in names} == supported | missing


# --- operations that JAX does not write for CPUs ---


def test_linear_algebra_and_batch_normalization(tmp_path: Path) -> None:
    text = """func.func public @main(%a: tensor<3x3xf64>, %b: tensor<2x3xf64>, %x: tensor<4x2xf64>, %s: tensor<2xf64>) -> (tensor<3x3xf64>, tensor<2x3xf64>, tensor<4x2xf64>, tensor<4x2xf64>, tensor<2xf64>, tensor<2xf64>) {
      %u = stablehlo.cholesky %a, lower = false : tensor<3x3xf64>
      %t = "stablehlo.triangular_solve"(%u, %b) {left_side = false, lower = false, unit_diagonal = false, transpose_a = #stablehlo<transpose TRANSPOSE>} : (tensor<3x3xf64>, tensor<2x3xf64>) -> tensor<2x3xf64>
      %n, %m, %v = "stablehlo.batch_norm_training"(%x, %s, %s) {epsilon = 1.0e-3 : f32, feature_index = 1 : i64} : (tensor<4x2xf64>, tensor<2xf64>, tensor<2xf64>) -> (tensor<4x2xf64>, tensor<2xf64>, tensor<2xf64>)
      %i = "stablehlo.batch_norm_inference"(%x, %s, %s, %m, %v) {epsilon = 1.0e-3 : f32, feature_index = 1 : i64} : (tensor<4x2xf64>, tensor<2xf64>, tensor<2xf64>, tensor<2xf64>, tensor<2xf64>) -> tensor<4x2xf64>
      %dx, %ds, %do = "stablehlo.batch_norm_grad"(%x, %s, %m, %v, %n) {epsilon = 1.0e-3 : f32, feature_index = 1 : i64} : (tensor<4x2xf64>, tensor<2xf64>, tensor<2xf64>, tensor<2xf64>, tensor<4x2xf64>) -> (tensor<4x2xf64>, tensor<2xf64>, tensor<2xf64>)
      return %u, %t, %i, %dx, %ds, %do : tensor<3x3xf64>, tensor<2x3xf64>, tensor<4x2xf64>, tensor<4x2xf64>, tensor<2xf64>, tensor<2xf64>
    }"""  # noqa: E501  # lines of MLIR
    rng = np.random.default_rng(0)
    root = rng.standard_normal((3, 3))
    a, b, x, s = root @ root.T + np.eye(3), rng.standard_normal((2, 3)), rng.standard_normal((4, 2)), np.array([2, 0.5])
    upper, solved, normal, dx, ds, do = run(tmp_path, text, a, b, x, s)
    np.testing.assert_allclose(upper, np.linalg.cholesky(a).T, atol=1e-12)
    np.testing.assert_allclose(solved @ upper.T, b, atol=1e-12)
    eps = float(np.float32(1e-3))

    def normalized(x: Any, s: Any, o: Any) -> Any:
        return (x - x.mean(0)) / np.sqrt(x.var(0) + eps) * s + o

    expected = normalized(x, s, s)
    np.testing.assert_allclose(normal, expected, atol=1e-9)
    # The gradient of sum(y * dy) with dy = y, by central differences.
    step = 1e-6
    for found, place in ((dx, 0), (ds, 1), (do, 2)):
        operands = [x, s, s]
        for index in np.ndindex(found.shape):
            moved = [operands[place].copy() for _ in range(2)]
            moved[0][index] += step
            moved[1][index] -= step
            sums = [(normalized(*operands[:place], m, *operands[place + 1 :]) * expected).sum() for m in moved]
            assert abs((sums[0] - sums[1]) / (2 * step) - found[index]) < 1e-6


def test_older_forms(tmp_path: Path) -> None:
    text = """func.func public @main(%x: tensor<2x3xf32>, %i: tensor<4xi32>) -> (tensor<4x2x3xf32>, tensor<2x4xf32>, tensor<2x2xf32>, tensor<3x2xf32>, tensor<5x3xf32>, tensor<ui32>) {
      %b = stablehlo.broadcast %x, sizes = [4] : (tensor<2x3xf32>) -> tensor<4x2x3xf32>
      %s = "stablehlo.torch_index_select"(%x, %i) {dim = 1 : i64, batch_dims = 0 : i64} : (tensor<2x3xf32>, tensor<4xi32>) -> tensor<2x4xf32>
      %e = "stablehlo.einsum"(%x, %x) {einsum_config = "ab,cb->ac"} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x2xf32>
      %u = "stablehlo.unary_einsum"(%x) {einsum_config = "ab->ba"} : (tensor<2x3xf32>) -> tensor<3x2xf32>
      %v = stablehlo.constant dense<9.0> : tensor<f32>
      %l = stablehlo.constant dense<[1, 0]> : tensor<2xi64>
      %p = stablehlo.dynamic_pad %x, %v, %l, %l, %l : (tensor<2x3xf32>, tensor<f32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<5x3xf32>
      %d = stablehlo.replica_id : tensor<ui32>
      return %b, %s, %e, %u, %p, %d : tensor<4x2x3xf32>, tensor<2x4xf32>, tensor<2x2xf32>, tensor<3x2xf32>, tensor<5x3xf32>, tensor<ui32>
    }"""  # noqa: E501  # lines of MLIR
    x, i = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([2, 0, 1, 1], np.int32)
    padded = np.full((5, 3), 9, np.float32)
    padded[1:4:2] = x
    expected = [np.broadcast_to(x, (4, 2, 3)), x[:, i], x @ x.T, x.T, padded, np.uint32(0)]
    for found, wanted in zip(run(tmp_path, text, x, i), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_tuples_and_tokens_leave_nothing(tmp_path: Path) -> None:
    text = """func.func private @swapped(%p: tuple<tensor<2xf32>, tensor<3xf32>>, %k: !stablehlo.token) -> (tuple<tensor<3xf32>, tensor<2xf32>>, !stablehlo.token) {
      %a = stablehlo.get_tuple_element %p[0] : (tuple<tensor<2xf32>, tensor<3xf32>>) -> tensor<2xf32>
      %b = stablehlo.get_tuple_element %p[1] : (tuple<tensor<2xf32>, tensor<3xf32>>) -> tensor<3xf32>
      %t = stablehlo.tuple %b, %a : tuple<tensor<3xf32>, tensor<2xf32>>
      %l = stablehlo.after_all %k, %k : !stablehlo.token
      return %t, %l : tuple<tensor<3xf32>, tensor<2xf32>>, !stablehlo.token
    }
    func.func public @main(%x: tensor<2xf32>, %y: tensor<3xf32>) -> (tensor<3xf32>, tensor<2xf32>) {
      %p = stablehlo.tuple %x, %y : tuple<tensor<2xf32>, tensor<3xf32>>
      %k = stablehlo.create_token : !stablehlo.token
      %b = stablehlo.optimization_barrier %k : !stablehlo.token
      %s:2 = func.call @swapped(%p, %b) : (tuple<tensor<2xf32>, tensor<3xf32>>, !stablehlo.token) -> (tuple<tensor<3xf32>, tensor<2xf32>>, !stablehlo.token)
      %c = stablehlo.get_tuple_element %s#0[0] : (tuple<tensor<3xf32>, tensor<2xf32>>) -> tensor<3xf32>
      %d = stablehlo.get_tuple_element %s#0[1] : (tuple<tensor<3xf32>, tensor<2xf32>>) -> tensor<2xf32>
      return %c, %d : tensor<3xf32>, tensor<2xf32>
    }"""  # noqa: E501  # lines of MLIR
    x, y = np.arange(2, dtype=np.float32), np.arange(3, dtype=np.float32)
    for found, wanted in zip(run(tmp_path, text, x, y), (y, x), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_body_of_single_elements(tmp_path: Path) -> None:
    """The second result of the body is the same for all elements."""
    text = """func.func public @main(%x: tensor<2x3xi32>, %y: tensor<2x3xi32>) -> (tensor<2x3xi1>, tensor<2x3xf32>) {
      %m = "stablehlo.map"(%x, %y) <{dimensions = array<i64: 0, 1>}> ({ ^bb0(%a: tensor<i32>, %b: tensor<i32>):
        %two = stablehlo.constant dense<2> : tensor<i32>
        %c = stablehlo.multiply %a, %two : tensor<i32>
        %k = stablehlo.compare LT, %c, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %k : tensor<i1> }) : (tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi1>
      %n = "stablehlo.map"(%x) <{dimensions = array<i64: 0, 1>}> ({ ^bb0(%a: tensor<i32>):
        %half = stablehlo.constant dense<0.5> : tensor<f32>
        stablehlo.return %half : tensor<f32> }) : (tensor<2x3xi32>) -> tensor<2x3xf32>
      return %m, %n : tensor<2x3xi1>, tensor<2x3xf32>
    }"""
    x, y = np.random.default_rng(0).integers(-9, 9, (2, 2, 3)).astype(np.int32)
    found, half = run(tmp_path, text, x, y)
    np.testing.assert_array_equal(found, 2 * x < y)
    np.testing.assert_array_equal(half, np.full((2, 3), 0.5, np.float32))


def test_a_body_of_more_than_single_elements_is_an_error(tmp_path: Path) -> None:
    text = """func.func public @main(%x: tensor<3xf32>) -> tensor<3xf32> {
      %m = "stablehlo.map"(%x) <{dimensions = array<i64: 0>}> ({ ^bb0(%a: tensor<f32>):
        %v = stablehlo.reshape %a : (tensor<f32>) -> tensor<1xf32>
        %s = stablehlo.reshape %v : (tensor<1xf32>) -> tensor<f32>
        stablehlo.return %s : tensor<f32> }) : (tensor<3xf32>) -> tensor<3xf32>
      return %m : tensor<3xf32>
    }"""
    with pytest.raises(DiagnosticError, match="`map` has `reshape` in its body, which is not elementwise"):
        run(tmp_path, text, np.zeros(3, np.float32))


_SUM = """({ ^bb0(%p: tensor<f32>, %q: tensor<f32>): %s = stablehlo.add %p, %q : tensor<f32>
        stablehlo.return %s : tensor<f32> })"""


_GROUPS = (
    ("all_gather", "all_gather_dim = 1 : i64, replica_groups", ""),
    ("all_reduce", "replica_groups", _SUM),
    ("all_to_all", "split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 1 : i64, replica_groups", ""),
    ("reduce_scatter", "scatter_dimension = 1 : i64, replica_groups", _SUM),
    ("cross-replica-sum", "replica_groups", ""),
    ("collective_broadcast", "replica_groups", ""),
    ("collective_permute", "source_target_pairs", ""),
)


def _between_devices(name: str, attributes: str, body: str, devices: str) -> str:
    types = "(tensor<3x4xf32>) -> tensor<3x4xf32>"
    return f"""func.func public @main(%x: tensor<3x4xf32>) -> tensor<3x4xf32> {{
      %a = "stablehlo.{name}"(%x) <{{{attributes} = dense<{devices}xi64>}}> {body} : {types}
      return %a : tensor<3x4xf32>
    }}"""


@pytest.mark.parametrize(("name", "attributes", "body"), _GROUPS)
def test_an_operation_between_devices_on_one(name: str, attributes: str, body: str, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    devices = "0> : tensor<1x2" if name == "collective_permute" else "0> : tensor<1x1"
    np.testing.assert_array_equal(run(tmp_path, _between_devices(name, attributes, body, devices), x)[0], x)


def test_devices_in_no_group(tmp_path: Path) -> None:
    """All devices sum up if no group is given. A device that none sends to has zeros."""
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    for number, devices, expected in (
        (1, "> : tensor<0x0", x),
        (5, "> : tensor<1x0", 0 * x),
        (6, "> : tensor<0x2", 0 * x),
    ):
        found = run(tmp_path, _between_devices(*_GROUPS[number], devices), x)[0]
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("number", "devices"), [(1, "[[0, 1]]> : tensor<1x2"), (6, "[[0, 1]]> : tensor<1x2")])
def test_an_operation_between_several_devices_is_an_error(number: int, devices: str, tmp_path: Path) -> None:
    with pytest.raises(DiagnosticError, match=r"has `\w+` \[\[0, 1\]\]; an artifact runs on one device"):
        run(tmp_path, _between_devices(*_GROUPS[number], devices), np.zeros((3, 4), np.float32))


# --- functions of JAX ---


def _key(bits: Any) -> Any:
    return import_module("jax").random.wrap_key_data(bits)


def _functions() -> dict[str, tuple[Callable[..., Any], list[Any]]]:
    jax = import_module("jax")
    jnp, lax = jax.numpy, jax.lax
    rng = np.random.default_rng(0)
    x, row = rng.standard_normal((5, 4)).astype(np.float32), rng.standard_normal((3, 4)).astype(np.float32)
    places, key = rng.integers(0, 4, (5, 3)).astype(np.int32), np.array([1, 2], np.uint32)
    ties = np.array([[1, 2, 2, np.nan], [3, 3, 1, 1]], np.float32)
    bits = np.array([-1, 0, 1, 12345, -(2**31)], np.int32)
    halves = np.array([0.5, 1.5, -0.5, -2.5, 0.49999997, -0.2, np.nan, np.inf, 8388609], np.float32)
    edges = np.array([0, -0.0, np.inf, -np.inf, np.nan, 65519, 65520, 240, 250, 6e-5, 1e-7], np.float32)
    starts = np.array([0, 1, 3, -5, 9], np.int32)
    octets = rng.integers(-128, 128, (4, 7)).astype(np.int8)
    images = rng.standard_normal((2, 5, 6, 3)).astype(np.float32)
    filters = rng.standard_normal((2, 3, 1, 6)).astype(np.float32)
    branches = [lambda x: x, lambda x: x * 2, jnp.exp]
    scatter = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    gather = lax.GatherDimensionNumbers((1,), (0,), (0,))
    clip, drop = lax.GatherScatterMode.CLIP, lax.GatherScatterMode.FILL_OR_DROP

    def looked_up(x: Any, n: Any) -> Any:
        return lax.gather(x, n[:, None], gather, (1, 4), mode=clip)

    def added(x: Any, n: Any, u: Any) -> Any:
        return lax.scatter_add(x, n[:, None], u, scatter, mode=drop)

    def pooled(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (2, 2), ((1, 1), (0, 0))).sum()

    def least(x: Any) -> Any:
        return (lax.reduce_window(x, jnp.inf, lax.min, (2, 2), (2, 1), "SAME") * jnp.arange(4)).sum()

    def windows(x: Any, n: Any) -> Any:
        """Minima, with an initial value that counts, and of integers."""
        return (
            lax.reduce_window(x, jnp.inf, lax.min, (2, 3), (1, 2), "SAME"),
            lax.reduce_window(x, 0.25, lax.max, (2, 3), (1, 2), "SAME"),
            lax.reduce_window(x, 2.5, lax.add, (2, 3), (1, 2), "SAME"),
            lax.reduce_window(n, jnp.int32(1), lax.min, (2, 2), (1, 1), "SAME"),
            lax.cummin(n, 0, reverse=True),
            lax.cummax(n, 1),
        )

    def segments(x: Any, n: Any) -> Any:
        return jax.ops.segment_max(x, n, 4), jax.ops.segment_min(x, n, 4), jax.ops.segment_prod(x, n, 4)

    def updated(x: Any, n: Any) -> Any:
        flags = jnp.zeros(4, bool)
        return x.at[n].multiply(2), x.at[:, n[:2]].max(0.5), x.at[n].apply(jnp.tanh), flags.at[n].max(n > 0)

    def convolved(x: Any, w: Any) -> Any:
        """A convolution of 3 groups of channels, and of 2 parts of the batch."""
        axes = ("NHWC", "HWIO", "NHWC")
        grouped = lax.conv_general_dilated(x, w, (1, 2), "SAME", dimension_numbers=axes, feature_group_count=3)
        return grouped, lax.conv_general_dilated(
            x[..., :1], w, (1, 1), "VALID", dimension_numbers=axes, batch_group_count=2
        )

    def convolved_gradients(x: Any, w: Any) -> Any:
        return jax.grad(lambda x, w: jnp.sin(convolved(x, w)[0]).sum(), argnums=(0, 1))(x, w)

    def wide(a: Any, b: Any, dtype: Any) -> Any:
        """Products whose sums are in a wider dtype than that of the factors."""
        return (
            lax.dot(a, b, preferred_element_type=dtype),
            jnp.einsum("ij,jk->ki", a, b, preferred_element_type=dtype),
            lax.conv_general_dilated(a[None], b[..., None], (1,), "VALID", preferred_element_type=dtype),
        )

    def widened(a: Any, b: Any, h: Any) -> Any:
        exact = wide(a, b, jnp.int32), wide(a, b, jnp.float32), wide(h, h.T, jnp.float32)
        mixed = lax.dot_general(h, x[:4], (((1,), (0,)), ((), ())), preferred_element_type=jnp.float32)
        return exact, mixed, lax.dot_general(a, b.astype(jnp.uint8), (((1,), (0,)), ((), ())), None, jnp.int32)

    return {
        "argmax": (lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 1), jnp.argmax(x)), [ties]),
        "cumulative": (lambda x: (jnp.cumsum(x, 0), jnp.cumprod(x, 1), lax.cumsum(x, 1, reverse=True)), [x]),
        "cumulative integers": (jnp.cumsum, [places]),
        **{f"switch {n}": (lambda n, x: lax.switch(n, branches, x), [np.int32(n), x]) for n in (-4, 1, 9)},
        "scan": (lambda x: lax.scan(lambda c, a: (c * 0.5 + a, c.sum()), x[0], x), [x]),
        "gather outside": (looked_up, [x, starts]),
        "scatter outside": (added, [x, np.array([1, 7, -1], np.int32), row]),
        "scatter elements": (lambda x, n: x.at[n[:, 0], n[:, 1]].set(0), [x, places]),
        "scatter columns": (lambda x, n: x.at[:, n[0]].add(7), [x, places]),
        "scatter a slice": (lambda x: x.at[1:3, 2].set(7), [x]),
        "batched gather": (lambda x, n: jnp.take_along_axis(x, n, 1), [x, places]),
        "batched windows": (jax.vmap(lambda a, b: lax.dynamic_slice(a, (b,), (2,))), [x, starts]),
        "batched scatter": (jax.vmap(lambda a, b: a.at[b].add(2.0)), [x, places]),
        "dynamic slice": (lambda x, n: lax.dynamic_slice(x, (n, 0), (2, 3)), [x, np.int32(4)]),
        "random": (lambda k: (jax.random.uniform(_key(k), (7,)), jax.random.normal(_key(k), (7,))), [key]),
        "inverse of erf": (lax.erf_inv, [np.array([-1, -0.99999, -0.5, 0, 0.1, 0.9999999, 1, 2], np.float32)]),
        "bits": (lambda a: (lax.population_count(a), lax.clz(a), lax.bitcast_convert_type(a, jnp.float32)), [bits]),
        "bits of bytes": (lambda a: (lax.population_count(a), lax.clz(a)), [np.arange(256).astype(np.uint8)]),
        "logical shift": (lax.shift_right_logical, [bits, np.array([1, 31, 32, 0, 5], np.int32)]),
        "round": (lax.round, [halves]),
        "precision": (lambda x: [lax.reduce_precision(x, *each) for each in ((8, 7), (5, 10), (4, 3))], [edges]),
        "gradient of a pool": (jax.grad(pooled), [x]),
        "gradient of minima": (jax.grad(least), [x]),
        "windows": (windows, [x, places]),
        "segments": (segments, [x, np.array([2, 0, 2, 9, -1], np.int32)]),
        "updates": (updated, [x, np.array([3, 1, 3, 9, -1], np.int32)]),
        "convolutions in groups": (convolved, [images, filters]),
        "gradients of convolutions in groups": (convolved_gradients, [images, filters]),
        "sort by keys": (
            lambda a, b, c: (lax.sort((a, b, c), num_keys=2), lax.sort((b, a), dimension=0), jnp.lexsort((b, a), 0)),
            [places, np.round(x[:, :3]), x[:, 1:]],
        ),
        "rows without repetitions": (lambda a: jnp.unique(a % 2, axis=0, size=6), [places]),
        "wide sums": (widened, [octets, octets.T, jnp.asarray(x, jnp.bfloat16)]),
        "arithmetic shift": (lax.shift_right_arithmetic, [bits.view(np.uint32), np.array([1, 3, 32, 0, 5], np.uint32)]),
        "infinities": (lambda x: (jnp.isinf(x), jnp.isposinf(x), jnp.isneginf(x)), [edges]),
    }


_NAMES = (
    "argmax", "cumulative", "cumulative integers", "switch -4", "switch 1", "switch 9", "scan", "gather outside",
    "scatter outside", "scatter elements", "scatter columns", "scatter a slice", "batched gather", "batched windows",
    "batched scatter", "dynamic slice", "random", "inverse of erf", "bits", "bits of bytes", "logical shift", "round",
    "precision", "gradient of a pool", "gradient of minima", "windows", "segments", "updates", "convolutions in groups",
    "gradients of convolutions in groups", "sort by keys", "rows without repetitions", "wide sums",
    "arithmetic shift", "infinities",
)  # fmt: skip


@pytest.mark.parametrize("name", _NAMES)
def test_a_function_agrees(name: str) -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    functions = _functions()
    assert tuple(functions) == _NAMES
    function, arguments = functions[name]
    source = nacre.from_jax(function, *map(jax.numpy.asarray, arguments))
    (entry,) = source.module.functions
    weights = source.weights[entry.name]
    found = Interpreter(source.module, lambda p: weights.read(p.key)).run(entry, arguments)
    expected = jax.tree.leaves(function(*map(jax.numpy.asarray, arguments)))
    for a, b in zip(found, map(np.asarray, expected), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6)
