"""`nacre accuracy`: errors over all samples, layer by layer."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from cli_harness import DIGITS, Cli, leftovers
from nacre.compiler.base import packages
from nacre.runtime.arguments import Array
from safetensors.numpy import load_file, save_file
from saving import save_npz


@pytest.fixture(scope="module")
def images() -> tuple[Array, Array]:
    with np.load(DIGITS / "test_images.npz") as file:
        return file["images"], file["labels"]


@pytest.fixture
def data(tmp_path: Path, images: tuple[Array, Array]) -> Path:
    np.savez(tmp_path / "data.npz", image=images[0], labels=images[1])
    return tmp_path / "data.npz"


@pytest.fixture(scope="module")
def rough(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits with the weights of one layer kept in few bits."""
    folder = tmp_path_factory.mktemp("rough")
    weights = load_file(DIGITS / "digits.safetensors")
    name = "shapes.weight"
    step = np.abs(weights[name]).max() / 3
    weights[name] = (np.round(weights[name] / step) * step).astype(np.float32)
    save_file(weights, folder / "digits.safetensors")
    nacre.compile(DIGITS / "digits.nacre", folder / "rough.so", weights=folder / "digits.safetensors")
    return folder / "rough.so"


def test_figures_are_those_of_all_samples(
    cli: Cli, rough: Path, digits_so: Path, data: Path, images: tuple[Array, Array]
) -> None:
    done = cli("accuracy", rough, "--reference", digits_so, "--data", data, "--json")
    assert done.code == 0, done.err
    x = images[0].astype(np.float32)
    a, b = (np.concatenate([nacre.load(so)(part) for part in np.split(x, 5)]) for so in (rough, digits_so))
    (scores,) = done.json["scores"]
    assert scores["top1_agreement"] == (a.argmax(1) == b.argmax(1)).mean() < 1
    assert (scores["right"], scores["reference_right"]) == ((a.argmax(1) == images[1]).sum(), 357)
    (result,) = done.json["results"]
    # Cut into other calls, sums are the same but for their order.
    assert result["largest"] == pytest.approx(np.abs(a - b).max(), rel=1e-4)
    assert done.json["samples"] == 360 and done.json["calls"] == 12 and result["elements"] == 3600
    points = {point["point"]: point for point in done.json["points"]}
    # The layer with other weights is the first that differs.
    assert points["x_3"]["error"] == 0 and points["x_3"]["snr"] == "inf" and points["relu@32:7"]["error"] > 0


def test_bounds_decide_the_exit_code(cli: Cli, rough: Path, digits_so: Path, data: Path) -> None:
    compared = ("accuracy", rough, "--reference", digits_so, "--data", data)
    done = cli(*compared, "--require", "mean cosine >= 0.5", "--require", "error <= 1e-6")
    assert done.code == 1
    assert "holds  mean cosine >= 0.5" in done.out and "fails  error <= 1e-06" in done.out
    assert cli(*compared, "--require", "mean cosine >= 0.5").code == 0
    done = cli(*compared, "--require", "error >= 1")
    assert done.code == 2 and "compared with `<=`" in done.err


def test_text_names_points_results_and_classes(cli: Cli, rough: Path, digits_so: Path, data: Path) -> None:
    done = cli("accuracy", rough, "--reference", digits_so, "--data", data, "--batch", "256")
    assert done.code == 0, done.err
    out = " ".join(done.out.split())
    assert "360 samples in 2 calls" in out and "result probabilities" in out and "digits.nacre:33:7" in out
    assert "reference 99.17%" in out


def test_a_model_without_a_policy_is_its_own_reference(cli: Cli, data: Path) -> None:
    done = cli("accuracy", DIGITS / "digits.nacre", "--data", data, "--json")
    assert done.code == 0, done.err
    assert done.json["error"] == 0 and done.json["top1_drop"] == 0


LAYERS = """language 1
dim B in 1..64
block Dense(x: f32[B, 16]) -> f32[B, 16] {
  param weight: f32[16, 16]
  return tanh(x @ weight.T)
}
model main(x: f32[B, 16]) -> f32[B, 16] {
  weights "weights.npz"
  use layer[2] = Dense
  repeat i in 0..2 { x = layer[i](x) }
  return softmax(x)
}
"""


def test_layers_have_one_name_in_every_precision(cli: Cli, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    arrays = {f"layer.{i}.weight": rng.normal(size=(16, 16)).astype("float32") for i in range(2)}
    save_npz(tmp_path / "weights.npz", arrays)
    np.savez(tmp_path / "data.npz", x=rng.normal(size=(20, 16)).astype("float32"))
    (tmp_path / "model.nacre").write_text(LAYERS)
    done = cli("accuracy", tmp_path / "model.nacre", "--precision", "int8", "--data", tmp_path / "data.npz", "--json")
    assert done.code == 0, done.err
    points = {point["point"]: point["snr"] for point in done.json["points"]}
    assert "layer.0.x_3" in points
    assert all(20 < snr < 70 for snr in points.values())


def test_picture_is_drawn(cli: Cli, rough: Path, digits_so: Path, data: Path, tmp_path: Path) -> None:
    drawn = []
    for name in ("a.svg", "b.svg"):
        done = cli("accuracy", rough, "--reference", digits_so, "--data", data, "--picture", tmp_path / name)
        assert done.code == 0, done.err
        drawn.append((tmp_path / name).read_text())
    assert drawn[0] == drawn[1] and "result probabilities" in drawn[0] and drawn[0].startswith("<?xml")
    assert not leftovers(tmp_path)


def test_pictures_that_cannot_be_drawn_are_refused_before_the_work(
    cli: Cli, digits_so: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("accuracy", digits_so, "--reference", digits_so, "--data", tmp_path / "none.npz", "--picture")
    assert "error[picture-unknown]" in cli(*command, tmp_path / "a.gif").err
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    done = cli(*command, tmp_path / "a.svg")
    assert done.code == 1 and "pip install 'nacre[picture]'" in done.err


def test_faults_of_the_data_are_diagnostics(cli: Cli, digits_so: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", pixels=np.ones((2, 8, 8), np.float32))
    done = cli("accuracy", digits_so, "--reference", digits_so, "--data", tmp_path / "x.npz")
    assert done.code == 1 and "error[sample-missing]" in done.err and "`image` (f32[B, 8, 8])" in done.err
    assert cli("accuracy", digits_so, "--data", tmp_path / "x.npz").code == 2


REGRESSION = """dim B in 1..64

model price(x: f32[B, 8]) -> y: f32[B] {
  param weight: f32[8]
  return tanh(x @ weight)
}
"""


def test_a_regression_has_no_classes(cli: Cli, tmp_path: Path) -> None:
    """A result `f32[B]` is one number for each sample, and no row of B scores, however many samples a call has."""
    model, weights, data = tmp_path / "price.nacre", tmp_path / "w.npz", tmp_path / "data.npz"
    model.write_text(REGRESSION)
    random = np.random.default_rng(3)
    np.savez(weights, weight=random.normal(size=8).astype(np.float32))
    # In calls of 32 and of 8: the last axis has two sizes.
    np.savez(data, x=random.normal(size=(40, 8)).astype(np.float32))
    done = cli("accuracy", model, "--checkpoint", weights, "--data", data, "--json")
    assert done.code == 0, done.err
    assert done.json["scores"] == [] and done.json["agreement"] is None and done.json["samples"] == 40
    assert done.json["results"][0]["elements"] == 40
    np.savez(data, x=random.normal(size=(40, 8)).astype(np.float32), labels=np.zeros(40, np.int64))
    done = cli("accuracy", model, "--checkpoint", weights, "--data", data, "--require", "agreement >= 99%")
    assert done.code == 1 and "requires a result with class scores" in done.err
    done = cli(
        "quantize",
        model,
        "--checkpoint",
        weights,
        "--data",
        data,
        "--budget",
        "error <= 0.1",
        "-o",
        tmp_path / "p.nacre",
    )
    assert done.code == 0, done.err
