"""`nacre diff`: builds with a planted difference part where it was planted, and others nowhere."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from cli_harness import Cli
from nacre.compiler.tools.diff import onnx_reference
from nacre.compiler.tools.diff.stored import Stored, _pair
from nacre.runtime.arguments import Array
from nacre.runtime.observe import observe
from saving import save_npz

MODEL = """language 1

dim B in 1..64

block Dense(x: f32[B, 16]) -> f32[B, 16] {
  param weight: f32[16, 16]
  param bias: f32[16]
  param scale: f32[16]
  y = x @ weight.T + bias
  return tanh(y) * scale
}

model main(x: f32[B, 16]) -> y: f32[B, 16] {
  weights "weights.npz"
  use layer[3] = Dense
  h = x
  repeat i in 0..3 { h = layer[i](h) }
  return softmax(h)
}
"""
LAST = "result y"


def checkpoint() -> dict[str, Array]:
    random = np.random.default_rng(1)
    shapes = {"weight": (16, 16), "bias": (16,), "scale": (16,)}
    return {f"layer.{i}.{n}": random.normal(size=s).astype("float32") for i in range(3) for n, s in shapes.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("diff")
    (folder / "model.nacre").write_text(MODEL)
    save_npz(folder / "weights.npz", checkpoint())
    np.save(folder / "x.npy", np.random.default_rng(2).normal(size=(5, 16)).astype("float32"))
    nacre.compile(folder / "model.nacre", folder / "model.so")
    return folder


def captured(folder: Path) -> dict[str, Array]:
    """What the artifact computes at its points."""
    points: dict[str, Array] = {}
    model = nacre.load(folder / "model.so")
    with observe(model, lambda e: points.update((v.point.name, e.array(v).copy()) for v in e.call.values if v.point)):
        points["y"] = model(np.load(folder / "x.npy"))
    return points


def given(folder: Path) -> tuple[str, str]:
    return "--input", f"x={folder / 'x.npy'}"


def by_name(data: Mapping[str, Any]) -> dict[str, Any]:
    return {point["point"]: point for point in data["points"]}


def test_levels_differ_by_rounding_alone(cli: Cli, folder: Path) -> None:
    done = cli("diff", folder / "model.nacre", *given(folder), "--json")
    assert done.code == 0, done.err
    points = by_name(done.json)
    assert {f"layer.{i}.h_2" for i in range(2)} | {LAST} <= set(points)
    assert done.json["first_divergence"] is None and done.json["only_b"]
    for name, point in points.items():
        assert point["largest"] <= point["allowed"] and sum(point["histogram"].values()) == point["elements"]
        assert point["elements"] == 80 or name.startswith("parameter ")
    a, b = done.json["builds"]
    assert (a["option level"], b["option level"]) == (2, 0) and a["kernels"] < b["kernels"]


@pytest.mark.parametrize("layer", [0, 1])
def test_another_weight_shows_in_its_block(cli: Cli, folder: Path, tmp_path: Path, layer: int) -> None:
    weights = checkpoint()
    weights[f"layer.{layer}.bias"][7] += 0.01
    save_npz(tmp_path / "weights.npz", weights)
    nacre.compile(folder / "model.nacre", tmp_path / "other.so", weights=tmp_path / "weights.npz")
    done = cli("diff", folder / "model.so", tmp_path / "other.so", *given(folder), "--json")
    assert done.code == 1
    parameter, first, *_ = (point for point in done.json["points"] if point["diverges"])
    assert parameter["point"] == done.json["first_divergence"] == f"parameter layer.{layer}.bias"
    assert parameter["index"] == [7] and parameter["different"] == 1
    assert first["point"].startswith(f"layer.{layer}.") and first["at"].startswith("model.nacre:")
    assert first["index"][1] == 7
    assert done.json["first_difference"] == parameter["point"]


CONVOLUTION = """language 1

block Norm(x: f32[2, 32, 16, 16]) -> f32[2, 32, 16, 16] {
  param weight: f32[32, 32, 3, 3]
  param bias: f32[32]
  return relu(conv2d(x, weight, bias, padding=1))
}

model main(x: f32[2, 32, 16, 16]) -> y: f32[2, 32] {
  weights "weights.npz"
  use block = Norm
  a = exp(x * 0.5)
  b = mean(block(a), (2, 3))
  return tanh(b)
}
"""


def test_strict_or_not_shows_where_it_rounds_differently(cli: Cli, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    arrays = {"block.weight": random.normal(size=(32, 32, 3, 3)) / 17, "block.bias": random.normal(size=32)}
    save_npz(tmp_path / "weights.npz", {n: a.astype("float32") for n, a in arrays.items()})
    (tmp_path / "model.nacre").write_text(CONVOLUTION)
    np.save(tmp_path / "x.npy", random.normal(size=(2, 32, 16, 16)).astype("float32"))
    for strict in (False, True):
        nacre.compile(tmp_path / "model.nacre", tmp_path / f"{strict}.so", strict=strict)
    arguments = ["diff", tmp_path / "False.so", tmp_path / "True.so", *given(tmp_path), "--json"]
    done = cli(*arguments)
    assert done.code == 0, done.out  # as the product says that it may be
    points = by_name(done.json)
    assert done.json["first_difference"] == "block.relu@6:10" and {"b", LAST} <= set(points)
    assert [b["option strict"] for b in done.json["builds"]] == [False, True]
    assert cli(*arguments, "--tolerance", "1e-9").json["first_divergence"] == done.json["first_difference"]


@pytest.mark.parametrize("padded", range(3))
@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_a_folded_weight_is_its_parameter_in_other_axes(order: tuple[int, ...], padded: int) -> None:
    """One build transposed the weight, and stores it in panels, whose last elements along an axis may be padding."""
    plain = np.random.default_rng(0).normal(size=(5, 6, 7)).astype("float32")
    moved = plain.transpose(order)
    widths = [(0, -size % 4 if axis == padded else 0) for axis, size in enumerate(moved.shape)]
    one, other = Stored("w", plain), Stored("w.folded", np.pad(moved, widths), {padded: 4})
    for a, b in ((one, other), (other, one)):
        pair = _pair(a, b, alike=False)
        assert pair is not None
        np.testing.assert_array_equal(pair.a.array, pair.b.array)
        assert sorted(pair.a.array.shape) == [5, 6, 7]


@pytest.mark.parametrize("shape", [(8, 6), (5, 7), (9, 6)])
def test_weights_of_other_sizes_are_not_compared(shape: tuple[int, int]) -> None:
    """Only the padding of a panel may be left out: the other axis, and more elements, may not."""
    one, other = Stored("w", np.ones((5, 6), np.float32)), Stored("w", np.ones(shape, np.float32), {0: 3})
    assert _pair(one, other, alike=True) is None
    assert _pair(one, Stored("w", other.array), alike=True) is None


def test_a_reference_is_matched_by_names(cli: Cli, folder: Path, tmp_path: Path) -> None:
    points = captured(folder)
    wrong = "layer.1.h_2"
    points[wrong][3, 4] *= 1.01
    points["result of nobody"] = np.zeros(3)
    save_npz(tmp_path / "expected.npz", points)
    done = cli("diff", folder / "model.so", tmp_path / "expected.npz", *given(folder), "--json")
    assert done.code == 1
    assert done.json["first_divergence"] == done.json["first_difference"] == wrong
    assert by_name(done.json)[wrong]["index"] == [3, 4] and by_name(done.json)[wrong]["different"] == 1
    assert done.json["only_b"] == ["result of nobody"] and by_name(done.json)[LAST]["different"] == 0


def test_nan_and_other_types_diverge(cli: Cli, folder: Path, tmp_path: Path) -> None:
    points = captured(folder)
    points["layer.0.h_2"][0, 0] = np.nan
    points["y"] = points["y"][:, :8]
    save_npz(tmp_path / "expected.npz", points)
    done = cli("diff", folder / "model.so", tmp_path / "expected.npz", *given(folder))
    assert done.code == 1
    assert "first divergence: layer.0.h_2 at model.nacre:10:10" in done.out
    assert "f32[5, 16] and f32[5, 8]" in done.out
    data = cli("diff", folder / "model.so", tmp_path / "expected.npz", *given(folder), "--json").json
    assert by_name(data)["layer.0.h_2"]["largest"] == "inf"
    assert by_name(data)["layer.0.h_2"]["histogram"][">65536"] == 1


def test_text_names_the_differences(cli: Cli, folder: Path) -> None:
    done = cli("diff", folder / "model.nacre", *given(folder))
    assert done.code == 0
    assert "0 beyond" in done.out and "first divergence" not in done.out
    assert "workspace bytes" in done.out and "option level" in done.out


@pytest.mark.skipif(
    not (importlib.util.find_spec("onnx") and importlib.util.find_spec("onnxruntime")), reason="needs the extra `bench`"
)
def test_an_onnx_model_is_run(cli: Cli, folder: Path, tmp_path: Path) -> None:
    onnx = importlib.import_module("onnx")
    floats = onnx.TensorProto.FLOAT
    shape = {"x": [None, 16], "y": [None, 16]}
    x, y = (onnx.helper.make_tensor_value_info(name, floats, dims) for name, dims in shape.items())
    graph = onnx.helper.make_graph([onnx.helper.make_node("Softmax", ["x"], ["y"])], "g", [x], [y])
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(made, str(tmp_path / "model.onnx"))
    same = "model main(x: f32[5, 16]) -> y: f32[5, 16] { return softmax(x) }\n"
    (tmp_path / "same.nacre").write_text(same)
    done = cli("diff", tmp_path / "same.nacre", tmp_path / "model.onnx", *given(folder), "--json")
    assert done.code == 0 and list(by_name(done.json)) == ["softmax@1:53", LAST], done.err
    other = cli("diff", folder / "model.so", tmp_path / "model.onnx", *given(folder), "--json")
    assert other.code == 1 and other.json["first_divergence"] == "softmax@18:10"


def test_values_of_an_onnx_model_are_matched_by_name_and_by_order(cli: Cli, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    random = np.random.default_rng(5)
    weights = {name: random.normal(size=(16, 16)).astype("float32") for name in ("w", "v")}
    save_npz(tmp_path / "weights.npz", weights)
    np.save(tmp_path / "x.npy", random.normal(size=(5, 16)).astype("float32"))
    (tmp_path / "model.nacre").write_text(
        """model main(x: f32[5, 16]) -> y: f32[5, 16] {
  weights "weights.npz"
  param w: f32[16, 16]
  param v: f32[16, 16]
  h = softmax(x)
  g = softmax(h @ w)
  return softmax(g @ v)
}
"""
    )

    def save(path: Path, scale: float) -> Path:
        arrays = weights | {"v": weights["v"] * np.float32(scale)}
        tensors = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
        nodes = [("Softmax", "x", "/h"), ("MatMul", "/h w", "p"), ("Softmax", "p", "s"), ("MatMul", "s v", "q")]
        made = [onnx.helper.make_node(op, a.split(), [b]) for op, a, b in (*nodes, ("Softmax", "q", "out"))]
        x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [5, 16]) for n in ("x", "out"))
        graph = onnx.helper.make_graph(made, "g", [x], [y], tensors)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
        onnx.save(model, str(path))
        return path

    def message(scale: float) -> Any:
        done = cli("diff", tmp_path / "model.nacre", save(tmp_path / "m.onnx", scale), *given(tmp_path), "--json")
        assert done.code == int(scale != 1), done.err
        return done.json

    same = message(1.0)
    assert "of A were matched with values of B" in same["note"] and same["only_b"] == [] and len(same["points"]) >= 4
    assert {"h", "g", LAST} <= by_name(same).keys()
    # The first value behind the other weight.
    assert message(1.5)["first_divergence"] not in ("h", "g", LAST)


def test_without_onnx_values_in_between_are_not_compared(
    cli: Cli, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    test_an_onnx_model_is_run(cli, folder, tmp_path)
    monkeypatch.setattr(onnx_reference, "find_spec", lambda name: None if name == "onnx" else name)
    done = cli("diff", tmp_path / "same.nacre", tmp_path / "model.onnx", *given(folder))
    assert done.code == 0 and "only results are compared" in done.out and "pip install onnx" in done.out


def test_parameters_are_compared_however_they_are_stored(cli: Cli, folder: Path, tmp_path: Path) -> None:
    levels = cli("diff", folder / "model.nacre", *given(folder), "--json").json
    message = [name for name in by_name(levels) if name.startswith("parameter ")]
    assert len(message) == len(checkpoint()) and levels["parameters_not_compared"] == []
    weights = checkpoint()
    weights["layer.1.weight"][3, 5] += 1e-3
    save_npz(tmp_path / "weights.npz", weights)
    nacre.compile(folder / "model.nacre", tmp_path / "other.so", weights=tmp_path / "weights.npz", placement="external")
    done = cli("diff", folder / "model.so", tmp_path / "other.so", *given(folder), "--json")
    assert done.json["first_divergence"] == "parameter layer.1.weight"
    changed = by_name(done.json)["parameter layer.1.weight"]
    assert changed["different"] == 1 and sorted(changed["index"]) == [3, 5]
    assert changed["elements"] == weights["layer.1.weight"].size


def test_without_onnx_runtime(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_reference, "find_spec", lambda name: None)
    done = cli("diff", folder / "model.so", folder / "model.onnx", *given(folder))
    assert done.code == 1
    assert done.err.startswith("error[no-onnx-runtime]") and "pip install onnxruntime" in done.err


def test_incomparable_models(cli: Cli, folder: Path, tmp_path: Path) -> None:
    alone = cli("diff", folder / "model.so", *given(folder))
    assert alone.code == 2 and "already compiled" in alone.err
    np.savez(tmp_path / "other.npz", z=np.zeros(1))
    nothing = cli("diff", folder / "model.so", tmp_path / "other.npz", *given(folder))
    assert nothing.code == 2 and "no value in common" in nothing.err
    missing = cli("diff", folder / "model.so", tmp_path / "missing.npz", *given(folder))
    assert missing.code == 1 and "error[" in missing.err


LOOPS = """
dim N in 1..64

model doubled(x: f32[N]) -> y: f32[N], n: i64 {
  while at < N with at = 0, y = x {
    y = y * 2
    at = at + 3
  }
  return y, at
}

model summed(x: f32[N]) -> y: f32, z: f32[N] {
  z = scan i in 0..N with h = x[0], k = 0 {
    h = h + x[i]
    k = k + 2
  } collect h * cast(k, f32)
  return h, z
}
"""


@pytest.mark.parametrize("entry", ["doubled", "summed"])
def test_loops_are_no_difference(cli: Cli, tmp_path: Path, entry: str) -> None:
    """The memory of a carried value holds another number in each iteration, and its last kernel has another name."""
    (tmp_path / "loops.nacre").write_text(LOOPS)
    done = cli("diff", tmp_path / "loops.nacre", "--entry", entry, "--at", "N=10")
    assert done.code == 0, done.out
    assert "0 beyond" in done.out and "result y" not in done.out.partition("divergence")[2]
