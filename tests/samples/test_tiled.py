"""No kernel of any sample is plain loops, for every vector unit, in every precision."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest
from codegen.untiled import Tiled, find_untiled
from nacre.compiler.api import in_precision, read_model
from nacre.compiler.base.spans import without_spans
from nacre.compiler.codegen.llvm.machine import vector_features
from nacre.compiler.lower.lowered import Lowered
from nacre.compiler.lower.module import lower_module
from nacre.compiler.model.policy import SHORT_FORMS
from nacre.compiler.model.source import SourceModel
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import choose_panels, parse_targets
from nacre.compiler.targets.vector_unit import PanelSizes, VectorUnit
from nacre.dialect.graph import Module
from nacre.dialect.printer import print_module
from samples.test_workspace import MINILM

SAMPLES = Path(__file__).parents[2] / "samples"
TARGETS = (
    *("x86-64-v2", "x86-64-v3", "x86-64-v4", "native", "znver4", "sapphirerapids", "portable"),
    *("aarch64-linux-gnu", "riscv64-linux-gnu", "wasm32-wasi"),
)
MODELS = (
    "digits/digits",
    "digits/training",
    "gpt/gpt",
    "makemore/makemore",
    "minilm/adapt",
    "minilm/minilm",
    "mnist/mnist",
    "vision/mobilenetv2",
    "vision/resnet18",
    "vision/resnet50",
)
ALL = tuple(SHORT_FORMS) if os.environ.get("NACRE_ALL_PRECISIONS") else ()
PRECISIONS = {model: ALL or ("f32", "int8") for model in MODELS}
PRECISIONS |= {model: ALL or ("f32", "bf16", "int8", "int4a8") for model in ("digits/digits", "minilm/minilm")}
"""The precisions in which each sample is tiled; all of them with `NACRE_ALL_PRECISIONS=1`, which takes minutes."""


@cache
def units() -> Mapping[PanelSizes, tuple[VectorUnit, ...]]:
    """The vector units of the targets, each once, by the panels of the weights that they read."""
    found: dict[PanelSizes, dict[VectorUnit, None]] = {}
    for name in TARGETS:
        targets = parse_targets(name)
        units = [t.family.choose_unit(vector_features(t)) for t in targets if t.family is not None]
        found.setdefault(choose_panels(targets), {}).update(dict.fromkeys(units))
    return {panels: tuple(units) for panels, units in found.items()}


@cache
def tiled(text: str) -> Tiled:
    """Samples, precisions and panels share many kernels: each is tiled once."""
    return Tiled(text)


_left: dict[str, list[str]] = {}
"""The kernels of each graph that are not tiled. The graph of a training step is the same in f32 and int8."""


def find_left(module: Module) -> list[str]:
    """Returns the kernels of a graph that are not tiled. The sizes of panels decide how a weight is packed, and not
    whether it is: without packed weights, all units have the same kernels."""
    left: list[str] = []
    lowered: Lowered | None = None
    for panels, those in units().items():
        if lowered is None or any(weight.packing is not None for weight in lowered.weights):
            lowered = lower_module(module, pack=panels)
        assert lowered.kernels, module.name
        left += [line for kernel in lowered.kernels for line in find_untiled(tiled(kernel.text()), those)]
    return left


@pytest.fixture(scope="module")
def read_sample(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], SourceModel]:
    """Reads a sample, once for all precisions."""
    folder = tmp_path_factory.mktemp("minilm")
    (folder / "config.json").write_text(json.dumps(MINILM), encoding="utf-8")

    @cache
    def read(sample: str) -> SourceModel:
        return read_model(SAMPLES / f"{sample}.nacre", folder if sample.startswith("minilm") else None)

    return read


@pytest.mark.parametrize(("sample", "precision"), [(m, p) for m in MODELS for p in SHORT_FORMS if p in PRECISIONS[m]])
def test_every_kernel_is_tiled(sample: str, precision: str, read_sample: Callable[[str], SourceModel]) -> None:
    module = Build(in_precision(read_sample(sample), precision)).optimize()
    assert sum(map(len, units().values())) > 5
    graph = print_module(without_spans(module))
    if graph not in _left:
        _left[graph] = find_left(module)
    assert not _left[graph], "\n".join(_left[graph])


def test_every_sample_is_there() -> None:
    files = SAMPLES.rglob("*.nacre")
    entries = {
        str(f.relative_to(SAMPLES).with_suffix("")) for f in files if re.search("^(model|train) ", f.read_text(), re.M)
    }
    assert entries == set(MODELS)
