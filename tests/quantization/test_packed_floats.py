"""bf16 matrices in 12 bits a number: the planes represent every number, and products read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import nacre
import numpy as np
import numpy.typing as npt
import pytest
from nacre.compiler import packed_weights
from nacre.compiler.checking import read_model
from nacre.compiler.cli.main import run
from nacre.compiler.targets.target import parse_targets
from nacre.dialect.ops.packed_floats import (
    exponents_of,
    packed_escapes,
    packed_places,
    packed_table,
    packed_words,
    unpack,
)
from nacre.passes.quantization.pack_floats import PackFloats
from safetensors.numpy import save_file

Numbers = npt.NDArray[Any]
BF16 = ml_dtypes.bfloat16


def normal(rows: int, steps: int, seed: int = 0) -> Numbers:
    return np.asarray(np.random.default_rng(seed).standard_normal((rows, steps)) * 0.02).astype(BF16)


def every_number() -> Numbers:
    """All bf16, those that are infinite or no number among them: most of them have an exponent without an index."""
    return np.arange(1 << 16, dtype=np.uint16).view(BF16).reshape(64, 1024)


def special() -> Numbers:
    numbers = normal(6, 16)
    numbers[1, :8] = [0.0, -0.0, 1e-40, -1e-40, np.inf, -np.inf, np.nan, -np.nan]
    return numbers


def restored(w: Numbers) -> Numbers:
    """The numbers of the planes of a matrix, and of its list of escapes."""
    _, escapes = exponents_of(w)
    count = escapes + 3
    dense = unpack(packed_table.reference(w), packed_words.reference(w))
    numbers = np.asarray(dense.view(np.uint32) >> 16).astype(np.uint16).view(BF16)
    columns, steps = (packed_places.reference(w, escapes=count, axis=axis)[:escapes] for axis in (0, 1))
    assert not numbers[columns, steps].view(np.uint16).any()
    numbers[columns, steps] = packed_escapes.reference(w, escapes=count)[:escapes]
    return numbers


@pytest.mark.parametrize(
    "w",
    [normal(33, 64), special(), every_number(), np.zeros((3, 8), BF16), normal(1, 8), normal(0, 8), normal(5, 0)],
    ids=["normal", "special", "every", "zeros", "one_row", "no_row", "no_step"],
)
def test_every_number_is_restored(w: Numbers) -> None:
    assert np.array_equal(restored(w).view(np.uint16), w.view(np.uint16))


MODEL = """language 1
dim M in 0..300
model products(x: f32[M, 120], row: f32[1, 120]) -> f32[M, 50], f32[1, 50] {
  param w: bf16[50, 120]
  return x @ cast(w.T, f32), row @ cast(w.T, f32)
}
"""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_weights, "LEAST", 0)
    monkeypatch.setattr(packed_weights, "FEWEST_STEPS", 0)
    monkeypatch.setattr(packed_weights, "NUMBERS_OF_AN_ESCAPE", 100)


@pytest.fixture(params=["x86-64-v3", "x86-64-v4"])
def cpu(request: pytest.FixtureRequest) -> str:
    """A target that packs weights, with vectors of 8 or 16 lanes. A CPU without AVX-512 cannot run the second one."""
    if not parse_targets(request.param)[0].runs_here:
        pytest.skip(f"this CPU is no {request.param}")
    return str(request.param)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    (folder / "products.nacre").write_text(MODEL)
    save_file({"w": normal(50, 120, 1)}, folder / "w.safetensors")
    return folder


def stored_words(model: Any) -> list[str]:
    return [each["name"] for each in model.describe()["weights"]["tensors"] if ".words" in each["name"]]


def test_products_of_packed_weights(cpu: str, tmp_path: Path) -> None:
    """For no, few and many rows. The rows of an identity matrix give the weights themselves."""
    w = normal(50, 120, 1)
    w[3, 5], w[49, 119] = 2.0**-24, -(2.0**-20)
    assert exponents_of(w)[1] > 0
    model = nacre.compile(MODEL, tmp_path / "packed.so", weights={"w": w}, target=cpu)
    assert len(stored_words(model)) == 1
    rng, wide = np.random.default_rng(7), w.astype(np.float32)
    for rows in (0, 1, 9, 131):
        x = rng.standard_normal((rows, 120)).astype(np.float32)
        most = np.abs(x) @ np.abs(wide).T * np.finfo(np.float32).eps * (1 + 0.3 * np.sqrt(120))
        expected = x.astype(np.float64) @ wide.T
        for first in range(max(1, rows)):
            results = model(x, x[first : first + 1] if rows else np.zeros((1, 120), np.float32))
            assert (np.abs(results[0] - expected) <= most).all(), rows
            assert not rows or (np.abs(results[1] - expected[first]) <= most[first]).all(), first
    many = np.asarray(model(x, x[:1])[0])
    for rows in (2, 3, 8, 64, 67):
        assert np.array_equal(np.asarray(model(x[:rows], x[:1])[0]), many[:rows]), rows
    identity = np.eye(120, dtype=np.float32)
    assert np.array_equal(np.asarray(model(identity, identity[:1])[0]).T, wide)


TIED = """language 1
dim M in 1..9
model tied(i: i32[M], x: f32[1, 64]) -> f32[M, 64], f32[1, 32] {
  param w: bf16[32, 64]
  return gather(cast(w, f32), i), x @ cast(w.T, f32)
}
"""


def test_a_weight_that_rows_are_gathered_from_has_one_copy(cpu: str, tmp_path: Path) -> None:
    model = nacre.compile(TIED, tmp_path / "tied.so", weights={"w": normal(32, 64)}, target=cpu)
    assert not stored_words(model)


BATCHES = """language 1
dim M in 0..200
dim K in 0..9
model several(x: f32[M, 64], y: f32[K, 64], z: f32[1, 64]) -> f32[M, 32], f32[K, 32], f32[1, 32] {
  param w: bf16[32, 64]
  w = cast(w.T, f32)
  return x @ w, y @ w, z @ w
}
"""


def test_batches_of_different_sizes_read_plain_weights(cpu: str, tmp_path: Path) -> None:
    """One of them may have a few rows, for which unpacking takes longer than reading."""
    given = {"weights": {"w": normal(32, 64)}, "target": cpu}
    assert not stored_words(nacre.compile(BATCHES, tmp_path / "several.so", **given))
    one = (
        BATCHES.replace("y: f32[K, 64]", "y: f32[M, 64]")
        .replace("f32[K, 32]", "f32[M, 32]")
        .replace("dim K in 0..9", "")
    )
    assert stored_words(nacre.compile(one, tmp_path / "one.so", **given))


def test_other_cpus_read_plain_weights(tmp_path: Path) -> None:
    """They would look up exponents one by one."""
    for target in ("x86-64-v2", "x86-64-v2,x86-64-v3"):
        model = nacre.compile(MODEL, tmp_path / "plain.so", weights={"w": normal(50, 120)}, target=target)
        assert not stored_words(model)


def test_short_products_in_narrow_vectors_read_plain_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    passes, module = [PackFloats()], read_model(MODEL).module
    monkeypatch.setattr(packed_weights, "FEWEST_STEPS", 120)
    assert packed_weights.packable(passes, module, parse_targets("x86-64-v3,x86-64-v4"))
    monkeypatch.setattr(packed_weights, "FEWEST_STEPS", 121)
    assert not packed_weights.packable(passes, module, parse_targets("x86-64-v3,x86-64-v4"))
    assert packed_weights.packable(passes, module, parse_targets("x86-64-v4"))


@pytest.mark.parametrize(("target", "shuffle"), [("x86-64-v3", "avx2.pshuf.b"), ("x86-64-v4", "avx512.permvar.hi")])
def test_vectors_of_exponents_are_looked_up(target: str, shuffle: str, files: Path, tmp_path: Path) -> None:
    given = [str(files / "products.nacre"), "--checkpoint", str(files / "w.safetensors"), "--target", target]
    assert run(["compile", *given, "-o", str(tmp_path / "m.so"), "--dump-dir", str(tmp_path)]) == 0
    (tiled,) = tmp_path.glob("*-tiled.mlir")
    of_products = [each for each in tiled.read_text().split("func.func ") if shuffle in each]
    assert len(of_products) == 2


def test_a_block_has_a_group_of_steps_at_least() -> None:
    with pytest.raises(ValueError, match="at least 32 bytes"):
        PackFloats(column_bytes=31)
    assert PackFloats(column_bytes=32).column_bytes == 32


def test_a_build_tells_which_weights_are_packed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "products.nacre").write_text(MODEL)
    save_file({"w": normal(50, 120, 1)}, tmp_path / "w.safetensors")
    given = [str(tmp_path / "products.nacre"), "--checkpoint", str(tmp_path / "w.safetensors"), "-o"]
    assert run(["compile", *given, str(tmp_path / "packed.so"), "--target", "x86-64-v4"]) == 0
    note = "note: 1 weight in bf16 is stored in 12 bits a number, with unchanged values: 9 kB instead of 12 kB"
    assert note in " ".join(capsys.readouterr().err.split())


def test_outputs_without_weights_depend_on_their_data(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the data is absent, a note tells it."""
    monkeypatch.chdir(files)
    given = ["products.nacre", "--target", "x86-64-v4", "--emit", "graph", "-o", "made.graph"]
    assert run(["compile", *given, "--checkpoint", "w.safetensors"]) == 0
    assert "1 weight in bf16 is stored in 12 bits" in " ".join(capsys.readouterr().err.split())
    assert "packed_words" in Path("made.graph").read_text()
    assert run(["compile", *given]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert "note: 1 weight in bf16 could be stored in 12 bits a number; this depends on the data" in told
    assert "packed_words" not in Path("made.graph").read_text()


OF_A_MODEL = {
    "compile --check-passes": ("compile", "--check-passes", "-o", "checked.so"),
    "bisect": ("bisect", "--at", "M=9"),
    "diff": ("diff", "--at", "M=9"),
}


@pytest.mark.parametrize("command", OF_A_MODEL.values(), ids=OF_A_MODEL)
def test_commands_compare_packed_products(
    files: Path, cpu: str, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(files)
    given = ["products.nacre", "--checkpoint", "w.safetensors", "--target", cpu]
    assert run([command[0], *given, *command[1:]]) == 0, capsys.readouterr()


@pytest.mark.parametrize("stage", ["pack-floats", "linalg"])
def test_an_artifact_of_a_dump_after_packing(
    files: Path, cpu: str, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    options = ["--checkpoint", "w.safetensors", "--target", cpu, "-o"]
    assert run(["compile", "products.nacre", *options, "first.so", "--dump-dir", "dumps"]) == 0
    (text,) = Path("dumps").glob(f"*-{stage}.*")
    assert run(["compile", str(text), "--from", stage, *options, "again.so"]) == 0
    x = np.random.default_rng(0).standard_normal((9, 120)).astype(np.float32)
    first, again = (nacre.load(path) for path in ("first.so", "again.so"))
    assert stored_words(first) and stored_words(again)
    for one, other in zip(first(x, x[:1]), again(x, x[:1]), strict=True):
        assert np.array_equal(np.asarray(one), np.asarray(other))


PAIRS = "x86-64-v4+avx512bf16"


@pytest.mark.skipif(not parse_targets(PAIRS)[0].runs_here, reason="this CPU has no AVX-512 BF16")
def test_rows_in_bf16_are_multiplied_in_pairs(tmp_path: Path) -> None:
    """For no, few and many rows, whose results do not depend on the other rows. The rows of an identity matrix give the
    weights themselves."""
    w = normal(18, 120, 1)
    w[3, 5], w[17, 119] = 2.0**-24, -(2.0**-20)
    options: dict[str, Any] = {"weights": {"w": w}, "target": PAIRS, "precision": "bf16", "dump_dir": tmp_path}
    model = nacre.compile(MODEL.replace("50", "18"), tmp_path / "pairs.so", **options)
    assert len(stored_words(model)) == 1
    (tiled,) = tmp_path.glob("*-tiled.mlir")
    assert "dpbf16ps" in tiled.read_text() and "vector.fma" not in tiled.read_text()
    wide = w.astype(np.float32)
    x = np.random.default_rng(7).standard_normal((291, 120)).astype(BF16).astype(np.float32)  # more than share a block
    most = np.abs(x) @ np.abs(wide).T * np.finfo(np.float32).eps * (1 + 0.3 * np.sqrt(120))
    many, one = (np.asarray(result) for result in model(x, x[:1]))
    expected = x.astype(np.float64) @ wide.T
    assert (np.abs(many - expected) <= most).all() and (np.abs(one - expected[:1]) <= most[:1]).all()
    for rows in (0, 1, 2, 3, 8, 9, 64, 67):
        assert np.array_equal(np.asarray(model(x[:rows], x[:1])[0]), many[:rows]), rows
    identity = np.eye(120, dtype=np.float32)
    assert np.array_equal(np.asarray(model(identity, identity[:1])[0]).T, wide)


TWO = """language 1
dim M in 1..300
model many(x: f32[M, 256]) -> f32[M, 48] {
  param w: bf16[48, 256]
  return x @ cast(w.T, f32)
}
model one(x: f32[1, 256]) -> f32[1, 48] {
  param w: bf16[48, 256]
  return x @ cast(w.T, f32)
}
quantize many { activations matmul to bf16 }
"""


@pytest.mark.skipif(not parse_targets(PAIRS)[0].runs_here, reason="this CPU has no AVX-512 BF16")
def test_products_in_two_precisions_read_one_copy(tmp_path: Path) -> None:
    """The blocks of steps of a weight are equal for both."""
    model = nacre.compile(TWO, tmp_path / "two.so", weights={"w": normal(48, 256)}, target=PAIRS)
    assert len(stored_words(model)) == 1


@pytest.mark.parametrize(
    ("target", "bfloats"),
    [
        *((PAIRS, True), ("x86-64-v3", False), ("x86-64-v4", False), ("x86-64-v3,x86-64-v4", False)),
        *(("sapphirerapids", False), ("znver4", True)),
    ],
)
def test_cpus_that_multiply_packed_pairs(target: str, bfloats: bool) -> None:
    """Others multiply in f32 what they unpack, or tiles of a plain matrix."""
    passes, targets, w = [PackFloats()], parse_targets(target), normal(50, 120, 1)
    parameters = packed_weights.packable(passes, read_model(MODEL).module, targets)
    (found,) = packed_weights.with_packed_floats(passes, parameters, targets, lambda _: w)
    assert isinstance(found, PackFloats) and (found.bfloats, len(found.escapes)) == (bfloats, 1)
    assert found.column_bytes == (1024 if target == "x86-64-v3" else 512)
