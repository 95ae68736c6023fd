"""The sample that finds and changes a bottleneck, on a small MiniLM with made-up weights."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.validate.inputs import made_up
from nacre.compiler.weights.header_checks import elements
from safetensors.numpy import save_file

SAMPLES = Path(__file__).parents[2] / "samples"
CONFIG = {
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "vocab_size": 50,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 192,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("minilm")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    graph = nacre.graph.read(SAMPLES / "minilm" / "minilm.nacre", weights=folder)
    singles = [single for parameter in graph.parameters for single in elements(parameter)]
    weights = {p.key: np.ascontiguousarray(made_up(p) * np.float32(0.2)) for p in singles}
    save_file(weights, folder / "model.safetensors")
    return folder


def test_sample(folder: Path, tmp_path: Path) -> None:
    script, new = SAMPLES / "graphs" / "bottleneck.py", tmp_path / "new.nacre"
    done = subprocess.run([sys.executable, str(script), str(folder), str(new)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first = next(line for line in done.stdout.splitlines() if re.match(r" +\d+\.\d%  <", line))
    assert "matmul" in first
    assert re.search(r"^erf: [\d.]+ ms, tanh: [\d.]+ ms$", done.stdout, re.MULTILINE)
    errors = {name: float(error) for name, error in re.findall(r"(\w+): largest error (\S+)", done.stdout)}
    # Rounding alone, and the formula, which is off by up to 5e-4 before what follows it.
    assert errors["erf"] < 1e-5 < errors["tanh"] < 1e-3
    assert done.stdout.endswith("new.nacre: 0 faults\n")
    again = nacre.graph.read(new)
    assert {n.attributes["approximate"] for n in again.find("gelu")} == {"tanh"}
    assert len(again.find("repeat")) == 1
    weights = again.origin.weights["embed"]
    assert weights is not None and weights.samefile(folder / "model.safetensors")
