"""The cases of `compile_costs.py` are valid models, and its bounds are checked."""

from __future__ import annotations

from math import prod
from pathlib import Path

import compile_costs
import numpy as np
import pytest
from compile_costs import CASES, Case, Cost, compile_case, distinct_kernels, encoder, exceeded, large_table, many_nodes
from nacre.compiler.api import read_model
from nacre.compiler.cli.main import run
from nacre.compiler.weights.opening import open_checkpoint


@pytest.mark.parametrize("text", [encoder(2), distinct_kernels(3), many_nodes(30), large_table(2 * 10**9)])
def test_cases_are_valid_models(text: str) -> None:
    assert read_model(text).module.functions


def test_a_loop_has_the_nodes_that_its_case_states(tmp_path: Path) -> None:
    model = tmp_path / "nodes.nacre"
    model.write_text(many_nodes(420))
    run(["compile", str(model), "--emit", "graph", "--passes", "unroll-repeat", "-o", str(tmp_path / "nodes.graph")])
    assert (tmp_path / "nodes.graph").read_text().count(" = ") == 420


def test_kernels_of_a_case_are_distinct_and_small() -> None:
    """Each weight has a shape of its own, and all of them fit into an artifact many times."""
    shapes = [parameter.type.shape for parameter in read_model(distinct_kernels(2000)).module.parameters]
    assert len(set(shapes)) == len(shapes) == 2000
    assert sum(4 * prod(map(int, shape)) for shape in shapes) < 20e6


def test_zeros_are_a_sparse_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "zeros.safetensors"
    compile_costs.write_zeros(path, {"a": (3, 1000, 1000), "b": (5,)})
    assert path.stat().st_size > 12_000_000
    assert path.stat().st_blocks * 512 < 100_000
    checkpoint = open_checkpoint(path)
    np.testing.assert_array_equal(checkpoint.read("b"), np.zeros(5, np.float32))
    assert checkpoint.read("a").shape == (3, 1000, 1000)


def test_a_case_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CASES, "small", lambda: Case(encoder(1)))
    cost = compile_case("small")
    assert cost.cpu_seconds > 0.1
    assert cost.memory_bytes > 30e6


def test_bounds_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CASES, "one", lambda: Case(""))
    monkeypatch.setitem(CASES, "two", lambda: Case("", relative=("one", 4.5)))
    assert exceeded([Cost("one", 1, 10**9), Cost("two", 4, 10**9)]) == []
    assert exceeded([Cost("one", 1, 3 * 10**9), Cost("two", 5, 1)]) == [
        "one: 3.00 GB exceed 2.00 GB",
        "two: 5.00 times the CPU time of one, not 4.5",
    ]
