"""The blocks of the table compute what PyTorch does, and are measured."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the blocks are compared with calls of PyTorch")

from beside_torch import TORCH, Sweep, is_near
from blocks import UNITS, contenders, format_lines, measure_line, step_contenders
from measure import Plan
from nacre.compiler.checking import read_model
from nacre.dialect.types import F32
from workloads.blocks import BLOCKS


@pytest.mark.parametrize("name", BLOCKS)
def test_block_computes_the_same_as_torch(name: str, tmp_path: Path) -> None:
    own, peer = contenders(BLOCKS[name], F32, tmp_path, symbolic=False)
    assert is_near(own, peer.results(), units=UNITS)


@pytest.mark.parametrize("name", BLOCKS)
def test_step_has_the_gradients_of_torch(name: str, tmp_path: Path) -> None:
    own, peer = step_contenders(BLOCKS[name], F32, tmp_path, symbolic=bool(BLOCKS[name].sizes))
    assert is_near(own, peer.results())


@pytest.mark.parametrize("name", [name for name, block in BLOCKS.items() if block.sizes])
def test_symbolic_block_is_a_model(name: str) -> None:
    source_model = read_model(BLOCKS[name].write("f32", symbolic=True))
    assert {symbol.name for symbol in source_model.module.functions[0].symbols()} == BLOCKS[name].sizes


def test_a_line_is_measured() -> None:
    line = measure_line("unit rows", [F32], Sweep(Plan(1, 0.001), cpu_time=True), symbolic=True)
    assert set(line.measured[F32].timings) == {"nacre", TORCH} and not line.measured[F32].wrong
    *_, row = format_lines([line], [F32], "a title", "a note")
    assert row.startswith("| unit rows | ")
