"""Models of other sources than text, and weights that are in no file."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.cache import cached_path
from nacre.compiler.checking import read_model
from nacre.compiler.pipeline import Build
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.printer import print_module

TEXT = """dim B in 1..4
model scale(x: f32[B, 3]) -> y: f32[B, 3] {
  param weight: f32[3]
  return x * weight
}
"""
X = np.arange(6, dtype=np.float32).reshape(2, 3)
WEIGHT = np.array([2, 3, 5], np.float32)


def test_weights_from_memory_are_those_of_a_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", weight=WEIGHT)
    outputs = [tmp_path / "file.so", tmp_path / "memory.so"]
    for output, weights in zip(outputs, (tmp_path / "w.npz", {"weight": WEIGHT}), strict=True):
        np.testing.assert_array_equal(nacre.compile(TEXT, output, weights=weights)(X), X * WEIGHT)
    assert outputs[0].read_bytes() == outputs[1].read_bytes()


def test_weights_from_memory_are_converted_and_checked() -> None:
    model = nacre.compile(TEXT, weights={"weight": WEIGHT.astype(np.float16)})
    np.testing.assert_array_equal(model(X), X * WEIGHT)
    with pytest.raises(DiagnosticError, match="has no tensor `weight`"):
        nacre.compile(TEXT, weights={"wait": WEIGHT})
    with pytest.raises(DiagnosticError, match=r"f32\[4\]|\[4\]"):
        nacre.compile(TEXT, weights={"weight": np.ones(4, np.float32)})
    with pytest.raises(DiagnosticError, match="complex64"):
        nacre.compile(TEXT, weights={"weight": WEIGHT.astype(np.complex64)})


def test_the_cache_tells_weights_in_memory_apart() -> None:
    first, same, other = (
        cached_path(Build(read_model(TEXT, {"weight": weight}))) for weight in (WEIGHT, WEIGHT.copy(), WEIGHT + 1)
    )
    assert first == same != other


def test_a_later_change_of_an_array_in_memory_does_not_reach_the_model() -> None:
    weight = WEIGHT.copy()
    model = nacre.compile(TEXT, weights={"weight": weight})
    weight[:] = 0
    np.testing.assert_array_equal(model(X), X * WEIGHT)


def test_a_graph_file_is_a_model(tmp_path: Path) -> None:
    written = read_model(TEXT)
    path = tmp_path / "scale.graph"
    path.write_text(print_module(written.module))
    model = nacre.compile(path, tmp_path / "scale.so", weights={"weight": WEIGHT})
    np.testing.assert_array_equal(model(X), X * WEIGHT)
    entry = model.describe()["entries"][0]
    assert [entry["name"], *(result["name"] for result in entry["results"])] == ["scale", "y"]


def test_a_broken_graph_file_is_a_diagnostic(tmp_path: Path) -> None:
    path = tmp_path / "broken.graph"
    path.write_text("module m\nfunc f(x: f32[2]) -> f32[2] {\n  return y\n}\n")
    with pytest.raises(DiagnosticError) as error:
        nacre.compile(path, tmp_path / "broken.so")
    assert error.value.diagnostics[0].span is not None and error.value.diagnostics[0].span.file == str(path)
    assert not (tmp_path / "broken.so").exists()
