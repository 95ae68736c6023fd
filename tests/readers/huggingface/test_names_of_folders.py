"""Names in folders: each activation is the function of transformers, and numbered tensors are stacked by number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from nacre.compiler.readers.huggingface.config_json import Configuration
from nacre.compiler.readers.huggingface.naming import with_stacks
from nacre.compiler.readers.language import load_module
from nacre.compiler.weights.memory import open_arrays
from nacre.dialect.interpreter import Interpreter

ARCHITECTURES = Path(__file__).parents[3] / "compiler" / "readers" / "architectures"
X = np.array([-2.5, -0.6, 0.0, 0.7, 1.9])
TANH = (-0.01508427, -0.1645848, 0.0, 0.5305701, 1.845451)
VALUES = {
    "silu": (-0.1896455, -0.2126062, 0.0, 0.4677314, 1.652794),
    "swish": (-0.1896455, -0.2126062, 0.0, 0.4677314, 1.652794),
    "gelu": (-0.01552416, -0.1645519, 0.0, 0.5306254, 1.845439),
    "gelu_new": TANH,
    "gelu_pytorch_tanh": TANH,
    "gelu_fast": TANH,
    "quick_gelu": (-0.03498617, -0.1588762, 0.0, 0.536894, 1.827965),
    "relu": (0.0, 0.0, 0.0, 0.7, 1.9),
}
"""The values of transformers 5.23 in f64."""


@pytest.mark.parametrize("name", VALUES)
def test_activations(name: str) -> None:
    configuration = Configuration(Path("config.json"), {"hidden_act": name}, open_arrays({}))
    spelled = configuration.activation("hidden_act")
    text = (ARCHITECTURES / "attention.nacre").read_text()
    body = (
        text[text.index("block Activated") :].split("\n}\n")[0].split("{\n")[1].replace("c.activation", f'"{spelled}"')
    )
    module = load_module(f"model m(x: f64[5]) -> f64[5] {{\n{body}\n}}\n", text=True).module
    (found,) = Interpreter(module, lambda parameter: np.zeros(0)).run(module.functions[0], [X])
    np.testing.assert_allclose(found, VALUES[name], rtol=1e-6)


def test_numbered_tensors_are_stacked_by_number() -> None:
    """Also from 10 on, which stands before 2 in an order of texts."""
    arrays = {f"experts.{i}.weight": np.full((2, 3), i, np.float32) for i in (*range(11, -1, -1), 13)}
    stacked = with_stacks(open_arrays(arrays), ["experts.*.weight", "other.*.weight", "plain"])
    assert set(stacked.tensors) == {*arrays, "experts.*.weight"}
    assert stacked.tensors["experts.*.weight"].shape == (12, 2, 3)
    np.testing.assert_array_equal(stacked.read("experts.*.weight")[:, 1, 2], np.arange(12))


def test_tensors_of_several_shapes_are_not_stacked() -> None:
    arrays = {"a.0": np.zeros((2, 3), np.float32), "a.1": np.zeros((3, 2), np.float32)}
    assert set(with_stacks(open_arrays(arrays), ["a.*"]).tensors) == set(arrays)
