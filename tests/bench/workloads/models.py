"""Whole models, from the texts in samples/."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from .workload import Bound, Workload

SAMPLES = Path(__file__).parents[3] / "samples"
VISION = ("resnet18", "resnet50", "mobilenetv2")
LENGTHS = (1, 7, 16, 32, 128)
BATCHES = (1, 8)
CONFIG = {
    "hidden_size": 384,
    "intermediate_size": 1536,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512,
    "num_attention_heads": 12,
    "num_hidden_layers": 6,
    "type_vocab_size": 2,
    "vocab_size": 30522,
}
"""What the sample reads of all-MiniLM-L6-v2's config.json."""


def workloads(checkpoint: Path | None) -> Iterator[Workload]:
    for batch in BATCHES:
        for length in LENGTHS:
            yield minilm(batch, length, checkpoint)
            yield minilm(batch, length, checkpoint, static=True)
    yield from (vision(name) for name in VISION)
    yield from (digits(batch) for batch in (1, 64))


def minilm(batch: int, length: int, checkpoint: Path | None, *, static: bool = False) -> Workload:
    """With symbolic sizes for everyone, and beside it ours with static ones; or with static sizes for everyone."""
    text = without_tests((SAMPLES / "minilm" / "minilm.nacre").read_text(encoding="utf-8"))
    sizes = {"B": batch, "T": length}
    fixed = with_static(text, sizes)
    return Workload(
        f"minilm-b{batch}-t{length}{'-static' if static else ''}",
        fixed if static else text,
        dims={} if static else sizes,
        ranges={"ids": (1000, 20000), "attention_mask": (1, 2)},
        files={"config.json": json.dumps(CONFIG)},
        checkpoint=checkpoint,
        bound=Bound.COMPUTE,
        variants={} if static else {"nacre, static sizes": fixed},
    )


def vision(name: str) -> Workload:
    """One image of 224x224."""
    folder = SAMPLES / "vision"
    sizes = {"N": 1}
    return Workload(
        name,
        with_static((folder / f"{name}.nacre").read_text(encoding="utf-8"), sizes),
        files={"resnet.nacre": with_static((folder / "resnet.nacre").read_text(encoding="utf-8"), sizes)},
        bound=Bound.COMPUTE,
    )


def digits(batch: int) -> Workload:
    text = without_tests((SAMPLES / "digits" / "digits.nacre").read_text(encoding="utf-8"))
    return Workload(
        f"digits-b{batch}",
        text,
        {"B": batch},
        checkpoint=SAMPLES / "digits" / "digits.safetensors",
        bound=Bound.COMPUTE,
    )


def with_static(text: str, sizes: dict[str, int]) -> str:
    """The text with numbers in place of declared dims: `dim T in 1..512` becomes `T = 128`."""
    for name, size in sizes.items():
        text, count = re.subn(rf"^dim {name} in .*$", f"{name} = {size}", text, flags=re.MULTILINE)
        assert count == 1, f"no dim {name}"
    return text


def without_tests(text: str) -> str:
    """Without what stands behind the model: tests name files that are not there, budgets mean other sizes."""
    return re.split(r"^(?:# [^\n]*\n)?(?:test|budget) ", text, maxsplit=1, flags=re.MULTILINE)[0]
