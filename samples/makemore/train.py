"""Trains makemore's network on a list of names with Nacre, draws its losses, and writes new names.

    python samples/makemore/train.py names.txt --picture losses.svg

The published run (https://github.com/karpathy/nn-zero-to-hero, lecture 3) has the losses 2.1260 on the names that train
and 2.1701 on those of the development set, after 200000 steps of 32 letters. Eight tenths of the shuffled names train,
and one tenth is the development set. Other random numbers change the losses by about 0.02: here they are 2.1051 and
2.1469. With `--published`, the numbers are those of the published run, which PyTorch draws, and the losses are 2.1258
and 2.1678. The picture needs matplotlib.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import numpy.typing as npt
from nacre.compiler.tools.plots import check_plot, draw_curves

Array = npt.NDArray[Any]
LETTERS = ".abcdefghijklmnopqrstuvwxyz"
BATCH, WINDOW = 32, 1000


def examples(names: list[str]) -> tuple[Array, Array]:
    """Three letters and the next one, for each letter of each name and for its end; `.` stands outside of names."""
    texts = [f"...{name}." for name in names]
    found = [[LETTERS.index(c) for c in text[i : i + 4]] for text in texts for i in range(len(text) - 3)]
    table = np.array(found, np.int64)
    return np.ascontiguousarray(table[:, :3]), np.ascontiguousarray(table[:, 3])


def mean_loss(session: Any, context: Array, following: Array, size: int = 8192) -> float:
    starts = range(0, len(context), size)
    losses = [float(session.loss(context[i : i + size], following[i : i + size])) for i in starts]
    return float(np.average(losses, weights=[len(context[i : i + size]) for i in starts]))


def write_name(session: Any, draw: np.random.Generator) -> str:
    letters = [0, 0, 0]
    while len(letters) == 3 or letters[-1]:
        shares = session.predict(np.array([letters[-3:]], np.int64))[0].astype(np.float64)
        letters.append(int(draw.choice(len(LETTERS), p=shares / shares.sum())))
    return "".join(LETTERS[i] for i in letters[3:-1])


def published_draws(session: Any, examples: int) -> Callable[[], Array]:
    """Sets the initial values of the published run, and returns a function that draws its batches."""
    import torch  # noqa: PLC0415  # the published run uses its generator

    generator = torch.Generator().manual_seed(2147483647)
    for name in ("table", "inner", "inner_bias", "outer", "outer_bias"):
        shape = session.states.shape(f"net.{name}")
        session.states[f"net.{name}"] = torch.randn(shape, generator=generator)
    return lambda: torch.randint(0, examples, (BATCH,), generator=generator).numpy()


def draw_losses(losses: Array, path: Path) -> None:
    """Draws the mean loss of each thousand steps."""
    size = min(WINDOW, len(losses))
    means = losses[: len(losses) // size * size].reshape(-1, size).mean(axis=1)
    steps = size * np.arange(1, len(means) + 1)
    draw_curves(path, {"training": (steps.tolist(), means.tolist())}, f"mean loss of {size} steps")


def main() -> None:
    parser = argparse.ArgumentParser(description="train makemore's network on names")
    parser.add_argument("names", type=Path, help="a name a line, in small letters")
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--picture", type=Path, help="draw the losses: .svg, .png or .pdf")
    parser.add_argument("--published", action="store_true", help="draw the random numbers of the published run")
    options = parser.parse_args()
    if options.picture is not None:
        check_plot(options.picture)
    names = options.names.read_text(encoding="utf-8").split()
    random.Random(42).shuffle(names)
    training = examples(names[: len(names) * 8 // 10])
    development = examples(names[len(names) * 8 // 10 : len(names) * 9 // 10])
    session = nacre.compile(Path(__file__).with_name("makemore.nacre")).session()
    draw = np.random.default_rng(0)
    count = len(training[0])
    draw_batch = published_draws(session, count) if options.published else lambda: draw.integers(0, count, BATCH)
    losses = np.empty(options.steps)
    for number in range(options.steps):
        batch = draw_batch()
        rate = np.float32(0.1 if number < options.steps // 2 else 0.01)
        losses[number] = session.step(training[0][batch], training[1][batch], rate)
    session.save("makemore.safetensors")
    if options.picture is not None:
        draw_losses(losses, options.picture)
    print(
        f"{options.steps} steps: {mean_loss(session, *training):.4f}, {mean_loss(session, *development):.4f} held out"
    )
    print(" ".join(write_name(session, draw) for _ in range(10)))


if __name__ == "__main__":
    main()
