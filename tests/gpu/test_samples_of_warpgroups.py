"""Samples in lower precision on Hopper: their products of warpgroups run without races, and give the right numbers."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from fake_driver import Machine
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.quantization.choose import in_precision
from nacre.compiler.targets.target import parse_targets
from nacre.compiler.validate.inputs import random_trial
from nacre.compiler.validate.judge import Judge
from test_samples_on_gpu import read_sample


@pytest.mark.parametrize(
    ("name", "precision", "dims", "products"),
    [
        ("digits/digits.nacre", "f16", {"B": 130}, 1),
        ("minilm/minilm.nacre", "bf16", {"B": 1, "T": 67}, 12),
    ],
)
def test_samples_have_no_races(
    machine: Machine, tmp_path: Path, name: str, precision: str, dims: dict[str, int], products: int
) -> None:
    machine.reset(capability=90)
    source = in_precision(read_sample(name, tmp_path), precision)
    Build(source, Options(targets=parse_targets("cuda:sm_90a"))).run(tmp_path / "sample.so")
    function = source.module.functions[0]
    trial = random_trial(function, dims)
    judge = Judge(source.module, trial, Build(source, Options()).read_parameters())
    results = nacre.load(tmp_path / "sample.so", device="cuda").entries[function.name](*trial.arguments)
    assert not machine.error
    assert machine.log.count("cuTensorMapEncodeTiled") == 2 * products
    assert judge.difference([np.asarray(results)]) is None
