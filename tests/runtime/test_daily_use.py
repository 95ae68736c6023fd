"""Loaded models in Python: views, tensors of PyTorch, copies, signatures, and missing files."""

import copy
import inspect
import pickle
import sys
from pathlib import Path

import nacre
import numpy as np
import pytest

TEXT = "dim B in 0..8\nmodel scale(x: f32[B, 3], factor: f32) -> y: f32[B, 3] { return x * factor }"
X = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("daily") / "scale.so"
    nacre.compile(TEXT, made)
    return made


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_views_are_copied(path: Path, rows: int) -> None:
    model = nacre.load(path)
    for view in (np.ones((3, rows), np.float32).T, X[::-1][:rows], np.broadcast_to(X[:1], (rows, 3))):
        np.testing.assert_array_equal(model(view, 2), view * 2)


def test_a_loaded_model_is_pickled_by_its_path_and_hash(path: Path, tmp_path: Path) -> None:
    moved = tmp_path / "model.so"
    moved.write_bytes(path.read_bytes())
    model = nacre.load(moved, threads=1)
    entry = model.entries["scale"]
    for other in (pickle.loads(pickle.dumps(entry)), copy.deepcopy(entry)):
        np.testing.assert_array_equal(other(X, 3), X * 3)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
        np.testing.assert_array_equal(other(X, 3), X * 3)
    text = pickle.dumps(model)
    assert len(text) < 1000
    nacre.compile(TEXT.replace("x * factor", "x + factor"), moved)
    with pytest.raises(nacre.NacreError, match="its hash differs"):
        pickle.loads(text)


def test_a_session_is_copied_but_not_pickled() -> None:
    model = nacre.compile("model count(step: i64) -> i64 {\n  state n: i64\n  n = n + step\n  return n\n}")
    session = model.session()
    assert session(2) == 2
    other = copy.deepcopy(session)
    assert (session(1), other(5)) == (3, 7)
    for part in (session, session.entries["count"]):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(part)


def test_the_signature_is_that_of_the_entry(path: Path) -> None:
    model = nacre.load(path)
    for called in (model, model.entries["scale"]):
        signature = inspect.signature(called)
        assert str(signature) == "(x: 'f32[B, 3]', factor: 'f32', *, out=None) -> 'f32[B, 3]'"
    assert "scale(x: f32[B, 3]" in model._repr_html_()
    assert "result y: f32[B, 3]" in model.entries["scale"]._repr_html_()


@pytest.mark.parametrize("read", [nacre.load, nacre.compile, nacre.graph.read])
def test_a_missing_file_is_a_file_not_found(tmp_path: Path, read: object) -> None:
    with pytest.raises(FileNotFoundError):
        read(str(tmp_path / "no.nacre"))  # type: ignore[operator]  # one of three functions


def test_a_missing_checkpoint_is_a_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        nacre.compile(TEXT, weights=tmp_path / "no.safetensors")
    named = 'model m(x: f32[3]) -> f32[3] {\n  weights "no.npz"\n  param w: f32[3]\n  return x * w\n}\n'
    (tmp_path / "m.nacre").write_text(named)
    with pytest.raises(FileNotFoundError):
        nacre.compile(tmp_path / "m.nacre")


@pytest.mark.parametrize("line", ['import "no.nacre"', 'import "no.nacre" as no', 'config "no.json" as c'])
def test_a_missing_file_that_a_model_names_is_a_file_not_found(tmp_path: Path, line: str) -> None:
    path = tmp_path / "m.nacre"
    path.write_text(f"{line}\n{TEXT}")
    with pytest.raises(FileNotFoundError, match=r"m.nacre:1:8"):
        nacre.compile(path)


def test_tensors_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    model = nacre.compile("dim B in 0..8\nmodel double(x: bf16[B, 3]) -> bf16[B, 3] { return x + x }")
    x = torch.arange(12, dtype=torch.bfloat16).reshape(4, 3)
    out = torch.zeros(4, 3, dtype=torch.bfloat16)
    for given in (x, x.T.contiguous().T):
        assert model(given, out=out) is out
        assert torch.equal(out, x + x)
        assert torch.equal(torch.from_numpy(model(given).astype(np.float32)), (x + x).float())


def test_results_in_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "m.so"
    results = "a: bf16[B, 3], b: bool[B], c: i64 { return x + x, x[:, 0] > x[:, 1], B }"
    text = f"dim B in 0..8\nmodel m(x: bf16[B, 3]) -> {results}"
    nacre.compile(text, path)
    model = nacre.load(path, results="torch")
    for copied in (model, pickle.loads(pickle.dumps(model))):
        for rows in (0, 1, 5):
            x = torch.randn(rows, 3, dtype=torch.bfloat16, generator=torch.Generator().manual_seed(rows))
            made = copied(x)
            assert [made.a.dtype, made.b.dtype, made.c.dtype] == [torch.bfloat16, torch.bool, torch.int64]
            assert torch.equal(made.a, x + x) and torch.equal(made.b, x[:, 0] > x[:, 1]) and made.c.item() == rows
    with pytest.raises(nacre.NacreError, match="not `jax`"):
        nacre.load(path, results="jax")  # type: ignore[arg-type]  # the wrong word is the test
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(nacre.NacreError, match="requires PyTorch"):
        nacre.load(path, results="torch")


def test_out_takes_tensors_of_other_libraries(path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = nacre.load(path)
    out = torch.zeros(4, 3)
    assert model(torch.from_numpy(X), 2, out=out) is out
    np.testing.assert_array_equal(out.numpy(), X * 2)
    wide = torch.zeros(5, 8)
    for view in (torch.zeros(3, 4).T, wide[1:, 1:7:2]):
        assert model(X, 2, out=view) is view
        np.testing.assert_array_equal(view.numpy(), X * 2)
    assert torch.count_nonzero(wide) == 11
    with pytest.raises(nacre.NacreError, match="elements share memory"):
        model(X, 2, out=torch.zeros(1, 3).expand(4, 3))
    assert model(X, 2, out={"y": out}) is out


def test_weights_are_arrays_of_any_library() -> None:
    torch = pytest.importorskip("torch")
    text = "model m(x: f32[3]) -> f32[3] {\n  param w: f32[3]\n  return x * w\n}"
    for weight in (X[0], torch.from_numpy(X[0].copy()), torch.nn.Parameter(torch.from_numpy(X[0].copy()))):
        model = nacre.compile(text, weights={"w": weight})
        np.testing.assert_array_equal(model(X[1]), X[0] * X[1])


@pytest.mark.parametrize(("dtype", "theirs"), [("bf16", "bfloat16"), ("f8e4m3", "float8_e4m3fn")])
def test_weights_are_tensors_in_dtypes_without_an_array(dtype: str, theirs: str) -> None:
    torch = pytest.importorskip("torch")
    text = f"model m(x: f32[3]) -> f32[3] {{\n  param w: {dtype}[3]\n  return x * cast(w, f32)\n}}"
    weight = torch.tensor([[0.5, 0.0], [-2.0, 0.0], [3.0, 0.0]]).to(getattr(torch, theirs))[:, 0]
    np.testing.assert_array_equal(nacre.compile(text, weights={"w": weight})(X[1]), X[1] * [0.5, -2, 3])


def test_progress_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "nacre"):
        nacre.compile("model logged(x: f32[5]) -> f32[5] { return exp(x) * 3.25 }", opt_level=1)
    assert "compiling `model`: passes" in caplog.messages and caplog.messages[-1] == "compiling `model`: link"
