"""Packs the models that are timed on a machine with a GPU: products with weights of 4 bits, an encoder, and ResNet-50.

Products have several entries with a weight each, which are called in turn: together, the weights are larger than the
second cache of a device.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
from chip.timing import BYTES, Timing
from nacre.compiler.api import read_model
from nacre.compiler.model.source import SourceModel
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.quantization.choose import in_precision
from nacre.compiler.targets.target import parse_targets
from nacre.compiler.tools.profile.device_model import count_operations
from nacre.compiler.weights.checkpoint import Checkpoint
from nacre.compiler.weights.memory import open_arrays
from nacre.dialect.graph import Module
from nacre.runtime.library import open_library
from nacre.runtime.observe import evaluate, read_calls
from random_weights import random_weights

SAMPLES = Path(__file__).parents[2] / "samples"
WEIGHTS = 8
"""The entries of a product: 8 weights of 4096 x 4096 in 4 bits, with a scale for each 32, have 75 MB."""
BLOCK, BLOCK_BYTES = 32, 18
"""The numbers and the bytes of a block: 4 bits for each number, and a scale in f16."""
PERIOD = 255 * BLOCK
"""The numbers of a weight that are random: in 16 bits, twice as many bytes still fit the window of a compressor."""
ENCODER = {
    "vocab_size": 500,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}
"""MiniLM with fewer words: a lookup reads as many rows of a shorter table."""
SHORT = {
    "side = 224": "side = 16",
    "Stage<1, 3,": "Stage<1, 1,",
    " |> layer2 |> layer3 |> layer4": "",
    "Head<2048, side/32>": "Head<256, side/4>",
    "f32[1000": "f32[10",
    "f32[N, 1000]": "f32[N, 10]",
}
"""The changes of the text that make ResNet-50 a short network of small images."""
SMALL = ENCODER | {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}


def repeated_weights(module: Module, vectors: int = PERIOD) -> Checkpoint:
    """Returns random weights of a module that take little space when they are compressed: a matrix repeats a short run
    of numbers, a vector one of `vectors` numbers. No two neighbouring rows of a matrix are equal, so that multipliers
    change as many bits as with other random numbers."""
    arrays = random_weights(module)
    periods = {name: PERIOD if array.ndim > 1 else vectors for name, array in arrays.items()}
    return open_arrays({name: np.resize(a.reshape(-1)[: periods[name]], a.shape) for name, a in arrays.items()})


def _build(source: SourceModel, path: Path, target: str) -> None:
    # Norms are folded into kernels: their scales would make a run of numbers a different one for each channel.
    made = repeated_weights(source.module, vectors=1)
    source = replace(source, weights=dict.fromkeys(source.weights, made), tests=(), budgets=())
    Build(source, Options(targets=parse_targets(target))).run(path)


def _describe(path: Path, name: str, entries: Sequence[str], dims: Mapping[str, int], peer: str) -> Timing:
    """Returns the timing of a call at sizes of its dims. The weights are read once."""
    library = open_library(str(path))
    entry = next(each for each in library.description["entries"] if each["name"] == entries[0])
    tensors = [
        (each["dtype"], tuple(evaluate(size, dims) for size in each["shape"]))
        for each in (*entry["arguments"], *entry["results"])
    ]
    calls = read_calls(library, "device")[entries[0]]
    size = library.description["weights"]["bytes"] + sum(BYTES[dtype] * prod(shape) for dtype, shape in tensors)
    flops = sum(count_operations(call, dims) for call in calls)
    return Timing(name, path.stem, tuple(entries), tuple(tensors[:-1]), tensors[-1], size, flops, peer)


def pack_products(folder: Path, target: str, *, quick: bool) -> list[Timing]:
    """Packs products of few rows in bf16 with weights of 4 bits, which products of other numbers of rows share."""
    width, count, all_rows = (64, 2, (1, 8)) if quick else (4096, WEIGHTS, (1, 8, 32))
    entries = {rows: [f"product{rows}_{number}" for number in range(count)] for rows in all_rows}
    text, rules = "language 1\n", ""
    for rows, names in entries.items():
        for number, name in enumerate(names):
            takes = f"x: f32[{rows}, {width}]"
            text += f"model {name}({takes}) -> f32[{rows}, {width}] {{\n"
            text += f"  param w{number}: f32[{width}, {width}]\n  return x @ w{number}.T\n}}\n"
            rules += f'quantize {name} {{\n  weights "*" to q4[block 32]\n  activations "*" to bf16\n}}\n'
    path = folder / "timings-int4.so"
    source = read_model(text)
    weights = repeated_weights(source.module)
    source = in_precision(replace(source, weights=dict.fromkeys(source.weights, weights)), rules)
    Build(source, Options(targets=parse_targets(target))).run(path)
    block = width * width // BLOCK * BLOCK_BYTES
    return [
        replace(
            _describe(path, f"matmul_int4_{rows}_{width}_{width}", names, {}, ""),
            bytes=block + 2 * BYTES["f32"] * rows * width,
            flops=2 * rows * width * width,
        )
        for rows, names in entries.items()
    ]


def pack_encoder(folder: Path, target: str, *, quick: bool) -> list[Timing]:
    """Packs MiniLM in bf16."""
    with tempfile.TemporaryDirectory() as temporary:
        (Path(temporary) / "config.json").write_text(json.dumps(SMALL if quick else ENCODER))
        source = read_model(SAMPLES / "minilm" / "minilm.nacre", Path(temporary))
        path = folder / "timings-minilm.so"
        _build(in_precision(source, "bf16"), path, target)
    sizes = [{"B": 1, "T": 8}] if quick else [{"B": 1, "T": 128}, {"B": 32, "T": 128}]
    return [_describe(path, f"minilm_{dims['B']}_{dims['T']}", ["embed"], dims, "minilm") for dims in sizes]


def pack_resnet(folder: Path, target: str, *, quick: bool) -> list[Timing]:
    """Packs ResNet-50 in bf16, for batches of up to 32 images; a `quick` folder has its ends and one block between, for
    the last target alone."""
    changes = {"dim N in 1..16": "dim N in 1..32"} | (SHORT if quick else {})
    with tempfile.TemporaryDirectory() as temporary:
        for name in ("resnet.nacre", "resnet50.nacre"):
            text = (SAMPLES / "vision" / name).read_text()
            for old, new in changes.items():
                text = text.replace(old, new)
            (Path(temporary) / name).write_text(text)
        source = read_model(Path(temporary) / "resnet50.nacre")
        path = folder / "timings-resnet50.so"
        _build(in_precision(source, "bf16"), path, target.split(",")[-1] if quick else target)
    batches = (1,) if quick else (1, 32)
    return [_describe(path, f"resnet50_{batch}", ["classify"], {"N": batch}, "resnet50") for batch in batches]


def pack_models(folder: Path, target: str, *, quick: bool) -> list[Timing]:
    """Writes the artifacts, and returns what to time."""
    packers = (pack_products, pack_encoder, pack_resnet)
    return [timing for pack in packers for timing in pack(folder, target, quick=quick)]
