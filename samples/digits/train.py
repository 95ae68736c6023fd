"""Trains the digits network with Nacre, and writes `digits.safetensors` and `test_images.npz` beside this file.

    python samples/digits/train.py            # half a minute; the results are the same in every run on a machine
    python samples/digits/train.py --picture losses.svg

The network and its update are in training.nacre. The data are the 1797 images of `sklearn.datasets.load_digits` (8x8
pixels of 0..16), in their own order. The first 1437 train; the last 360 are held out, and no choice was based on them.
Widths, epochs and distortions were chosen with `--validate`, which trains on the first 1077 images and prints the
accuracy on the 360 after them. The picture needs matplotlib.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import numpy.typing as npt
from nacre.compiler.tools.plots import check_plot, draw_curves
from safetensors.numpy import save_file
from sklearn.datasets import load_digits

Array = npt.NDArray[Any]
HERE = Path(__file__).parent
TRAINING, VALIDATION = 1437, 1077
EPOCHS, BATCH, RATE, SEED = 80, 64, 3e-3, 0
LAYERS = ("edges", "strokes", "shapes", "hidden", "answer")


def move(images: Array, random: np.random.Generator) -> Array:
    """Rotates, shears, scales and shifts each image a little, with bilinear interpolation and zeros outside."""
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


def train(images: Array, labels: Array, epochs: int) -> tuple[dict[str, Array], list[float]]:
    """Returns the running means of the weights, by the names of digits.nacre, and the mean loss of each epoch. The rate
    falls as a cosine."""
    random = np.random.default_rng(SEED)
    session = nacre.compile(HERE / "training.nacre").session()
    number, steps = 0, epochs * (len(images) // BATCH)
    means: list[float] = []
    for epoch in range(epochs):
        moved = move(images, random)
        order = random.permutation(len(images))
        losses: list[float] = []
        for start in range(0, len(images) - BATCH + 1, BATCH):
            batch = order[start : start + BATCH]
            number += 1
            rate = np.float32(RATE * (1 + np.cos(np.pi * number / steps)) / 2)
            losses.append(float(session.step(moved[batch], labels[batch], rate)))
        means.append(float(np.mean(losses)))
        if epoch % 20 == 19:
            print(f"epoch {epoch + 1} of {epochs}, loss {means[-1]:.4f}", flush=True)
    names = (f"{layer}.{key}" for layer in LAYERS for key in ("weight", "bias"))
    return {name: session.states[f"averaged.{name}.mean"] for name in names}, means


def main() -> None:
    parser = argparse.ArgumentParser(description="train the digits network")
    parser.add_argument(
        "--validate", action="store_true", help="train on fewer images, print the accuracy on others, write nothing"
    )
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--picture", type=Path, help="draw the losses: .svg, .png or .pdf")
    options = parser.parse_args()
    if options.picture is not None:
        check_plot(options.picture)
    data = load_digits()
    images, labels = data.images.astype(np.uint8), data.target.astype(np.int64)
    start, end = (VALIDATION, TRAINING) if options.validate else (TRAINING, len(images))
    weights, losses = train(images[:start], labels[:start], options.epochs)
    if options.picture is not None:
        steps = start // BATCH * np.arange(1, len(losses) + 1)
        draw_curves(options.picture, {"training": (steps.tolist(), losses)}, "mean loss of an epoch")
    classify = nacre.compile(HERE / "digits.nacre", weights=weights)
    parts = [classify(images[at : min(at + 90, end)].astype(np.float32)) for at in range(start, end, 90)]
    right = np.concatenate(parts).argmax(axis=1) == labels[start:end]
    print(f"{right.sum()} of {len(right)} right: {right.mean():.2%}")
    if options.validate:
        return
    save_file(weights, HERE / "digits.safetensors")
    np.savez_compressed(HERE / "test_images.npz", images=images[start:], labels=labels[start:].astype(np.uint8))


if __name__ == "__main__":
    main()
