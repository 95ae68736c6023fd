"""How much memory the samples need for a call: hardly more than any plan could do with, and no more than is known here.

The bound is `nacre.passes.analysis.liveness.lower_bound`: what must be there at one time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from nacre.compiler.pipeline import Build
from nacre.compiler.readers.language import load_module
from nacre.dialect.dims import evaluate

SAMPLES = Path(__file__).parents[2] / "samples"
WASTE = 1.05

# all-MiniLM-L6-v2 in numbers, so that no weights are needed.
MINILM = {
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}


@pytest.mark.parametrize(
    ("sample", "known"),
    [
        ("digits/digits", [({"B": 1}, 14_592), ({"B": 256}, 256 * 14_592)]),
        (
            "minilm/minilm",
            [
                ({"B": 1, "T": 1}, 7_808),
                ({"B": 1, "T": 16}, 123_008),
                ({"B": 1, "T": 128}, 984_064),
                ({"B": 3, "T": 77}, 1_776_000),
                ({"B": 8, "T": 128}, 7_872_512),
                ({"B": 64, "T": 512}, 251_920_384),
            ],
        ),
        ("vision/resnet18", [({"N": 1}, 6_538_240), ({"N": 16}, 16 * 6_538_240)]),
        ("vision/resnet50", [({"N": 1}, 6_823_936), ({"N": 16}, 16 * 6_823_936)]),
        ("vision/mobilenetv2", [({"N": 1}, 9_807_360), ({"N": 16}, 16 * 9_807_360)]),
    ],
)
def test_workspace(sample: str, known: Sequence[tuple[Mapping[str, int], int]], tmp_path: Path) -> None:
    weights = None
    if sample.startswith("minilm"):
        weights = tmp_path
        (weights / "config.json").write_text(json.dumps(MINILM), encoding="utf-8")
    build = Build(load_module(SAMPLES / f"{sample}.nacre", weights=weights))
    (entry,) = build.generate(build.lower(build.optimize())).entries
    for dims, most in known:
        needed, least = evaluate(entry.workspace, dims), entry.least_workspace(dims)
        assert least <= needed <= WASTE * least, dims
        assert needed <= most, dims
