"""Adapts MiniLM to distinguish sentences of the same meaning from those of the opposite meaning, with Nacre.

    python samples/minilm/adapt.py --picture losses.svg

MiniLM gives "The room is warm." and "The room is cold." almost the same vector. The step in adapt.nacre trains low-rank
adapters of the attention in the last two layers, 12288 numbers, and leaves the 22.7 million weights as they are. The
adjectives that train and those that are held out have no word in common. The first run downloads the weights as
embed.py does. The picture needs matplotlib.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import numpy.typing as npt
from embed import encode, find_checkpoint, load_tokenizer
from nacre.compiler.tools.plots import check_plot, draw_curves

Array = npt.NDArray[Any]
TRAINING = """
warm heated cold; wet damp dry; loud noisy quiet; clean spotless dirty; huge enormous tiny; fast quick slow;
bright shiny dark; rich wealthy poor; strong powerful weak; old ancient new; smooth even rough; full packed empty;
cheap inexpensive expensive; safe secure dangerous; early premature late; thick fat thin"""
HELD_OUT = """
happy glad sad; difficult hard easy; brave courageous cowardly; silent mute talkative; correct right wrong;
beautiful pretty ugly; broad wide narrow; open unlocked closed"""
"""Words: one, another of the same meaning, and one of the opposite meaning."""
NOUNS = ("room", "place", "machine", "story")
NOUNS_HELD_OUT = ("answer", "person", "gate")
BATCH, RATE = 16, 1e-3


def sentences(words: str, nouns: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """A statement, one of the same meaning, and one of the opposite meaning."""
    groups = [group.split() for group in words.split(";")]
    return [
        (f"The {noun} is {one}.", f"The {noun} is {same}.", f"The {noun} is {opposite}.")
        for one, same, opposite in groups
        for noun in nouns
    ]


def targets(count: int) -> Array:
    """The argument `same` of the step: in each group of three sentences, only the pairs with the first one count."""
    same = np.full((3 * count, 3 * count), -1, np.float32)
    for first in range(0, 3 * count, 3):
        same[first, first + 1], same[first, first + 2] = 1, 0
    return same


def accuracy(
    embed: Any, tokenizer: Any, groups: list[tuple[str, str, str]], threshold: float | None = None
) -> tuple[float, float]:
    """Returns the share of pairs on the right side of a threshold, and the threshold, by default the best one."""
    vectors = np.stack([embed(*encode(tokenizer, group)) for group in groups])
    same = np.einsum("id,id->i", vectors[:, 0], vectors[:, 1])
    opposite = np.einsum("id,id->i", vectors[:, 0], vectors[:, 2])

    def share(at: float) -> float:
        return float(np.mean(np.concatenate([same > at, opposite <= at])))

    if threshold is None:
        threshold = max(np.concatenate([same, opposite]).tolist(), key=share)
    return share(threshold), threshold


def main() -> None:
    parser = argparse.ArgumentParser(description="adapt MiniLM to opposites")
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="a folder with the files of all-MiniLM-L6-v2")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--picture", type=Path, help="draw the losses: .svg, .png or .pdf")
    options = parser.parse_args()
    if options.picture is not None:
        check_plot(options.picture)
    checkpoint = find_checkpoint(options.checkpoint)
    tokenizer = load_tokenizer(checkpoint)
    session = nacre.compile(Path(__file__).with_name("adapt.nacre"), weights=checkpoint).session()
    training, held_out = sentences(TRAINING, NOUNS), sentences(HELD_OUT, NOUNS_HELD_OUT)

    def show(when: str) -> None:
        inside, threshold = accuracy(session.embed, tokenizer, training)
        outside, _ = accuracy(session.embed, tokenizer, held_out, threshold)
        print(f"{when}: {inside:.1%} of the pairs that train, {outside:.1%} of those held out", flush=True)

    show("before")
    draw, same = np.random.default_rng(0), targets(BATCH)
    losses: list[float] = []
    for number in range(options.steps):
        chosen = draw.choice(len(training), BATCH, replace=False)
        ids, mask = encode(tokenizer, [text for index in chosen for text in training[index]])
        losses.append(float(session.step(ids, mask, same, np.float32(RATE * (1 - number / options.steps)))))
        if number % 20 == 19:
            print(f"step {number + 1}, loss {losses[-1]:.4f}", flush=True)
    show("after")
    session.save("adapters.safetensors")
    if options.picture is not None:
        draw_curves(options.picture, {"training": (range(1, len(losses) + 1), losses)}, "loss of a step")


if __name__ == "__main__":
    main()
