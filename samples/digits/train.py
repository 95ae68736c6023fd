"""Trains the digits network with numpy alone and writes `digits.safetensors` and `test_images.npz` beside this file.

    python samples/digits/train.py            # half a minute; one machine gives the same numbers every time

The data are the 1797 images of `sklearn.datasets.load_digits` (8x8 pixels of 0..16), in their own order. The first 1437
train; the last 360 are held out, and nothing was chosen by looking at them. What was chosen (widths, epochs, how images
are moved) was chosen with `--validate`, which trains on the first 1077 and tells the accuracy on the 360 after them.
scikit-learn gives the images and does nothing else.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file
from sklearn.datasets import load_digits

Array = npt.NDArray[Any]
HERE = Path(__file__).parent
TRAINING, VALIDATION = 1437, 1077
EPOCHS, BATCH, RATE, SEED = 80, 64, 3e-3, 0


@dataclass
class Layer:
    """One step of the network: `forward` remembers what `backward` needs, `backward` leaves the gradients."""

    name: str = ""
    parameters: dict[str, Array] = field(default_factory=dict)
    gradients: dict[str, Array] = field(default_factory=dict)

    def forward(self, x: Array) -> Array:
        raise AssertionError(type(self))

    def backward(self, gradient: Array) -> Array:
        raise AssertionError(type(self))


class Convolution(Layer):
    """3x3, as wide and high as its input. Columns of patches turn it into one matrix product."""

    def __init__(self, name: str, inputs: int, outputs: int, random: np.random.Generator) -> None:
        scale = np.sqrt(2 / (inputs * 9))
        weight = random.normal(0, scale, (outputs, inputs, 3, 3)).astype(np.float32)
        super().__init__(name, {"weight": weight, "bias": np.zeros(outputs, np.float32)})

    def forward(self, x: Array) -> Array:
        batch, inputs, height, width = self.shape = x.shape
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        patches = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        self.columns = patches.transpose(0, 2, 3, 1, 4, 5).reshape(batch * height * width, inputs * 9)
        weight = self.parameters["weight"]
        y = self.columns @ weight.reshape(len(weight), -1).T + self.parameters["bias"]
        return y.reshape(batch, height, width, -1).transpose(0, 3, 1, 2)

    def backward(self, gradient: Array) -> Array:
        batch, inputs, height, width = self.shape
        weight = self.parameters["weight"]
        rows = gradient.transpose(0, 2, 3, 1).reshape(-1, len(weight))
        self.gradients = {"weight": (rows.T @ self.columns).reshape(weight.shape), "bias": rows.sum(axis=0)}
        patches = (rows @ weight.reshape(len(weight), -1)).reshape(batch, height, width, inputs, 3, 3)
        padded = np.zeros((batch, inputs, height + 2, width + 2), np.float32)
        for i in range(3):
            for j in range(3):
                padded[:, :, i : i + height, j : j + width] += patches[..., i, j].transpose(0, 3, 1, 2)
        return padded[:, :, 1:-1, 1:-1]


class Linear(Layer):
    def __init__(self, name: str, inputs: int, outputs: int, random: np.random.Generator) -> None:
        weight = random.normal(0, np.sqrt(2 / inputs), (outputs, inputs)).astype(np.float32)
        super().__init__(name, {"weight": weight, "bias": np.zeros(outputs, np.float32)})

    def forward(self, x: Array) -> Array:
        self.x = x
        return x @ self.parameters["weight"].T + self.parameters["bias"]

    def backward(self, gradient: Array) -> Array:
        self.gradients = {"weight": gradient.T @ self.x, "bias": gradient.sum(axis=0)}
        return gradient @ self.parameters["weight"]


class Relu(Layer):
    def forward(self, x: Array) -> Array:
        self.positive = x > 0
        return x * self.positive

    def backward(self, gradient: Array) -> Array:
        return gradient * self.positive


class MaxPool(Layer):
    """2x2, halving both sides. Where two of the four are equal, each takes its share of the gradient."""

    def forward(self, x: Array) -> Array:
        batch, channels, height, width = x.shape
        cells = x.reshape(batch, channels, height // 2, 2, width // 2, 2)
        y: Array = cells.max(axis=(3, 5), keepdims=True)
        largest = cells == y
        self.share = largest / largest.sum(axis=(3, 5), keepdims=True, dtype=np.float32)
        self.shape = x.shape
        return y[:, :, :, 0, :, 0]

    def backward(self, gradient: Array) -> Array:
        return (self.share * gradient[:, :, :, None, :, None]).reshape(self.shape)


class Flatten(Layer):
    def forward(self, x: Array) -> Array:
        self.shape = x.shape
        return x.reshape(len(x), -1)

    def backward(self, gradient: Array) -> Array:
        return gradient.reshape(self.shape)


class Dropout(Layer):
    """A quarter of the features is silent in each step of training; `random` is None afterwards."""

    random: np.random.Generator | None = None

    def forward(self, x: Array) -> Array:
        self.kept = np.ones_like(x)
        if self.random is not None:
            self.kept = (self.random.random(x.shape, np.float32) < 0.75) / np.float32(0.75)
        return x * self.kept

    def backward(self, gradient: Array) -> Array:
        return gradient * self.kept


def make_network(random: np.random.Generator) -> list[Layer]:
    """The layers of `digits.nacre`, whose parameters have these names."""
    return [
        Convolution("edges", 1, 16, random),
        Relu(),
        Convolution("strokes", 16, 32, random),
        Relu(),
        MaxPool(),
        Convolution("shapes", 32, 64, random),
        Relu(),
        MaxPool(),
        Flatten(),
        Dropout(),
        Linear("hidden", 256, 64, random),
        Relu(),
        Linear("answer", 64, 10, random),
    ]


def predict(network: list[Layer], images: Array) -> Array:
    """The logits of images of 0..16."""
    x = images[:, None].astype(np.float32) / 16
    for layer in network:
        x = layer.forward(x)
    return x


def move(images: Array, random: np.random.Generator) -> Array:
    """Each image turned, slanted, scaled and shifted a little, read with bilinear weights; zero outside."""
    count = len(images)
    turn, slant = random.uniform(-0.2, 0.2, count), random.uniform(-0.2, 0.2, count)
    scale = random.uniform(0.88, 1.12, (2, count))
    shift = random.uniform(-1, 1, (2, count))
    y, x = (axis.reshape(1, -1) - 3.5 for axis in np.mgrid[0:8, 0:8].astype(float))
    cos, sin = np.cos(turn)[:, None], np.sin(turn)[:, None]
    rows = (cos * y - sin * x) * scale[0][:, None] + 3.5 + shift[0][:, None]
    columns = (sin * y + (cos + slant[:, None] * sin) * x + slant[:, None] * cos * y) * scale[1][:, None]
    columns += 3.5 + shift[1][:, None]
    padded = np.pad(images.astype(float), ((0, 0), (2, 2), (2, 2)))
    rows, columns = np.clip(rows + 2, 0, 10.999), np.clip(columns + 2, 0, 10.999)
    top, left = rows.astype(int), columns.astype(int)
    down, right = rows - top, columns - left
    which = np.arange(count)[:, None]
    upper = padded[which, top, left] * (1 - right) + padded[which, top, left + 1] * right
    lower = padded[which, top + 1, left] * (1 - right) + padded[which, top + 1, left + 1] * right
    return (upper * (1 - down) + lower * down).reshape(count, 8, 8).astype(np.float32)


def train(images: Array, labels: Array, epochs: int) -> list[Layer]:
    """Adam with a cosine schedule, smoothed labels; the result is a running mean of the weights."""
    random = np.random.default_rng(SEED)
    network = make_network(random)
    for layer in network:
        if isinstance(layer, Dropout):
            layer.random = random
    places = [(layer, key) for layer in network for key in layer.parameters]
    first, second, mean = ([np.zeros_like(layer.parameters[key]) for layer, key in places] for _ in range(3))
    targets = np.full((10, 10), 0.01, np.float32) + np.eye(10, dtype=np.float32) * 0.9
    step, steps = 0, epochs * (len(images) // BATCH)
    for epoch in range(epochs):
        moved = move(images, random)
        order = random.permutation(len(images))
        for start in range(0, len(images) - BATCH + 1, BATCH):
            batch = order[start : start + BATCH]
            logits = predict(network, moved[batch])
            odds = np.exp(logits - logits.max(axis=1, keepdims=True))
            gradient = (odds / odds.sum(axis=1, keepdims=True) - targets[labels[batch]]) / np.float32(BATCH)
            for layer in reversed(network):
                gradient = layer.backward(gradient)
            step += 1
            rate = RATE * (1 + np.cos(np.pi * step / steps)) / 2
            for i, (layer, key) in enumerate(places):
                g = layer.gradients[key]
                first[i] = 0.9 * first[i] + 0.1 * g
                second[i] = 0.999 * second[i] + 0.001 * g * g
                change = first[i] / (1 - 0.9**step) / (np.sqrt(second[i] / (1 - 0.999**step)) + 1e-8)
                weight = layer.parameters[key]
                layer.parameters[key] = (weight - rate * (change + 0.01 * weight)).astype(np.float32)
                mean[i] += min(1.0, max(0.01, 1 / step)) * (layer.parameters[key] - mean[i])
        if epoch % 20 == 19:
            print(f"epoch {epoch + 1} of {epochs}", flush=True)
    for (layer, key), value in zip(places, mean, strict=True):
        layer.parameters[key] = value.astype(np.float32)
    for layer in network:
        if isinstance(layer, Dropout):
            layer.random = None
    return network


def main() -> None:
    parser = argparse.ArgumentParser(description="train the digits network")
    parser.add_argument(
        "--validate", action="store_true", help="train on less, tell the accuracy on the rest, write nothing"
    )
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    options = parser.parse_args()
    data = load_digits()
    images, labels = data.images.astype(np.uint8), data.target.astype(np.int64)
    start, end = (VALIDATION, TRAINING) if options.validate else (TRAINING, len(images))
    network = train(images[:start], labels[:start], options.epochs)
    right = predict(network, images[start:end]).argmax(axis=1) == labels[start:end]
    print(f"{right.sum()} of {len(right)} right: {right.mean():.2%}")
    if options.validate:
        return
    tensors = {f"{layer.name}.{key}": value for layer in network for key, value in layer.parameters.items()}
    save_file(tensors, HERE / "digits.safetensors")
    np.savez_compressed(HERE / "test_images.npz", images=images[start:], labels=labels[start:].astype(np.uint8))


if __name__ == "__main__":
    main()
