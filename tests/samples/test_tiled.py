"""No kernel of any sample is plain loops, for every vector unit, in every precision."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path

import pytest
from codegen.untiled import find_untiled
from nacre.compiler.api import in_precision, read_model
from nacre.compiler.codegen.llvm.machine import vector_features
from nacre.compiler.model.policy import SHORT_FORMS
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets
from nacre.compiler.targets.vector_unit import VectorUnit
from samples.test_workspace import MINILM

SAMPLES = Path(__file__).parents[2] / "samples"
TARGETS = (
    *("x86-64-v2", "x86-64-v3", "x86-64-v4", "native", "znver4", "sapphirerapids", "portable"),
    *("aarch64-linux-gnu", "riscv64-linux-gnu", "wasm32-wasi"),
)
MODELS = ("digits/digits", "minilm/minilm", "vision/mobilenetv2", "vision/resnet18", "vision/resnet50")
ALL = tuple(SHORT_FORMS) if os.environ.get("NACRE_ALL_PRECISIONS") else ()
PRECISIONS = {model: ALL or ("f32", "int8") for model in MODELS}
PRECISIONS |= {model: ALL or ("f32", "bf16", "int8", "int4a8") for model in ("digits/digits", "minilm/minilm")}
"""The precisions in which each sample is tiled; all of them with `NACRE_ALL_PRECISIONS=1`, which takes minutes."""


@cache
def units() -> tuple[VectorUnit, ...]:
    """The vector units of the targets, each once."""
    targets = [target for name in TARGETS for target in parse_targets(name)]
    return tuple(dict.fromkeys(t.family.choose_unit(vector_features(t)) for t in targets if t.family is not None))


@cache
def untiled(text: str) -> tuple[str, ...]:
    """Samples and precisions share many kernels: each is tiled once."""
    return tuple(find_untiled(text, units()))


@pytest.mark.parametrize(("sample", "precision"), [(m, p) for m in MODELS for p in SHORT_FORMS if p in PRECISIONS[m]])
def test_every_kernel_is_tiled(sample: str, precision: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MINILM), encoding="utf-8")
    weights = tmp_path if sample.startswith("minilm") else None
    build = Build(in_precision(read_model(SAMPLES / f"{sample}.nacre", weights), precision))
    kernels = build.lower(build.optimize()).kernels
    assert len(units()) > 5 and kernels, sample
    left = [line for kernel in kernels for line in untiled(kernel.text())]
    assert not left, "\n".join(left)


def test_every_sample_is_there() -> None:
    files = SAMPLES.rglob("*.nacre")
    entries = {str(f.relative_to(SAMPLES).with_suffix("")) for f in files if "\nmodel " in f.read_text()}
    assert entries == set(MODELS)
