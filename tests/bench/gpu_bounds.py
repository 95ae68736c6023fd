"""Writes gpu_bounds.md: a lower bound of the time of each sample's calls on a GPU, by its data sheet.

    python tests/bench/gpu_bounds.py

It needs no GPU, and measures nothing: `nacre profile --model` computes the same bounds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from nacre.compiler.api import read_model
from nacre.compiler.cli.device_profile import usual_dims
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.quantization.choose import in_precision
from nacre.compiler.targets.chips import CHIPS, Chip
from nacre.compiler.targets.target import parse_targets
from nacre.compiler.tools.profile.device_code import modules_of, read_code
from nacre.compiler.tools.profile.device_model import Bound, bound_calls
from nacre.compiler.weights.memory import open_arrays
from nacre.runtime.library import open_library
from nacre.runtime.observe import read_calls
from random_weights import random_weights

SAMPLES = Path(__file__).parents[2] / "samples"
PAGE = Path(__file__).with_name("gpu_bounds.md")
ENCODER = {
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}
"""MiniLM-L6."""
CHIP = CHIPS["h100"]
COLUMNS = ("sample", "entry", "sizes", "precision", "kernels", "launches", "Gflop", "MB", "µs", "bound by arithmetic")
HEAD = f"""# Bounds of the samples on a GPU

Lower bounds of the time of a call on {CHIP.device}, by its data sheet: each kernel reads and writes its
tensors once, at {CHIP.bandwidth / 1e9:,.0f} GB/s, and computes at the rate of its instructions:
{CHIP.flops / 1e12:.4g} TFLOP/s, or {CHIP.rate("f16") / 1e12:.4g} in products of f16 and bf16. No launch and no wait is
counted, so that a call takes longer, most of all where kernels are small. Values that stay in the L2 cache between two
kernels move faster. Nothing here is measured. The last column is the share of the bound in kernels that arithmetic
bounds; memory bounds the others. `python tests/bench/gpu_bounds.py` writes this file, with random weights.
`nacre profile --model {CHIP.name}` prints the bound of each kernel of a call.

"""


@dataclass(frozen=True)
class Sample:
    """A model file, the sizes of its calls where they are not the usual ones, and its precisions."""

    file: str
    dims: Sequence[Mapping[str, int]] = ({},)
    precisions: Sequence[str] = ("", "bf16")


ALL = (
    Sample("digits/digits.nacre", ({"B": 1}, {"B": 256})),
    Sample("digits/training.nacre", precisions=("",)),
    Sample("gpt/gpt.nacre", precisions=("",)),
    Sample("makemore/makemore.nacre", precisions=("",)),
    Sample("minilm/minilm.nacre", ({"B": 1, "T": 128}, {"B": 32, "T": 128})),
    Sample("minilm/adapt.nacre", precisions=("",)),
    Sample("mnist/mnist.nacre", precisions=("",)),
    Sample("vision/mobilenetv2.nacre", ({"N": 1}, {"N": 16})),
    Sample("vision/resnet18.nacre", ({"N": 1}, {"N": 16})),
    Sample("vision/resnet50.nacre", ({"N": 1}, {"N": 16})),
)


def rows_of(sample: Sample, precision: str, chip: Chip = CHIP) -> list[tuple[str, ...]]:
    """Returns a row for each entry and each binding of its dims."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.json").write_text(json.dumps(ENCODER))
        source = read_model(SAMPLES / sample.file, folder if sample.file.startswith("minilm") else None)
        weights = open_arrays(random_weights(source.module))
        source = replace(source, weights=dict.fromkeys(source.weights, weights), tests=(), budgets=())
        source = in_precision(source, precision) if precision else source
        target = parse_targets(f"cuda:{'sm_90a' if chip.architecture == 'sm_90' else chip.architecture}")
        path = folder / "model.so"
        Build(source, Options(targets=target, cubin=False)).run(path)
        codes = [code for text in modules_of(path) for code in read_code(text)]
        library = open_library(str(path))
        calls = read_calls(library, "device")
        rows = {}
        for entry in library.description["entries"]:
            for given in sample.dims:
                usual = usual_dims(entry)
                dims = usual | {name: size for name, size in given.items() if name in usual}
                sizes = ", ".join(f"{name}={size}" for name, size in dims.items())
                bounds = list(bound_calls(calls[entry["name"]], codes, dims, chip))
                head = f"`{sample.file}`", entry["name"], sizes, precision or "as written"
                rows[head] = (*head, *_figures(bounds))
    return list(rows.values())


def _figures(bounds: Sequence[Bound]) -> tuple[str, ...]:
    total = sum(bound.seconds for bound in bounds)
    computing = sum(bound.seconds for bound in bounds if bound.by == "compute") / total if total else 0.0
    return (
        str(len(bounds)),
        str(sum(len(bound.code) for bound in bounds)),
        f"{sum(bound.flops for bound in bounds) / 1e9:.4g}",
        f"{sum(bound.bytes for bound in bounds) / 1e6:.4g}",
        f"{1e6 * total:.2f}",
        f"{100 * computing:.0f} %",
    )


def table(rows: Iterable[Sequence[str]]) -> str:
    lines = [COLUMNS, ["---"] * len(COLUMNS), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="samples that are compiled at a time")
    jobs = parser.parse_args().jobs
    pairs = [(sample, precision) for sample in ALL for precision in sample.precisions]
    # A process that is forked would share the compiler's children with its parent.
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        found = pool.map(rows_of, *zip(*pairs, strict=True))
        rows = []
        for made in found:
            rows += made
            print(*(" | ".join(row) for row in made), sep="\n", flush=True)
    PAGE.write_text(HEAD + table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
