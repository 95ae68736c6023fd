"""The schedules of structured ops on a GPU: which op has which, their numbers at odd sizes, and their registers."""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import nacre
import numpy as np
import pytest
from assembler import check_assembly, ptx_of
from fake_driver import Machine, kernels_of
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets

MODELS = {
    "contraction": "model m(x: f32[B, 70], w: f32[130, 70]) -> f32[B, 130] { return x @ w.T }",
    "batched": "model m(x: f32[3, B, 37], w: f32[3, 37, 65]) -> f32[3, B, 65] { return x @ w }",
    "convolution": "model m(x: f32[B, 3, 9, 9], w: f32[17, 3, 3, 3]) -> f32[B, 17, 7, 7] { return conv2d(x, w) }",
    "f16": "model m(x: f16[B, 70], w: f16[130, 70]) -> f16[B, 130] { return x @ w.T }",
    "bf16": "model m(x: bf16[B, 64], w: bf16[64, 96]) -> bf16[B, 96] { return x @ w }",
    "few rows": "model m(x: bf16[40, B], w: bf16[72, B]) -> bf16[40, 72] { return x @ w.T }",
    "rows": "model m(x: f32[B, 45]) -> f32[B] { return sum(x, axis=1) }",
    "f64": "model m(x: f64[B, 45]) -> f64[B] { return max(x, axis=1) }",
    "weights": "model m(x: f16[3, 512], w: f16[B, 512]) -> f16[3, B] { return x @ w.T }",
    "few": "model m(x: f16[5, B], w: f16[B, 200], b: f16[200]) -> f16[5, 200] { return relu(x @ w + b) }",
    "words": "model m(x: f32[5, B], w: f32[B, 200], b: f32[200]) -> f32[5, 200] { return relu(x @ w + b) }",
    "one": "model m(x: bf16[1, B], w: bf16[B, 200], b: bf16[200]) -> bf16[1, 200] { return relu(x @ w + b) }",
    "heads": """model m(x: f16[2, 3, B], w: f16[2, 3, B, 24]) -> f16[2, 3, 24] {
        return einsum("bhs,bhsd->bhd", x, w)
    }""",
    "wide": "model m(x: f32[B, 2, 130]) -> f32[B] { return sum(x, axis=(1, 2)) }",
    "whole": "model m(x: i32[B, 45]) -> i32 { return sum(x, axis=(0, 1)) }",
    "columns": "model m(x: f32[45, B]) -> f32[B] { return sum(x * x, axis=0) }",
    "bias": "model m(x: f32[B, 70], w: f32[70, 33], b: f32[33]) -> f32[B, 33] { return relu(x @ w + b) + x[:, 3:36] }",
    "channels": """model m(x: f16[B, 16, 5, 5], w: f16[17, 16, 3, 3], b: f16[17]) -> f16[B, 17, 3, 3] {
        return relu(conv2d(x, w, b))
    }""",
    "padded": """model m(x: f16[B, 5, 6, 16], w: f16[3, 3, 16, 24], b: f16[24]) -> f16[B, 5, 6, 24] {
        return relu(conv2d(x, w, b, padding=1, layout="channels_last"))
    }""",
    "sides": """model m(x: f32[2, B, 5, 16], w: f32[3, 3, 16, 17]) -> f32[2, B, 4, 17] {
        return conv2d(x, w, padding=(1, 1, 1, 0), layout="channels_last")
    }""",
    "greatest": """model m(x: f32[2, B, 6, 8]) -> f32[2, B, 6, 8] {
        return max_pool2d(x, kernel=3, padding=1, stride=1, layout="channels_last")
    }""",
    "mean": "model m(x: f32[B, 45], b: f32[B]) -> f32[B] { return sum(x, axis=1) * b }",
    "shares": "model m(x: f32[B, 3, 45]) -> f32[B, 3, 45] { return softmax(x) }",
    "long shares": "model m(x: f32[B, 2500]) -> f32[B, 2500] { return softmax(x) }",
    "norm": """model m(x: bf16[B, 3, 45], w: bf16[45], b: bf16[45]) -> bf16[B, 3, 45] {
        return layer_norm(x, w, b)
    }""",
    "root": "model m(x: f16[B, 2500], w: f16[2500]) -> f16[B, 2500] { return rms_norm(x, w) }",
    "narrow": "model m(x: bf16[B, 45]) -> bf16[B, 45] { return softmax(x) }",
    "average": "model m(x: bf16[B, 45]) -> bf16[B] { return mean(x, axis=1) }",
    "vectors": "model m(x: f32[B, 36], y: f32[36]) -> f32[B, 36] { return relu(x) + y }",
    "lines": "model m(x: f16[7, B], y: f16[B]) -> f32[7, B] { return cast(relu(x) + y, f32) }",
    "line": "model m(x: f32[5, B], y: f32[5, B]) -> f32[5, B] { return relu(x) + y }",
    "odd": "model m(x: f32[B, 37], y: f32[37]) -> f32[B, 37] { return relu(x) + y }",
    "picked": "model m(x: f32[9, B]) -> f32[5, B] { return gather(x, tensor([8, 0, 3, 3, 1], i64)) }",
    "open rows": "model m(x: f16[3, 37, B]) -> f32[3] { return sum(cast(x, f32), axis=(1, 2)) }",
    "depthwise": """model m(x: f16[B, 7, 6, 20], w: f16[3, 3, 1, 20], b: f16[20]) -> f16[B, 4, 3, 20] {
        return relu(conv2d(x, w, b, stride=2, padding=1, groups=20, layout="channels_last"))
    }""",
    "turned": "model m(x: f16[3, B, 76], y: f16[B]) -> f16[3, 76, B] { return relu(transpose(x, (0, 2, 1))) + y }",
    "turned rows": "model m(x: f32[B, 68, 3, 20]) -> f32[B, 3, 20, 68] { return transpose(x, (0, 2, 3, 1)) }",
    "turned bytes": "model m(x: i8[72, B]) -> i8[B, 72] { return x.T }",
}
SCHEDULES = {
    **dict.fromkeys(("batched", "bias"), "contraction of 256 threads"),
    **dict.fromkeys(("contraction", "convolution", "sides"), "contraction of 256 threads, 2 blocks"),
    **dict.fromkeys(("f16", "bf16", "few", "few rows", "channels", "padded"), "tensor cores of 128 threads, 3 blocks"),
    **dict.fromkeys(("rows", "f64", "mean", "weights", "wide"), "row per warp of 256 threads"),
    "whole": "row in parts of 256 threads",
    **dict.fromkeys(("words", "one", "heads"), "few rows of 256 threads"),
    "columns": "plain of 256 threads: elements of one reduction are not neighbours in memory",
    **dict.fromkeys(("greatest", "depthwise"), "windows of 256 threads"),
    **dict.fromkeys(("turned", "turned rows", "turned bytes"), "transpose of 256 threads"),
    **dict.fromkeys(("shares", "norm", "narrow"), "rows per warp of 256 threads"),
    **dict.fromkeys(("long shares", "root"), "rows of 256 threads"),
    "average": "row per warp of 256 threads",
    **dict.fromkeys(("vectors", "lines", "line", "odd", "picked"), "vectors of 256 threads"),
    "open rows": "row per warp or block in parts of 256 threads",
}
TOLERANCES = {
    "f16": 1e-3,
    "few": 2e-3,
    "heads": 1e-3,
    "one": 1.6e-2,
    "weights": 1e-3,
    "bf16": 8e-3,
    "few rows": 8e-3,
    "channels": 2e-3,
    "padded": 2e-3,
    "norm": 4e-3,
    "root": 1e-3,
    "narrow": 4e-3,
    "average": 4e-3,
    "depthwise": 2e-3,
    "lines": 2e-3,
    "open rows": 1e-3,
    "turned": 1e-3,
}
"""Half of a step between results, which are rounded once from sums in f32; sums and biased sums are rounded both."""
UNALIGNED = ("f16", "channels")
ALONE = (
    *("shares", "long shares", "bias", "padded", "sides", "greatest", "channels", "mean", "f16", "weights", "few"),
    *("norm", "root", "narrow", "average", "depthwise", "turned", "turned rows", "turned bytes"),
)
"""Models of one launch: elementwise ops are computed where the sums are, padding is not stored, and neither are tensors
that only have a wider dtype."""


def reference(name: str, *arrays: np.ndarray) -> np.ndarray:
    """The results in f64."""
    x, *others = (array.astype(np.float64) for array in arrays)
    if name in ("convolution", "channels"):
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
        sums = np.einsum("bcijkl,ockl->boij", windows, others[0])
        return sums if name == "convolution" else np.maximum(sums + others[1][:, None, None], 0)
    if name in ("contraction", "f16", "few rows", "weights"):
        return x @ others[0].T
    if name in ("batched", "bf16"):
        return x @ others[0]
    if name == "padded":
        x = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
        return np.maximum(np.einsum("bijckl,klco->bijo", windows, others[0]) + others[1], 0)
    if name in ("sides", "greatest") and not x.size:
        return np.zeros((2, 0, 4, 17) if name == "sides" else x.shape)
    if name == "sides":
        x = np.pad(x, ((0, 0), (1, 1), (1, 0), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
        return np.asarray(np.einsum("bijckl,klco->bijo", windows, others[0]))
    if name == "greatest":
        x = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
        return np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2)).max((-1, -2))
    if name == "heads":
        return np.asarray(np.einsum("bhs,bhsd->bhd", x, others[0]))
    if name in ("few", "words", "one"):
        return np.maximum(x @ others[0] + others[1], 0)
    if name == "bias":
        return np.maximum(x @ others[0] + others[1], 0) + x[:, 3:36]
    if name == "mean":
        return np.asarray(x.sum(-1) * others[0])
    if name == "norm":
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * others[0] + others[1]
    if name == "root":
        return np.asarray(x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * others[0])
    if name == "average":
        return np.asarray(x.mean(-1))
    if name.endswith("shares") or name == "narrow":
        powers = np.exp(x - x.max(-1, keepdims=True))
        return np.asarray(powers / powers.sum(-1, keepdims=True))
    if name in ("vectors", "lines", "line", "odd"):
        return np.maximum(x, 0) + others[0]
    if name == "depthwise":
        x = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))[:, ::2, ::2]
        return np.maximum(np.einsum("bijckl,klc->bijc", windows, others[0][:, :, 0]) + others[1], 0)
    if name == "turned":
        return np.maximum(x.swapaxes(1, 2), 0) + others[0]
    if name in ("turned rows", "turned bytes"):
        return x.T if name == "turned bytes" else x.transpose(0, 2, 3, 1)
    if name == "f64":
        return np.asarray(x.max(-1))
    if name == "picked":
        return x[[8, 0, 3, 3, 1]]
    if name in ("wide", "open rows"):
        return np.asarray(x.sum((1, 2)))
    return np.asarray({"rows": x.sum(-1), "whole": x.sum(), "columns": (x * x).sum(0)}[name])


def entry_of(name: str) -> str:
    return f"m_{name.replace(' ', '_')}"


def arrays_of(model: nacre.Model, name: str, batch: int) -> list[np.ndarray]:
    rng = np.random.default_rng(batch)
    types = {
        "bf16": ml_dtypes.bfloat16,
        "f16": np.float16,
        "f32": np.float32,
        "f64": np.float64,
        "i32": np.int32,
        "i8": np.int8,
    }
    made = []
    (entry,) = (entry for entry in model.describe()["entries"] if entry["name"] == entry_of(name))
    for argument in entry["arguments"]:
        shape = [batch if size == "B" else size for size in argument["shape"]]
        made.append((rng.normal(size=shape) * 3).astype(types[argument["dtype"]]))
    return made


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path]:
    """All models in one artifact."""
    path = tmp_path_factory.mktemp("schedules") / "model.so"
    models = [text.replace("model m(", f"model {entry_of(name)}(") for name, text in MODELS.items()]
    build = Build(
        read_model("\n".join(["language 1", "dim B in 0..256", *models, ""])),
        Options(targets=parse_targets("cuda:sm_80")),
    )
    build.run(path)
    return build, path


def texts_of(built: tuple[Build, Path], name: str) -> list[str]:
    """Returns the PTX of a model."""
    symbols = kernels_of(built[0], entry_of(name))
    return [text for text in ptx_of(built[1]) if any(f".entry {symbol}" in text for symbol in symbols)]


with_model = pytest.mark.parametrize("name", MODELS)


@with_model
def test_schedule(built: tuple[Build, Path], name: str) -> None:
    build, _ = built
    assert build.program is not None
    (kernels,) = build.program.kernels.values()
    schedules = [kernels[symbol].report.schedules for symbol in kernels_of(build, entry_of(name))]
    assert SCHEDULES[name] in [schedule for each in schedules for schedule in each]
    if name in ALONE:
        assert len(schedules[-1]) == 1


@with_model
@pytest.mark.parametrize("batch", [1, 0, 3, 64, 67])
def test_numbers(machine: Machine, built: tuple[Build, Path], name: str, batch: int) -> None:
    model = nacre.load(built[1], device="cuda")
    arrays = arrays_of(model, name, batch)
    result = np.asarray(model.entries[entry_of(name)](*arrays)).astype(np.float64)
    assert not machine.error
    expected = reference(name, *arrays)
    scale = np.max(np.abs(expected), initial=1)
    assert np.max(np.abs(result - expected), initial=0) <= TOLERANCES.get(name, 2e-6) * scale


@pytest.mark.parametrize("architecture", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_code_is_assembled_without_spills(built: tuple[Build, Path], assembled: Path, architecture: str) -> None:
    assert all(texts_of(built, name) for name in MODELS)
    check_assembly(built[1], assembled, architecture)


def test_contractions_of_any_size_are_assembled_without_spills(tmp_path: Path, assembled: Path) -> None:
    """Addresses of tiles across the columns, and products of i64, take the most registers."""
    source = "language 1\n" + "".join(f"dim {name} in 0..8192\n" for name in "MNK")
    for dtype in ("f32", "i64"):
        source += f"""
model across_{dtype}(x: {dtype}[M, K], w: {dtype}[N, K]) -> {dtype}[M, N] {{ return x @ w.T }}
model along_{dtype}(x: {dtype}[K, M], w: {dtype}[K, N]) -> {dtype}[M, N] {{ return einsum("km,kn->mn", x, w) }}
"""
    path = tmp_path / "model.so"
    Build(read_model(source), Options(targets=parse_targets("cuda:sm_80"))).run(path)
    assert len(re.findall(r"\.entry", "".join(ptx_of(path)))) == 6
    check_assembly(path, assembled, "sm_80")


FAULTS = (
    (r"bar(rier)?\.sync[^;]*;", ""),
    (r"cp\.async\.wait_group[^;]*;", ""),
    (r"shfl\.sync\.bfly\.b32 (.*), 1, 31, -1;", r"shfl.sync.bfly.b32 \1, 2, 31, -1;"),
    (r"(mma\.sync\S+\s*\{[^}]*\},\s*\{%\w+, )(%\w+), (%\w+)", r"\1\3, \2"),
)


@with_model
@pytest.mark.parametrize(("pattern", "replacement"), FAULTS)
def test_planted_fault_is_found(
    machine: Machine, built: tuple[Build, Path], name: str, pattern: str, replacement: str
) -> None:
    """The tests above can fail: without a barrier, with another lane, with exchanged registers."""
    if not any(re.search(pattern, text) for text in texts_of(built, name)):
        pytest.skip("the schedule has no such instruction")
    if "wait_group" in pattern and name in UNALIGNED:
        pytest.skip("rows that are not aligned are not copied asynchronously")
    machine.plant(pattern, replacement, kernels_of(built[0], entry_of(name)))
    model = nacre.load(built[1], device="cuda")
    # Rows of `few rows` are copied asynchronously where their size is a multiple of 16 bytes.
    arrays = arrays_of(model, name, 72 if "wait_group" in pattern and name == "few rows" else 67)
    try:
        result = np.asarray(model.entries[entry_of(name)](*arrays)).astype(np.float64)
    except nacre.NacreError:
        assert machine.lacks_order, machine.error
        return
    expected = reference(name, *arrays)
    assert np.max(np.abs(result - expected)) > 0.01 * np.max(np.abs(expected))


@pytest.mark.parametrize(
    ("name", "access"),
    [
        *((name, r"ld\.global\.nc\.v4\.b(16|32)") for name in ("lines", "line", "odd", "open rows")),
        ("turned", r"st\.global\.v4\.b16"),
        ("turned bytes", r"ld\.global\.nc\.(v4\.b8|b32)"),
    ],
)
def test_vectors_are_used_where_sizes_are_those_of_a_call(built: tuple[Build, Path], name: str, access: str) -> None:
    (text,) = texts_of(built, name)
    assert re.search(access, text)


@pytest.mark.parametrize(
    ("name", "pattern", "replacement"),
    [
        ("lines", r"(and\.b64 .*), 3;", r"\1, 0;"),
        ("open rows", r"(and\.b64 .*), 7;", r"\1, 0;"),
        ("turned", r"(and\.b64 .*), 3;", r"\1, 0;"),
        ("line", r"st\.global\.b32[^;]*;", ""),
        ("odd", r"st\.global\.b32[^;]*;", ""),
    ],
)
def test_planted_faults_of_odd_rows_are_found(
    machine: Machine, built: tuple[Build, Path], name: str, pattern: str, replacement: str
) -> None:
    """The numbers are wrong where a kernel takes odd rows for vectors, or forgets the last elements."""
    machine.plant(pattern, replacement, kernels_of(built[0], entry_of(name)))
    model = nacre.load(built[1], device="cuda")
    arrays = arrays_of(model, name, 67)
    try:
        result = np.asarray(model.entries[entry_of(name)](*arrays))
    except nacre.NacreError:
        assert machine.lacks_order or "aligned" in machine.error, machine.error
        return
    expected = reference(name, *arrays)
    assert np.max(np.abs(result - expected)) > 0.01 * np.max(np.abs(expected))
