"""The networks in samples/vision, whole, at 32x32 pixels, against plain numpy in float64 with weights made up here.

The numpy networks below name every tensor as torchvision does and count them, so the names are tested as well: a
checkpoint has to hold all that the text asks for.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import numpy.typing as npt
import pytest
from nacre.compiler.readers.language.format import format_source
from safetensors.numpy import save_file

FOLDER = Path(__file__).parents[2] / "samples" / "vision"
SIDE = 32
ROUNDINGS = 256
"""What up to 53 convolutions of up to 4608 products, one after another, may lose, in units of float32's epsilon and of
the largest number of a result. A plain sum in order loses 35."""

Array = npt.NDArray[Any]


class Layers:
    """Layers in float64 whose weights, in float32, are made when they are first used; `stored` has them by name."""

    def __init__(self) -> None:
        self.stored: dict[str, Array] = {}
        self._random = np.random.default_rng(3)

    def make(self, name: str, *shape: int, spread: float = 0.1, about: float = 0.0) -> Array:
        values = self._random.uniform(about - spread, about + spread, shape)
        self.stored[name] = values.astype(np.float32)
        return self.stored[name].astype(np.float64)

    def convolve(self, x: Array, name: str, outputs: int, size: int, stride: int = 1, groups: int = 1) -> Array:
        """Padded by half of the kernel, without a bias."""
        each = x.shape[1] // groups
        kernel = self.make(f"{name}.weight", outputs, each, size, size, spread=(6 / (each * size * size)) ** 0.5)
        pad = size // 2
        padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(2, 3))[:, :, ::stride, ::stride]
        rows, columns = windows.shape[2:4]
        patches = windows.reshape(len(x), groups, each, rows, columns, size, size).transpose(1, 0, 3, 4, 2, 5, 6)
        product = patches.reshape(groups, -1, each * size * size) @ kernel.reshape(groups, outputs // groups, -1).mT
        return (
            product.reshape(groups, len(x), rows, columns, -1)
            .transpose(1, 0, 4, 2, 3)
            .reshape(len(x), outputs, rows, columns)
        )

    def normalize(self, x: Array, name: str) -> Array:
        weight, bias, mean = (
            self.make(f"{name}.{part}", x.shape[1], about=about)[:, None, None]
            for part, about in (("weight", 1), ("bias", 0), ("running_mean", 0))
        )
        variance = self.make(f"{name}.running_var", x.shape[1], spread=0.5, about=1)[:, None, None]
        return (x - mean) / np.sqrt(variance + 1e-5) * weight + bias

    def classify(self, x: Array, name: str) -> Array:
        weight = self.make(f"{name}.weight", 1000, x.shape[1])
        return x.mean(axis=(2, 3)) @ weight.T + self.make(f"{name}.bias", 1000)


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def pool(x: Array) -> Array:
    """The maximum of 3x3 windows, padded by 1, two apart."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::2, ::2].max(axis=(4, 5))


def resnet(net: Layers, image: Array, counts: tuple[int, ...], bottleneck: bool) -> Array:
    x = pool(relu(net.normalize(net.convolve(image, "conv1", 64, 7, 2), "bn1")))
    for stage, count in enumerate(counts):
        width = 64 << stage
        outputs = 4 * width if bottleneck else width
        kernels = ((width, 1), (width, 3), (outputs, 1)) if bottleneck else ((width, 3), (width, 3))
        for index in range(count):
            name = f"layer{stage + 1}.{index}"
            stride = 2 if stage > 0 and index == 0 else 1
            y = x
            for number, (channels, size) in enumerate(kernels, 1):
                # The image is halved by the first kernel that is wider than a pixel.
                step = stride if number == (2 if bottleneck else 1) else 1
                y = net.convolve(relu(y) if number > 1 else y, f"{name}.conv{number}", channels, size, step)
                y = net.normalize(y, f"{name}.bn{number}")
            if stride > 1 or x.shape[1] != outputs:
                x = net.normalize(net.convolve(x, f"{name}.downsample.0", outputs, 1, stride), f"{name}.downsample.1")
            x = relu(x + y)
    return net.classify(x, "fc")


def resnet18(net: Layers, image: Array) -> Array:
    return resnet(net, image, (2, 2, 2, 2), bottleneck=False)


def resnet50(net: Layers, image: Array) -> Array:
    return resnet(net, image, (3, 4, 6, 3), bottleneck=True)


def mobilenetv2(net: Layers, image: Array) -> Array:
    def layer(x: Array, conv: str, norm: str, outputs: int, size: int, stride: int = 1, groups: int = 1) -> Array:
        return net.normalize(net.convolve(x, conv, outputs, size, stride, groups), norm)

    def relu6(x: Array) -> Array:
        return np.clip(x, 0, 6)

    x = relu6(layer(image, "features.0.0", "features.0.1", 32, 3, 2))
    index = 1
    for expand, outputs, count, stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for number in range(count):
            path = f"features.{index}.conv"
            inner, step = expand * x.shape[1], stride if number == 0 else 1
            y, at = x, 0
            if expand > 1:
                y, at = relu6(layer(y, f"{path}.0.0", f"{path}.0.1", inner, 1)), 1
            y = relu6(layer(y, f"{path}.{at}.0", f"{path}.{at}.1", inner, 3, step, groups=inner))
            y = layer(y, f"{path}.{at + 1}", f"{path}.{at + 2}", outputs, 1)
            x = x + y if y.shape == x.shape else y
            index += 1
    x = relu6(layer(x, "features.18.0", "features.18.1", 1280, 1))
    return net.classify(x, "classifier.1")


# What torchvision counts, without the statistics of the norms.
PARAMETERS = {resnet18: 11_689_512, resnet50: 25_557_032, mobilenetv2: 3_504_872}


def write_network(network: Callable[[Layers, Array], Array], folder: Path) -> tuple[Array, Array]:
    """Writes the model of a network and its weights. Returns two images and the results for them."""
    image = np.random.default_rng(1).standard_normal((2, 3, SIDE, SIDE)).astype(np.float32)
    net, name = Layers(), network.__name__
    expected = network(net, image.astype(np.float64))
    learned = sum(array.size for key, array in net.stored.items() if "running_" not in key)
    assert learned == PARAMETERS[network]
    save_file(net.stored, folder / f"{name}.safetensors")
    shutil.copy(FOLDER / "resnet.nacre", folder)
    text = (FOLDER / f"{name}.nacre").read_text(encoding="utf-8")
    assert text.count("side = 224\n") == 1
    (folder / f"{name}.nacre").write_text(text.replace("side = 224\n", f"side = {SIDE}\n"), encoding="utf-8")
    return image, expected


@pytest.mark.parametrize("network", PARAMETERS, ids=lambda network: network.__name__)
def test_network(network: Callable[[Layers, Array], Array], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if network is not mobilenetv2:
        # The checks of the large ones take minutes; their results are compared below, as all are.
        request.getfixturevalue("unchecked")
    image, expected = write_network(network, tmp_path)
    name = network.__name__
    model = nacre.compile(tmp_path / f"{name}.nacre", tmp_path / f"{name}.so")
    for images, wanted in ((image, expected), (image[1:], expected[1:])):
        error = np.abs(model(images) - wanted).max() / np.abs(wanted).max()
        assert error <= ROUNDINGS * np.finfo(np.float32).eps, error / np.finfo(np.float32).eps


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.nacre")), ids=lambda path: path.stem)
def test_text_is_free_of_faults_and_formatted(path: Path) -> None:
    assert nacre.check(path) == []
    text = path.read_text(encoding="utf-8")
    assert format_source(text, path.name) == text
