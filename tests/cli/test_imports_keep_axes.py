"""`nacre import`: the written text and checkpoint are the model that was read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli_harness import Cli
from nacre.compiler.checking import read_model
from nacre.compiler.model.parameters import open_parameters
from nacre.dialect.interpreter import Interpreter
from safetensors.numpy import load_file, save_file

TEXT = """model turn(x: f32[2, 3, 4]) -> f32[2, 3, 4] {
  weights "turn.safetensors"
  param cycle: f32[2, 3, 4] transpose 2, 0, 1
  param other: f32[2, 3, 4] transpose 1, 2, 0
  param swap: f32[2, 3, 4] transpose 1, 0, 2
  param plain: f32[2, 3, 4]
  return x * cycle + other * swap - plain
}
"""
STORED = {"cycle": (3, 4, 2), "other": (4, 2, 3), "swap": (3, 2, 4), "plain": (2, 3, 4)}


@pytest.mark.parametrize("suffix", ["nacre", "graph"])
def test_transposed_parameters(cli: Cli, tmp_path: Path, suffix: str) -> None:
    """The stored axes have the order of the checkpoint, also where that order is not its own inverse."""
    rng = np.random.default_rng(1)
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in STORED.items()}
    save_file(arrays, tmp_path / "turn.safetensors")
    (tmp_path / "turn.nacre").write_text(TEXT)
    written = tmp_path / f"other.{suffix}"
    done = cli("import", tmp_path / "turn.nacre", "-o", written)
    assert done.code == 0, done.err
    stored = load_file(tmp_path / "other.safetensors")
    assert {array.shape for array in stored.values()} == set(STORED.values())
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    cycle, other, swap = (
        arrays[name].transpose(order)
        for name, order in (("cycle", (2, 0, 1)), ("other", (1, 2, 0)), ("swap", (1, 0, 2)))
    )
    expected = x * cycle + other * swap - arrays["plain"]
    if suffix == "nacre":
        source = read_model(written)
        (result,) = Interpreter(source.module, open_parameters(source)).run(source.module.functions[0], [x])
        np.testing.assert_array_equal(result, expected)
