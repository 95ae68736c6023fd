"""`nacre.compile`, `nacre.check` and `nacre.load`: the ways to call them, and the ways that are refused."""

from __future__ import annotations

import builtins
import math
import os
import re
import threading
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.compiler.base.compiler_errors import WrongNumbersError
from nacre.compiler.pipeline import Build
from nacre.compiler.readers.table import READERS
from safetensors.numpy import save_file

MLP = """
dim N in 1..16

block Linear<n, m>(x: f32[..., n]) -> f32[..., m] {
  param weight: f32[m, n]
  param bias: f32[m]
  return x @ weight.T + bias
}

model scores(x: f32[N, 6]) -> f32[N, 4] {
  weights "mlp.safetensors"
  use hidden = Linear<6, 8>
  use answer = Linear<8, 4>
  return x |> hidden |> gelu |> answer |> softmax
}

model hidden_only(x: f32[N, 6]) -> h: f32[N, 8], largest: f32[] {
  weights "mlp.safetensors"
  use hidden = Linear<6, 8>
  h = hidden(x)
  return h, max(h)
}
"""
DOUBLE = "model double(x: f32[2]) -> f32[2] { return x + x }"
X = np.array([1, 2], np.float32)


@pytest.fixture(autouse=True)
def cache(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NACRE_CACHE", str(empty_cache))
    return empty_cache


@pytest.fixture(scope="module")
def weights() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    shapes = {"hidden.weight": (8, 6), "hidden.bias": (8,), "answer.weight": (4, 8), "answer.bias": (4,)}
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


@pytest.fixture
def mlp(tmp_path: Path, weights: dict[str, Any]) -> Path:
    (tmp_path / "mlp.nacre").write_text(MLP)
    save_file(weights, tmp_path / "mlp.safetensors")
    return tmp_path / "mlp.nacre"


def expected(x: Any, weights: dict[str, Any]) -> Any:
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    h = x @ w["hidden.weight"].T + w["hidden.bias"]
    erf = np.vectorize(math.erf)
    y = (h * (1 + erf(h / np.sqrt(2))) / 2) @ w["answer.weight"].T + w["answer.bias"]
    odds = np.exp(y - y.max(axis=1, keepdims=True))
    return h, odds / odds.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("level", range(4))
def test_levels_agree_with_numpy(mlp: Path, weights: dict[str, Any], level: int) -> None:
    """Two models of one file, which share a block and its weights."""
    model = nacre.compile(mlp, mlp.with_suffix(".so"), opt_level=level)
    assert list(model.entries) == ["scores", "hidden_only"]
    x = np.random.default_rng(1).standard_normal((5, 6), np.float32)
    hidden, scores = expected(x, weights)
    np.testing.assert_allclose(model.entries["scores"](x), scores, atol=1e-6)
    h, largest = model.entries["hidden_only"](x)
    np.testing.assert_allclose(h, hidden, rtol=1e-5, atol=1e-5)
    assert largest == h.max()
    description: Any = model.describe()
    assert description["options"]["level"] == level
    names = [w["name"].split(".folded")[0] for w in description["weights"]["tensors"]]
    assert sorted(names) == sorted(weights)
    with pytest.raises(nacre.NacreError, match=r"model.entries\[name\]"):
        model(x)


@pytest.mark.usefixtures("unchecked")
def test_text_goes_into_the_cache(cache: Path) -> None:
    model = nacre.compile(DOUBLE, opt_level=0)
    np.testing.assert_array_equal(model(X), [2, 4])
    (path,) = cache.glob("*.so")
    assert model.path == str(path)
    before = path.stat().st_mtime_ns
    np.testing.assert_array_equal(nacre.compile(DOUBLE, opt_level=0)(X), [2, 4])
    assert [p.stat().st_mtime_ns for p in cache.glob("*.so")] == [before]


def test_paths_of_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("{m}.nacre").write_text(DOUBLE)
    Path("m.nacre").write_text(DOUBLE)
    sources: list[Any] = ["m.nacre", Path("m.nacre"), Path("{m}.nacre")]
    for source in sources:
        assert nacre.check(source) == []
    model = nacre.compile(sources[2], "out.so", opt_level=0)
    assert model.path == "out.so"
    np.testing.assert_array_equal(nacre.load(Path("out.so"))(X), [2, 4])
    assert sorted(os.listdir()) == ["m.nacre", "out.so", "{m}.nacre"]


def test_weights_from_a_folder_and_a_file(mlp: Path, weights: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (mlp.parent / "mlp.safetensors").rename(folder / "mlp.safetensors")
    with pytest.raises(nacre.DiagnosticError, match="does not exist"):
        nacre.compile(mlp, tmp_path / "m.so")
    for place in (folder, folder / "mlp.safetensors"):
        assert nacre.check(mlp, weights=place) == []
    model = nacre.compile(mlp, tmp_path / "m.so", weights=folder, opt_level=1)
    x = np.ones((1, 6), np.float32)
    np.testing.assert_allclose(model.entries["scores"](x), expected(x, weights)[1], atol=1e-6)


def test_weights_for_a_text(weights: dict[str, Any], tmp_path: Path) -> None:
    text = 'model m(x: f32[4]) -> f32[4] {\n  param answer: f32[4] from "answer.bias"\n  return x + answer\n}\n'
    np.savez(tmp_path / "w.npz", **weights)
    model = nacre.compile(text, weights=tmp_path / "w.npz", opt_level=0)
    np.testing.assert_array_equal(model(np.zeros(4, np.float32)), weights["answer.bias"])
    with pytest.raises(nacre.DiagnosticError, match="does not say where they are"):
        nacre.compile(text)


def test_external_weights(mlp: Path, weights: dict[str, Any]) -> None:
    path = mlp.with_suffix(".so")
    model = nacre.compile(mlp, path, placement="external", opt_level=0)
    beside = path.with_name("mlp.so.safetensors")
    assert beside.exists()
    x = np.ones((2, 6), np.float32)
    np.testing.assert_allclose(model.entries["scores"](x), expected(x, weights)[1], atol=1e-6)
    moved = beside.rename(mlp.parent / "moved.safetensors")
    with pytest.raises(nacre.NacreError, match=r"mlp\.so\.safetensors"):
        nacre.load(path)
    np.testing.assert_array_equal(nacre.load(path, weights=moved).entries["scores"](x), model.entries["scores"](x))


def two_models(first: str, second: str, name: str = "b") -> str:
    return f"""
model one(x: f32[2]) -> f32[2] {{
  weights "{first}"
  param a: f32[2]
  return x * a
}}
model two(x: f32[2]) -> f32[2] {{
  weights "{second}"
  param {name}: f32[2]
  return x * {name}
}}
"""


def test_models_with_checkpoints_of_their_own(tmp_path: Path) -> None:
    save_file({"a": X}, tmp_path / "first.safetensors")
    save_file({"a": X, "b": 3 * X}, tmp_path / "second.safetensors")
    source = tmp_path / "m.nacre"
    source.write_text(two_models("first.safetensors", "second.safetensors"))
    model = nacre.compile(source, tmp_path / "m.so", opt_level=0)
    np.testing.assert_array_equal(model.entries["one"](X), X * X)
    np.testing.assert_array_equal(model.entries["two"](X), X * 3 * X)
    # One name is one parameter, which cannot be in two places.
    source.write_text(two_models("first.safetensors", "second.safetensors", "a"))
    (fault,) = nacre.check(source)
    assert fault.code == "two-checkpoints" and "first.safetensors" in fault.message
    source.write_text(two_models("second.safetensors", "second.safetensors", "a"))
    assert nacre.check(source) == []


def test_dumps_are_made_even_if_the_model_is_cached(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        nacre.compile(DOUBLE, opt_level=0, dump_dir=tmp_path / folder)
    assert len(list((tmp_path / "a").iterdir())) > 8
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "error", "reported"),
    [
        ({"opt_level": 4}, ValueError, "opt_level must be 0, 1, 2 or 3, not 4"),
        ({"opt_level": "2"}, ValueError, "not '2'"),
        ({"placement": "inside"}, ValueError, "'embedded' or 'external', not 'inside'"),
        ({"threads": -1}, ValueError, "threads must be at least 0, not -1"),
        ({"target": "?"}, nacre.DiagnosticError, "`\\?` is not a known CPU"),
        ({"weights": "no-such-folder"}, nacre.DiagnosticError, "`no-such-folder` cannot be read"),
        ({"output": "no/such/folder/m.so"}, nacre.DiagnosticError, "there is no folder"),
        ({"output": "."}, nacre.DiagnosticError, "not a regular file"),
        ({"level": 2}, TypeError, "level"),
    ],
    ids=str,
)
def test_bad_arguments(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: dict[str, Any], error: type[Exception], reported: str
) -> None:
    """They are refused before any code is generated."""
    monkeypatch.setattr(Build, "generate", None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=reported):
        nacre.compile(DOUBLE, **arguments)
    assert list(tmp_path.iterdir()) == []


def test_exceptions_that_the_page_names_are_public() -> None:
    page = Path(__file__).parents[1] / "compiler" / "docs" / "python.md"
    named = set(re.findall(r"\b[A-Z]\w*Error\b", page.read_text(encoding="utf-8")))
    assert {"CompilerError", "DiagnosticError", "NacreError"} <= named
    assert {name for name in named if not hasattr(builtins, name) and name not in nacre.__all__} == set()
    assert issubclass(WrongNumbersError, nacre.CompilerError)


def test_faults_of_the_source() -> None:
    text = "model m(x: f32[2]) -> f32[2] {\n  return x + y + z\n}\n"
    with pytest.raises(nacre.DiagnosticError) as caught:
        nacre.compile(text)
    assert [d.code for d in caught.value.diagnostics] == ["unknown-name", "unknown-name"]
    assert "2 |   return x + y + z" in str(caught.value)
    assert nacre.check(text) == list(caught.value.diagnostics)
    assert all(isinstance(d, nacre.Diagnostic) for d in caught.value.diagnostics)


@pytest.mark.parametrize("suffix", ["", *READERS])
def test_a_missing_file_is_a_missing_file(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(FileNotFoundError, match=r"error.missing-file.*no such file or directory") as caught:
        nacre.compile(tmp_path / f"none{suffix}")
    assert isinstance(caught.value, nacre.DiagnosticError)


def test_a_missing_file_has_a_proposal(tmp_path: Path) -> None:
    (tmp_path / "network.onnx").write_bytes(b"")
    assert "did you mean" in nacre.check(tmp_path / "netwrok.onnx")[0].help


def test_a_source_of_another_kind() -> None:
    with pytest.raises(TypeError, match=r"nacre.from_torch, from_jax or from_sklearn, not int"):
        nacre.compile(42)  # type: ignore[arg-type]  # as a caller without types may


def test_check_never_raises(tmp_path: Path) -> None:
    (tmp_path / "binary.nacre").write_bytes(b"\xff\x00")
    (tmp_path / "blocks.nacre").write_text("block B(x: f32[2]) -> f32[2] { return x }\n")
    codes = {
        name: [d.code for d in nacre.check(tmp_path / name)]
        for name in ("binary.nacre", "blocks.nacre", "missing.nacre", ".")
    }
    assert codes == {
        "binary.nacre": ["not-utf8"],
        "blocks.nacre": [],
        "missing.nacre": ["missing-file"],
        ".": ["bad-folder"],
    }
    assert nacre.check("") != [] and nacre.check("\n") == []


def test_compiling_in_two_threads(tmp_path: Path) -> None:
    results: dict[int, Any] = {}

    def work(factor: int) -> None:
        text = f"model m(x: f32[2]) -> f32[2] {{ return x * {factor} }}"
        results[factor] = nacre.compile(text, tmp_path / f"{factor}.so", opt_level=0)(X)

    threads = [threading.Thread(target=work, args=(factor,)) for factor in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(results[2], X * 2)
    np.testing.assert_array_equal(results[3], X * 3)


def test_reading_sources_in_many_threads() -> None:
    """The parser's tables and the compiler's caches are shared; what is read in each is not."""
    found: list[list[str]] = []

    def work(number: int) -> None:
        for size in range(1, 12):
            text = f"model m(x: f32[{size}]) -> f32[{size}] {{\n  return unknown{number} + x\n}}\n"
            found.append([d.message for d in nacre.check(text) if f"`unknown{number}`" not in d.message])
            assert nacre.check(text.replace(f"unknown{number}", "x")) == []

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[]] * 44


def test_only_artifacts_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text(DOUBLE)
    with pytest.raises(nacre.NacreError, match="is not an artifact"):
        nacre.load(tmp_path / "text.so")
    with pytest.raises(FileNotFoundError, match="No such file"):
        nacre.load(tmp_path / "missing.so")
