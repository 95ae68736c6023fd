"""The samples on a GPU: ptxas accepts every kernel, and an encoder of two layers runs as translated PTX."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import nacre
import numpy as np
import pytest
from assembler import find_faults, symbols_in
from fake_driver import Machine
from joined_texts import write_texts
from nacre.compiler.api import read_model
from nacre.compiler.model.source import SourceModel
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets
from nacre.compiler.validate.inputs import random_trial
from nacre.compiler.validate.judge import Judge
from nacre.compiler.weights.memory import open_arrays
from packing import MINILM
from random_weights import random_weights

SAMPLES = Path(__file__).parents[2] / "samples"
TARGET = Options(targets=parse_targets("cuda:sm_80"))


@dataclass(frozen=True)
class Sample:
    """A model file, and the hyper-parameters that make it small without other kinds of kernels."""

    settings: dict[str, object] = field(default_factory=dict)
    layers: int = 2


MODELS = {
    "digits/digits.nacre": Sample(),
    "digits/training.nacre": Sample(),
    "gpt/gpt.nacre": Sample({"layers": 1}),
    "makemore/makemore.nacre": Sample(),
    "minilm/minilm.nacre": Sample(),
    "minilm/adapt.nacre": Sample(layers=5),
    "mnist/mnist.nacre": Sample(),
    "vision/mobilenetv2.nacre": Sample(),
    "vision/resnet18.nacre": Sample(),
    "vision/resnet50.nacre": Sample(),
}


def read_sample(name: str, folder: Path) -> SourceModel:
    """Returns a sample with weights made here."""
    sample = MODELS[name]
    (folder / "config.json").write_text(json.dumps(MINILM | {"num_hidden_layers": sample.layers}))
    source = read_model(SAMPLES / name, folder if name.startswith("minilm") else None, sample.settings)
    made = open_arrays(random_weights(source.module))
    return replace(source, weights=dict.fromkeys(source.weights, made), tests=(), budgets=())


@pytest.mark.parametrize("name", MODELS)
def test_kernels_are_assembled(tmp_path: Path, assembled: Path, name: str) -> None:
    """Without calls, and without registers in memory. Where none can be there, the fastest level of ptxas is enough."""
    build = Build(read_sample(name, tmp_path), TARGET)
    texts = write_texts(build)
    assert build.lowered is not None and len(symbols_in(texts)) >= len(build.lowered.kernels) > 5
    assert find_faults(texts, assembled, "sm_80") == []


def test_every_sample_is_there() -> None:
    parts = {"vision/resnet.nacre"}  # blocks alone
    assert {path.relative_to(SAMPLES).as_posix() for path in SAMPLES.rglob("*.nacre")} == MODELS.keys() | parts


@pytest.mark.parametrize("dims", [{"B": 1, "T": 7}, {"B": 2, "T": 17}], ids=["one", "two"])
def test_encoder_of_two_layers(machine: Machine, encoder: tuple[SourceModel, Path], dims: dict[str, int]) -> None:
    source, path = encoder
    trial = random_trial(source.module.functions[0], dims)
    judge = Judge(source.module, trial, Build(source, Options()).read_parameters())
    result = np.asarray(nacre.load(path, device="cuda")(*trial.arguments))
    assert machine.launches > 20 and not machine.error
    assert judge.difference([result]) is None


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> tuple[SourceModel, Path]:
    """MiniLM with two layers, and its artifact."""
    folder = tmp_path_factory.mktemp("encoder")
    source = read_sample("minilm/minilm.nacre", folder)
    Build(source, TARGET).run(folder / "encoder.so")
    return source, folder / "encoder.so"
