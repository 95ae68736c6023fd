"""Dumps: a file for every level, the same bytes every time, no data of weights, and graphs that read back."""

from __future__ import annotations

import re
import shutil
from itertools import pairwise
from pathlib import Path

import nacre
import numpy as np
import pytest
from cli_harness import Cli
from nacre.compiler.dumps.kernel_texts import format_parts, split_parts
from nacre.compiler.graph_passes import GRAPH_PASSES
from nacre.compiler.options import Options
from nacre.passes.pass_list import format_pass, parse_pipeline
from safetensors.numpy import save_file

# A table that no pass folds away and that is too big to be printed, a parameter with numbers that can be searched for.
MODEL = """block Twice<n>(x: f32[B, n]) -> f32[B, n] {
  param weight: f32[n, n]
  repeat i in 0..2 { x = x @ weight }
  return x
}

dim B in 1..8

model main(x: f32[B, 24]) -> f32[B, 24] {
  weights "w.safetensors"
  use twice = Twice<24>
  table = sin(cast(iota(24), f32))
  return softmax(twice(x) + table)
}
"""
WEIGHT = 12345.678


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dumps")
    (folder / "main.nacre").write_text(MODEL)
    save_file({"twice.weight": np.full((24, 24), WEIGHT, np.float32)}, folder / "w.safetensors")
    return folder / "main.nacre"


@pytest.fixture(scope="module")
def dumped(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of dumps, made where another build had left some."""
    folder = tmp_path_factory.mktemp("dumped")
    (folder / "97-before.mlir").write_text("of an earlier build")
    (folder / "notes.txt").write_text("not ours")
    nacre.compile(source, folder.parent / "main.so", dump_dir=folder)
    return folder


def test_every_level_has_a_file(dumped: Path) -> None:
    others = {"notes.txt", "constants.safetensors"}
    names = sorted(p.name for p in dumped.iterdir() if p.name not in others)
    assert len(names) == len(list(dumped.iterdir())) - len(others)
    numbers = [int(name[:2]) for name in names]
    assert numbers == list(range(len(names)))
    stages = [re.sub(r"\.\w+$", "", name[3:]) for name in names]
    assert stages == list(Options().stages)
    suffixes = [name.rsplit(".")[-1] for name in names]
    assert suffixes == sorted(suffixes, key=["graph", "mlir", "ll", "s"].index)
    assert (dumped / "notes.txt").read_text() == "not ours"
    assert {"linalg", "bufferized", "loops", "llvm-dialect", "llvm-ir", "optimized", "assembly"} <= set(stages)


def test_each_dump_has_the_form_of_its_stage(dumped: Path) -> None:
    texts = {re.sub(r"\.\w+$", "", p.name[3:]): p.read_text() for p in dumped.glob("??-*")}
    assert "tensor<" in texts["linalg"] and "linalg." in texts["linalg"]
    assert "memref<" in texts["bufferized"] and "tensor<" not in texts["bufferized"]
    assert "scf.for" in texts["loops"] and "linalg." not in texts["loops"]
    assert "llvm.func" in texts["llvm-dialect"] and "scf." not in texts["llvm-dialect"]
    assert "define " in texts["llvm-ir"] and "define " in texts["optimized"]
    assert "nacre_entry_main" in texts["assembly"]


def test_graphs_before_and_after_each_pass_read_back(cli: Cli, dumped: Path) -> None:
    graphs = sorted(dumped.glob("*.graph"))
    assert len(graphs) == 1 + len(parse_pipeline(GRAPH_PASSES[2]))
    for path in graphs:
        done = cli("opt", path)
        assert (done.code, done.out) == (0, path.read_text()), path.name
    for (before, after), step in zip(pairwise(graphs), parse_pipeline(GRAPH_PASSES[2]), strict=True):
        assert after.stem[3:] == step.name
        # Also what it folds: the data that the text does not hold is beside it.
        assert cli("opt", before, "--pass", format_pass(step)).out == after.read_text(), step.name


def test_no_data_of_weights_and_no_big_constant(dumped: Path) -> None:
    bits = np.float32(WEIGHT).view(np.uint32)
    spellings = ("12345.6", f"{bits:08X}", f"{bits:08x}", str(bits), f"{np.float32(WEIGHT):.6e}")
    for path in dumped.glob("??-*"):
        text = path.read_text()
        assert not [s for s in spellings if s in text], path.name
        assert len(text) < 400_000, path.name
    final = sorted(dumped.glob("*.graph"))[-1].read_text()
    assert re.search(r"constant<f32\[24\], #[0-9a-f]{16}>", final)


@pytest.mark.parametrize("children", [1, 5])
def test_the_same_bytes_without_times_and_paths(
    cli: Cli, source: Path, dumped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, children: int
) -> None:
    """From another folder, with a cold and a warm cache, by one child process and by several."""
    monkeypatch.setattr("os.cpu_count", lambda: children)
    copy = tmp_path / "elsewhere"
    shutil.copytree(source.parent, copy)
    for folder in (tmp_path / "cold", tmp_path / "warm"):
        assert cli("compile", copy / "main.nacre", "--dump-dir", folder).code == 0
        assert {p.name for p in folder.iterdir()} == {p.name for p in dumped.iterdir()} - {"notes.txt"}
        for path in sorted(folder.iterdir()):
            assert path.read_bytes() == (dumped / path.name).read_bytes(), path.name
            assert str(tmp_path).encode() not in path.read_bytes()
    assert "loc(main.nacre:" in (dumped / "00-graph.graph").read_text()


def test_kernels_stand_under_the_graph_and_the_nodes_that_they_compute(dumped: Path) -> None:
    graph = sorted(dumped.glob("*.graph"))[-1].read_text()
    for path in dumped.glob("*.mlir"):
        found, parts = split_parts("mlir", path.read_text())
        assert found == graph
        assert len(parts) == len({part.symbol for part in parts}) > 1
        for part in parts:
            assert f"func @{part.symbol}(" in part.text
        nodes = [node for part in parts for node in part.nodes]
        assert any(re.fullmatch(r".* = matmul\(.*\) in twice at main.nacre:3:\d+", node) for node in nodes), nodes
        assert all(bool(part.schedules) == (path.stem[3:] != "linalg") for part in parts)
        assert format_parts("mlir", found, parts) == path.read_text()


@pytest.mark.parametrize("stage", ["linalg", "bufferized", "loops", "llvm-dialect"])
def test_operations_name_their_line(cli: Cli, source: Path, stage: str) -> None:
    """Where no tiler writes them anew."""
    text = cli("dump", source, "--stage", stage, "-O0").out
    assert text.count('loc("main.nacre":3:') > 1
    assert not re.findall(r'loc\((?!"?main.nacre)', text)


def test_dump_folder_that_is_a_file(cli: Cli, double: Path) -> None:
    done = cli("compile", double, "--dump-dir", double)
    assert done.code == 1
    assert "error[" in done.err
    assert not double.with_suffix(".so").exists()
