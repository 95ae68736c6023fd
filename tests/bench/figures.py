"""Measures what the project says of itself, and prints a table: `python tests/bench/figures.py [--checkpoint FOLDER]`.

The folder holds all-MiniLM-L6-v2 (config.json, model.safetensors, tokenizer.json), as `samples/minilm/embed.py` fetches
it. Times on shared cores are medians and no more than an indication; errors and sizes are exact.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import nacre
import numpy as np
from nacre.dialect.ops import OPERATORS

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "samples"
ONE_ELEMENT = "model one(x: f32[1]) -> f32[1] { return x + 1 }\n"
Row = tuple[str, str]


def median_seconds(call: Callable[[], object], runs: int) -> float:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def child_seconds(code: str) -> float:
    return median_seconds(lambda: subprocess.run([sys.executable, "-c", code], check=True), 9)


def measure_import() -> Iterator[Row]:
    bare, numpy, ours = (child_seconds(code) for code in ("pass", "import numpy", "import nacre; nacre.load"))
    yield "`import nacre; nacre.load`, beyond `import numpy`", f"{(ours - numpy) * 1e3:.0f} ms"
    yield "`import numpy`, beyond an empty Python", f"{(numpy - bare) * 1e3:.0f} ms"


def measure_call(folder: Path) -> Iterator[Row]:
    model = nacre.compile(ONE_ELEMENT, folder / "one.so")
    entry, x = model.entries["one"], np.zeros(1, np.float32)

    def thousand() -> None:
        for _ in range(1000):
            entry(x)

    thousand()
    yield "one call from Python, 1 element", f"{median_seconds(thousand, 21) * 1e3:.2f} us"


def compile_report(command: list[str]) -> tuple[float, float]:
    """Seconds and peak resident MiB (of the largest process) of a `nacre compile`."""
    before = time.perf_counter()
    subprocess.run([sys.executable, "-m", "nacre.compiler.cli.main", "compile", *command], check=True)
    seconds = time.perf_counter() - before
    return seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def measure_digits(folder: Path) -> Iterator[Row]:
    output = folder / "digits.so"
    seconds, peak = compile_report([str(SAMPLES / "digits/digits.nacre"), "-o", str(output)])
    with np.load(SAMPLES / "digits/test_images.npz") as data:
        images, labels = data["images"].astype(np.float32), data["labels"]
    model = nacre.load(output)
    answers = np.concatenate([model(images[i : i + 256]).argmax(axis=1) for i in range(0, len(images), 256)])
    yield "digits: held-out accuracy", f"{(answers == labels).mean():.2%} of {len(labels)}"
    yield "digits: compile", f"{seconds:.1f} s, peak {peak:.0f} MiB"
    yield "digits: artifact", f"{output.stat().st_size:,} bytes"


def measure_minilm(folder: Path, checkpoint: Path) -> Iterator[Row]:
    output = folder / "minilm.so"
    command = [str(SAMPLES / "minilm/minilm.nacre"), "--checkpoint", str(checkpoint), "-o", str(output)]
    seconds, peak = compile_report(command)
    yield "minilm: compile", f"{seconds:.1f} s, peak {peak:.0f} MiB"
    yield "minilm: artifact", f"{output.stat().st_size:,} bytes"
    model = nacre.load(output)
    rng = np.random.default_rng(0)
    for length in (1, 7, 16, 128, 512):
        ids = rng.integers(1000, 20000, (1, length))
        mask = np.ones_like(ids)
        model(ids, mask)
        yield f"minilm: batch 1, T={length}", f"{median_seconds(partial(model, ids, mask), 7) * 1e3:.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path)
    arguments = parser.parse_args()
    rows: list[Row] = [("operators", str(len(OPERATORS))), ("cores", str(len(os.sched_getaffinity(0))))]
    with TemporaryDirectory() as name:
        folder = Path(name)
        rows += [*measure_import(), *measure_call(folder), *measure_digits(folder)]
        if arguments.checkpoint is not None:
            rows += measure_minilm(folder, arguments.checkpoint)
    print("| what | measured |\n|---|---|")
    for what, value in rows:
        print(f"| {what} | {value} |")


if __name__ == "__main__":
    main()
