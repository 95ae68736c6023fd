"""The digits sample: its accuracy, that artifact and interpreter agree, and what the README's first command shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import numpy.typing as npt
import pytest
from nacre.compiler.readers.language.format import format_source
from safetensors import safe_open

FOLDER = Path(__file__).parents[2] / "samples" / "digits"
Array = npt.NDArray[Any]


@pytest.fixture(scope="module")
def held_out() -> tuple[Array, Array]:
    with np.load(FOLDER / "test_images.npz") as file:
        return file["images"], file["labels"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> nacre.Model:
    return nacre.compile(FOLDER / "digits.nacre", tmp_path_factory.mktemp("digits") / "digits.so")


def probabilities_of(model: nacre.Model, images: Array) -> Array:
    parts = [model(images[i : i + 256].astype(np.float32)) for i in range(0, len(images), 256)]
    return np.concatenate(parts)


def test_accuracy(model: nacre.Model, held_out: tuple[Array, Array]) -> None:
    images, labels = held_out
    assert len(images) == 360
    assert np.bincount(labels, minlength=10).min() >= 30
    right = probabilities_of(model, images).argmax(axis=1) == labels
    assert right.mean() >= 0.98


def test_probabilities_are_those_of_the_formula(model: nacre.Model, held_out: tuple[Array, Array]) -> None:
    """Against the network written out in numpy and float64, so that the compiler checks nothing against itself."""
    images = held_out[0][:40]
    with safe_open(FOLDER / "digits.safetensors", "numpy") as file:
        weights = {name: file.get_tensor(name).astype(np.float64) for name in file.keys()}  # noqa: SIM118  # no mapping

    def convolve(x: Array, name: str) -> Array:
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        patches = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        y = np.einsum("bchwij,ocij->bohw", patches, weights[f"{name}.weight"])
        return np.maximum(y + weights[f"{name}.bias"][:, None, None], 0)

    def pool(x: Array) -> Array:
        return x.reshape(*x.shape[:2], x.shape[2] // 2, 2, x.shape[3] // 2, 2).max(axis=(3, 5))

    x = convolve(images[:, None] / 16, "edges")
    x = pool(convolve(x, "strokes"))
    x = pool(convolve(x, "shapes")).reshape(len(images), -1)
    x = np.maximum(x @ weights["hidden.weight"].T + weights["hidden.bias"], 0)
    odds = np.exp(x @ weights["answer.weight"].T + weights["answer.bias"])
    expected = odds / odds.sum(axis=1, keepdims=True)
    # A softmax of sums of up to 288 products in float32.
    np.testing.assert_allclose(probabilities_of(model, images), expected, atol=5e-6, rtol=0)


@pytest.mark.parametrize("batch", [1, 3, 256])
def test_any_batch_gives_the_same(model: nacre.Model, held_out: tuple[Array, Array], batch: int) -> None:
    images = held_out[0][:batch].astype(np.float32)
    alone = np.concatenate([model(image[None]) for image in images[:3]])
    np.testing.assert_array_equal(model(images)[:3], alone)


def test_files_are_small() -> None:
    sizes = {name: (FOLDER / name).stat().st_size for name in ("digits.safetensors", "test_images.npz")}
    assert max(sizes.values()) < 200_000, sizes


def test_training_data_are_not_the_held_out(held_out: tuple[Array, Array]) -> None:
    """The committed images are the last 360 of the data set, which train.py does not train on."""
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn, which has the images, is not installed")
    data = datasets.load_digits()
    np.testing.assert_array_equal(held_out[0], data.images[1437:])
    np.testing.assert_array_equal(held_out[1], data.target[1437:])


def run_sample(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """In another folder than the sample's own, so that nothing is found by luck."""
    return subprocess.run(
        [sys.executable, str(FOLDER / "classify.py"), *arguments],
        cwd="/",
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


@pytest.mark.parametrize(("index", "digit", "name"), [("0", 2, "two"), ("7", 9, "nine")])
def test_sample_shows_the_digit(index: str, digit: int, name: str) -> None:
    done = run_sample(index)
    assert done.returncode == 0, done.stderr
    assert f"Held-out image {index} shows: {name}. The model says: {name}." in done.stdout
    shares = {int(d): float(p) for d, p in re.findall(r" (\d) +([\d.]+)% ", done.stdout)}
    assert sorted(shares) == list(range(10))
    assert max(shares, key=lambda d: shares[d]) == digit
    assert shares[digit] > 50
    assert sum(shares.values()) == pytest.approx(100, abs=0.6)
    assert "░" in done.stdout and "█" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    match = re.search(r"Of all 360 held-out images, it classifies (\d+) correctly", done.stdout)
    assert match and int(match[1]) >= 353


def test_sample_without_utf8() -> None:
    done = run_sample("12", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert "|      ::@@" in done.stdout


def test_sample_with_colours() -> None:
    done = run_sample("12", FORCE_COLOR="1", TERM="xterm-256color", COLORTERM="truecolor")
    assert done.returncode == 0, done.stderr
    assert "\x1b[48;2;" in done.stdout


@pytest.mark.parametrize("index", ["360", "-1", "six"])
def test_wrong_index_is_a_usage_error(index: str) -> None:
    done = run_sample(index)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_tests_and_budgets_in_the_file_hold() -> None:
    command = [sys.executable, "-m", "nacre.compiler.cli.main", "test", str(FOLDER / "digits.nacre")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("4 passed, 0 failed\n")


@pytest.mark.parametrize("path", sorted(FOLDER.parent.rglob("*.nacre")), ids=lambda path: path.stem)
def test_sample_is_formatted(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert format_source(text, path.name) == text
