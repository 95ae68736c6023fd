"""The examples in the docstrings of `nacre.graph` do what they say."""

import doctest
import json
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.tools.explorer import graph, node_costs, nodes, read

EXAMPLE = """
module example

dim B in 1..8

param "w" : f32[4, 4]

func f(%x: f32[B, 4]) -> (y: f32[B, 4]) {
  %w = parameter() {name = "w"} : f32[4, 4]
  %1 = matmul(%x, %w) : f32[B, 4]
  %2 = constant() {value = constant<f32, 1.0>} : f32
  %3 = add(%1, %2) : f32[B, 4]
  %y = relu(%3) : f32[B, 4]
  return %y
}
"""


PROFILE = {
    "entry": "f",
    "dims": {"B": 8},
    "calls": [{"values": ["1"], "seconds": 2e-6, "flops": 256}],
    "peak": {"flops_per_second": 1e11, "bytes_per_second": 2e10},
    **dict.fromkeys(("threads", "processor", "runs", "seconds"), 1),
}


@pytest.mark.parametrize(
    "module", [graph, nodes, read, node_costs], ids=lambda module: module.__name__.rpartition(".")[2]
)
def test_examples(module, tmp_path: Path) -> None:
    (tmp_path / "profile.json").write_text(json.dumps(PROFILE))
    names = {"example": nacre.graph.read(EXAMPLE), "np": np, "folder": tmp_path, "read": nacre.graph.read}
    done = doctest.testmod(module, extraglobs=names, optionflags=doctest.ELLIPSIS)
    assert done.attempted
    assert not done.failed
