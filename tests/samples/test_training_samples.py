"""Samples that train: makemore's network on a few names, and adapters on a small model of MiniLM's form."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.model.parameters import open_parameters
from nacre.compiler.weights.header_checks import elements
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.types import F64
from safetensors.numpy import save_file

SAMPLES = Path(__file__).parents[2] / "samples"


@pytest.mark.usefixtures("unchecked")
def test_makemore_learns_a_few_names(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("anna\nhanna\njoanna\nemma\ngemma\nella\nbella\nstella\nnoah\njonah\n")
    command = [sys.executable, str(SAMPLES / "makemore" / "train.py"), "names.txt", "--steps", "2000"]
    done = subprocess.run([*command, "--picture", "losses.svg"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # Eight names train; a tenth letter follows from the three before it, but for the first ones of a name.
    (loss,) = re.findall(r"2000 steps: (\d\.\d{4}), ", done.stdout)
    assert float(loss) < 1.2 and len(done.stdout.splitlines()[1].split(" ")) == 10
    assert (tmp_path / "losses.svg").stat().st_size > 1000 and (tmp_path / "makemore.safetensors").exists()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A folder with the configuration and random weights of a small encoder of six layers."""
    config = {"vocab_size": 11, "hidden_size": 8, "num_hidden_layers": 6, "num_attention_heads": 2}
    config |= {"intermediate_size": 12, "max_position_embeddings": 16, "type_vocab_size": 2, "layer_norm_eps": 1e-12}
    (tmp_path / "config.json").write_text(json.dumps(config))
    random = np.random.default_rng(0)
    module = read_model(SAMPLES / "minilm" / "minilm.nacre", weights=tmp_path).module
    shapes = {p.key: p.type.stored_shape for pattern in module.parameters for p in elements(pattern)}
    weights = {
        key: np.ones(shape, np.float32)
        if key.endswith("LayerNorm.weight")
        else random.standard_normal(shape).astype(np.float32) / (1 if len(shape) > 1 else 4)
        for key, shape in shapes.items()
    }
    save_file(weights, tmp_path / "model.safetensors")
    return tmp_path


def test_adapters_of_the_last_layers_train(small: Path, tmp_path: Path) -> None:
    source = read_model(SAMPLES / "minilm" / "minilm.nacre", weights=small)
    whole = Interpreter(source.module, open_parameters(source), precision=F64)
    model = nacre.compile(SAMPLES / "minilm" / "adapt.nacre", tmp_path / "adapt.so", weights=small, opt_level=0)
    session = model.session()
    trained = [name for name in session.states if not name.startswith("adam.")]
    assert len(trained) == 8 and {name.split(".")[2] for name in trained} == {"4", "5"}
    assert {name.rpartition(".")[2] for name in trained} == {"down", "up"}
    random = np.random.default_rng(1)
    ids, mask = random.integers(0, 11, (6, 5)), np.ones((6, 5), np.int64)
    # The adapters begin with 0. The compiled results differ from those in float64 by 4e-7.
    (expected,) = whole.run(source.module.functions[0].name, (ids, mask))
    np.testing.assert_allclose(session.embed(ids, mask), expected, rtol=0, atol=1e-6)
    same = np.full((6, 6), -1, np.float32)
    same[0, 1], same[0, 2], same[3, 4], same[3, 5] = 1, 0, 0, 1
    losses = [float(session.step(ids, mask, same, np.float32(0.05))) for _ in range(40)]
    assert losses[-1] < losses[0] - 0.2, losses
