"""The samples on other machines, with real weights or those of the network tests, against this machine's artifacts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import nacre
import numpy as np
import pytest
from emulators import OTHERS, find_emulator
from nacre.compiler.checking import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets
from nacre.dialect.types import Array
from samples.test_minilm import FOLDER as MINILM
from samples.test_minilm import sample
from samples.test_vision import mobilenetv2, resnet18, write_network

DIGITS = Path(__file__).parents[2] / "samples" / "digits"

Prepared = tuple[Path, Path | None, Sequence[Array]]


def digits(folder: Path) -> Prepared:
    with np.load(DIGITS / "test_images.npz") as file:
        images = file[file.files[0]][:17].astype(np.float32).reshape(-1, 8, 8)
    return DIGITS / "digits.nacre", None, [images]


def minilm(folder: Path) -> Prepared:
    ids = np.random.default_rng(0).integers(0, 30522, (2, 11))
    mask = np.ones_like(ids)
    mask[1, 7:] = 0
    return MINILM / "minilm.nacre", sample.find_checkpoint(), [ids, mask]


def of_network(network: Callable[..., Array]) -> Callable[[Path], Prepared]:
    def prepare(folder: Path) -> Prepared:
        images, _ = write_network(network, folder)
        return folder / f"{network.__name__}.nacre", None, [images]

    prepare.__name__ = network.__name__
    return prepare


@pytest.mark.parametrize("machine", OTHERS)
@pytest.mark.parametrize(
    "prepare", [digits, minilm, of_network(mobilenetv2), of_network(resnet18)], ids=lambda prepare: prepare.__name__
)
@pytest.mark.usefixtures("unchecked")
def test_a_sample_computes_the_same(machine: str, prepare: Callable[[Path], Prepared], tmp_path: Path) -> None:
    emulator = find_emulator(machine)
    path, weights, inputs = prepare(tmp_path)
    expected = nacre.compile(path, tmp_path / "here.so", weights=weights)(*inputs)
    options = Options(targets=parse_targets(emulator.triple), cc=emulator.compiler)
    build = Build(read_model(path, weights), options)
    build.run(tmp_path / "there.so")
    assert build.program is not None and not build.program.untiled, build.program
    (answer,) = emulator.call(tmp_path / "there.so", [(0, inputs, [expected])])
    assert not isinstance(answer, int), f"status {answer}"
    error = np.abs(answer[0] - expected).max() / np.abs(expected).max()
    # The order of sums differs with the width of vectors: a hundred roundings of float32.
    assert error <= 100 * np.finfo(np.float32).eps, error / np.finfo(np.float32).eps
