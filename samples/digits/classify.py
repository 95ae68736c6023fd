"""Compiles `digits.nacre`, classifies handwritten digits that were not used for training, and draws the results.

    python samples/digits/classify.py              # one digit, and a row of others
    python samples/digits/classify.py 315          # another of the 360 held-out images: 0 to 359

The output has at most 80 columns, and uses plain characters if the terminal has no colours or no UTF-8. The last lines
give the accuracy on all held-out images.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nacre
import numpy as np
import numpy.typing as npt
from rich.color import Color
from rich.console import Console, Group
from rich.style import Style
from rich.table import Table
from rich.text import Text

HERE = Path(__file__).parent
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
BAR = 36  # columns of a bar that stands for 1
SHOWN, IN_ROW = 12, 7
LARGEST_BATCH = 256  # `dim B` of digits.nacre

Array = npt.NDArray[Any]


class Painter:
    """Draws images and bars for one terminal: by coloured cells, shaded characters, or ASCII."""

    def __init__(self, console: Console) -> None:
        self.colours = console.color_system in ("256", "truecolor")
        self.unicode = console.encoding.lower().startswith("utf")
        self.ramp = " ░▒▓█" if self.unicode else " .:*@"

    def colour(self, grey: int) -> Color:
        """Paper is nearly black and ink nearly white."""
        level = round(28 + grey / 16 * 220)
        return Color.from_rgb(level, level, min(255, level + 6))

    def picture(self, image: Array) -> list[Text]:
        """Eight lines, two columns for a pixel."""
        if self.colours:
            return [Text.assemble(*(("  ", Style(bgcolor=self.colour(g))) for g in row)) for row in image.tolist()]
        return [Text("".join(self.shade(g) * 2 for g in row)) for row in image.tolist()]

    def thumbnail(self, image: Array) -> list[Text]:
        """Four lines of eight half blocks, each two pixels; eight lines where those cannot be drawn."""
        if not self.unicode:
            return [Text("".join(map(self.shade, row))) for row in image.tolist()]
        pairs = [zip(image[y].tolist(), image[y + 1].tolist(), strict=True) for y in range(0, 8, 2)]
        if self.colours:
            style = [[Style(color=self.colour(a), bgcolor=self.colour(b)) for a, b in row] for row in pairs]
            return [Text.assemble(*(("▀", s) for s in row)) for row in style]
        return [Text("".join(" ▄▀█"[2 * (a >= 8) + (b >= 8)] for a, b in row)) for row in pairs]

    def shade(self, grey: int) -> str:
        return self.ramp[min(4, (grey + 2) // 4)]

    def bar(self, probability: float, style: str) -> Text:
        if not self.unicode:
            return Text("#" * round(probability * BAR), style)
        eighths = round(probability * BAR * 8)
        return Text("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip(), style)

    def frame(self, lines: list[Text]) -> list[Text]:
        """Draws a box around the lines."""
        corners, across, down = ("┌┐└┘", "─", "│") if self.unicode else ("++++", "-", "|")
        width = lines[0].cell_len
        top, bottom = corners[0] + across * width + corners[1], corners[2] + across * width + corners[3]
        dim = Style(dim=True)
        return [
            Text(top, dim),
            *(Text.assemble((down, dim), line, (down, dim)) for line in lines),
            Text(bottom, dim),
        ]


def show_answer(painter: Painter, image: Array, label: int, probabilities: Array) -> Table:
    """The image beside a bar for each digit; the answer is green, or red where the digit is another one."""
    answer = int(probabilities.argmax())
    bars = []
    for digit, p in enumerate(probabilities.tolist()):
        style = "" if digit not in (answer, label) else "bold green" if digit == label else "bold red"
        bars.append(Text.assemble((f"{digit} {p:6.1%} ", style), painter.bar(p, style or "blue")))
    table = Table.grid(padding=(0, 3))
    table.add_row(Group(*painter.frame(painter.picture(image))), Group(*bars))
    return table


def show_row(painter: Painter, images: Array, labels: Array, answers: Array) -> Table:
    """Draws small images, each with its answer below."""
    table = Table.grid(padding=(0, 2))
    captions = []
    for label, answer in zip(labels.tolist(), answers.tolist(), strict=True):
        right = label == answer
        text = str(answer) if right else f"{answer}, not {label}"
        captions.append(Text(text.center(8), "green" if right else "bold red"))
    table.add_row(*(Group(*painter.thumbnail(image)) for image in images))
    table.add_row(*captions)
    return table


def main() -> int:
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    with np.load(HERE / "test_images.npz") as file:
        images, labels = file["images"], file["labels"]
    parser = argparse.ArgumentParser(description="classify handwritten digits with a compiled Nacre model")
    parser.add_argument(
        "index",
        type=int,
        nargs="?",
        default=SHOWN,
        help=f"number of a held-out image: 0 to {len(images) - 1}",
    )
    shown = parser.parse_args().index
    if shown not in range(len(images)):
        parser.error(f"there is no image {shown}: the images are 0 to {len(images) - 1}")

    start = time.perf_counter()
    try:
        # Not in the cache of `nacre.compile`: the program prints the time of the compilation.
        with TemporaryDirectory() as folder, Console(stderr=True).status("compiling digits.nacre"):
            model = nacre.compile(HERE / "digits.nacre", Path(folder) / "digits.so")
    except (nacre.DiagnosticError, nacre.NacreError) as error:
        print(error, file=sys.stderr)
        return 1
    compiling = time.perf_counter() - start

    inputs = images.astype(np.float32)
    parts = [model(inputs[i : i + LARGEST_BATCH]) for i in range(0, len(inputs), LARGEST_BATCH)]
    probabilities = np.concatenate(parts)
    answers = probabilities.argmax(axis=1)
    one = inputs[shown : shown + 1]
    times = []
    for _ in range(200):
        start = time.perf_counter()
        model(one)
        times.append(time.perf_counter() - start)

    painter = Painter(console)
    answer, label = int(answers[shown]), int(labels[shown])
    console.print(f"\nHeld-out image {shown} shows: {NAMES[label]}. The model says: {NAMES[answer]}.\n")
    console.print(show_answer(painter, images[shown], label, probabilities[shown]))
    others = [(shown + 1 + i) % len(images) for i in range(IN_ROW)]
    console.print(f"\nImages {others[0]} to {others[-1]}:\n")
    console.print(show_row(painter, images[others], labels[others], answers[others]))
    right = int((answers == labels).sum())
    console.print(
        f"\nOf all {len(labels)} held-out images, it classifies {right} correctly: {right / len(labels):.2%}."
    )
    console.print(
        f"Compiled in {compiling:.2f} s; one image takes {statistics.median(times) * 1e6:.0f} microseconds.\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
