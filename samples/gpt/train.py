"""Trains a character GPT on a text with Nacre, and writes a text with it.

    python samples/gpt/train.py tinyshakespeare.txt --minutes 15 --picture losses.svg

The last tenth of the text is held out. The rate falls as a cosine over the given time, so a slower machine takes fewer
steps. The model is in gpt.nacre; one artifact holds the training step, the loss, and the prediction. The picture needs
matplotlib.

With `--steps 2000 --rate 1e-3`, the sizes, the rates and the number of steps are those of the small configuration of
nanoGPT (https://github.com/karpathy/nanoGPT), whose held-out loss is 1.88. The one here is 1.899.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import numpy.typing as npt
from nacre.compiler.tools.plots import check_plot, draw_curves

Array = npt.NDArray[Any]
HERE = Path(__file__).parent
BATCH, CONTEXT, WARM_UP = 12, 64, 100
CHECK = 250
"""The number of steps between two held-out losses."""


def batch(text: Array, random: np.random.Generator, count: int = BATCH) -> tuple[Array, Array]:
    """Random pieces of the text, and the same pieces one character later."""
    starts = random.integers(0, len(text) - CONTEXT - 1, count)
    pieces = np.stack([text[start : start + CONTEXT + 1] for start in starts])
    return np.ascontiguousarray(pieces[:, :-1]), np.ascontiguousarray(pieces[:, 1:])


def held_out_loss(session: Any, text: Array, batches: int = 40) -> float:
    random = np.random.default_rng(1)
    return float(np.mean([float(session.loss(*batch(text, random, 32))) for _ in range(batches)]))


def write(session: Any, characters: list[str], count: int, temperature: float = 0.8) -> str:
    """A text of `count` characters: each is drawn from the prediction for those before it."""
    random = np.random.default_rng(2)
    ids = [characters.index("\n")]
    while len(ids) <= count:
        scores = session.predict(np.array([ids[-CONTEXT:]], np.int64))[0].astype(np.float64) / temperature
        shares = np.exp(scores - scores.max())
        ids.append(int(random.choice(len(shares), p=shares / shares.sum())))
    return "".join(characters[i] for i in ids[1:])


def draw_losses(losses: list[float], checks: dict[int, float], path: Path) -> None:
    """Draws the mean loss of each `CHECK` steps, and the held-out losses by their steps."""
    steps = list(checks)
    means = [float(np.mean(losses[max(0, step - CHECK) : step])) for step in steps]
    draw_curves(path, {"training": (steps, means), "held out": (steps, list(checks.values()))}, "loss per character")


def main() -> None:
    parser = argparse.ArgumentParser(description="train a character GPT")
    parser.add_argument("text", type=Path)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--steps", type=int, help="number of steps, instead of a time")
    parser.add_argument("--rate", type=float, default=2e-3, help="the greatest learning rate")
    parser.add_argument("--picture", type=Path, help="draw the losses: .svg, .png or .pdf")
    options = parser.parse_args()
    if options.picture is not None:
        check_plot(options.picture)
    content = options.text.read_text(encoding="utf-8")
    characters = sorted(set(content))
    known = {character: number for number, character in enumerate(characters)}
    ids = np.array([known[character] for character in content], np.int64)
    training, held_out = ids[: len(ids) * 9 // 10], ids[len(ids) * 9 // 10 :]
    settings = {"characters": len(characters), "context": CONTEXT}
    session = nacre.compile(HERE / "gpt.nacre", settings=settings).session()
    random = np.random.default_rng(0)
    losses: list[float] = []
    checks: dict[int, float] = {}
    start, step, done = time.monotonic(), 0, 0.0
    while done < 1:
        rate = options.rate * min(1, (step + 1) / WARM_UP) * (0.1 + 0.45 * (1 + np.cos(np.pi * done)))
        losses.append(float(session.step(*batch(training, random), np.float32(rate))))
        step += 1
        seconds = time.monotonic() - start
        done = step / options.steps if options.steps else seconds / (60 * options.minutes)
        if step % CHECK == 0:
            checks[step] = held_out_loss(session, held_out)
            print(f"step {step}, {seconds:.0f} s, loss {losses[-1]:.4f}, held out {checks[step]:.4f}", flush=True)
    session.save("gpt.safetensors")
    checks[step] = held_out_loss(session, held_out, 200)
    if options.picture is not None:
        draw_losses(losses, checks, options.picture)
    print(f"step {step}: held out {checks[step]:.4f}\n")
    print(write(session, characters, 500))


if __name__ == "__main__":
    main()
