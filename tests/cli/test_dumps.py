"""Dumps: a file for every level, the same bytes every time, no data of weights, and graphs that read back."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import nacre
import numpy as np
import pytest
from cli_harness import Cli
from nacre.compiler.pipeline import GRAPH_PASSES, Build, Options
from nacre.passes.pipeline import parse_pipeline, run_pipeline_text
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
    names = sorted(p.name for p in dumped.iterdir() if p.name != "notes.txt")
    numbers = [int(name[:2]) for name in names]
    assert numbers == list(range(len(names)))
    stages = [re.sub(r"\.\w+$", "", name[3:]) for name in names]
    assert stages == list(Options().stages)
    suffixes = [name.rsplit(".")[-1] for name in names]
    assert suffixes == sorted(suffixes, key=["graph", "mlir", "ll", "s"].index)
    assert (dumped / "notes.txt").read_text() == "not ours"
    assert {"linalg", "bufferized", "loops", "llvm-dialect", "llvm-ir", "optimized", "assembly"} <= set(stages)


def test_each_level_is_what_it_says(dumped: Path) -> None:
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
        if step.name != "fold-constants":  # which cannot fold what the text does not hold
            assert run_pipeline_text(before.read_text(), [step]) == after.read_text(), step.name


def test_no_data_of_weights_and_no_big_constant(dumped: Path) -> None:
    bits = np.float32(WEIGHT).view(np.uint32)
    spellings = ("12345.6", f"{bits:08X}", f"{bits:08x}", str(bits), f"{np.float32(WEIGHT):.6e}")
    for path in dumped.glob("??-*"):
        text = path.read_text()
        assert not [s for s in spellings if s in text], path.name
        assert len(text) < 400_000, path.name
    final = sorted(dumped.glob("*.graph"))[-1].read_text()
    assert re.search(r"constant<f32\[24\], #[0-9a-f]{16}>", final)


def test_the_same_bytes_without_times_and_paths(cli: Cli, source: Path, dumped: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    for path in source.parent.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    assert cli("compile", copy / "main.nacre", "--dump-dir", tmp_path / "again").code == 0
    for path in sorted((tmp_path / "again").iterdir()):
        assert path.read_bytes() == (dumped / path.name).read_bytes(), path.name
        assert str(tmp_path) not in path.read_text()
    assert "loc(main.nacre:" in (dumped / "00-graph.graph").read_text()


def test_dump_after_is_repeatable_and_prints_each_time(cli: Cli, double: Path) -> None:
    done = cli("compile", double, "--emit", "graph", "--dump-after", "canonicalize", "--dump-after", "cse")
    assert done.code == 0
    heads = re.findall(r"// ----- after (.*) -----", done.err)
    assert heads == [name.name for name in parse_pipeline(GRAPH_PASSES[2]) if name.name in ("canonicalize", "cse")]
    assert done.err.count("module double\n") == len(heads)


def test_unknown_stage_does_nothing(cli: Cli, double: Path) -> None:
    before = sorted(double.parent.iterdir())
    done = cli("compile", double, "--dump-dir", double.parent / "dump", "--dump-after", "linagl")
    assert done.code == 2
    assert "linalg" in done.err and "canonicalize" in done.err
    assert sorted(double.parent.iterdir()) == before


@pytest.mark.parametrize("level", range(4))
def test_dump_lists_stages_without_reading_the_model(cli: Cli, level: int) -> None:
    done = cli("dump", "no-such.nacre", "--stage", "list", f"-O{level}")
    assert done.code == 0
    assert done.out.split() == list(Options(level=level).stages)


def test_dump_of_graph_stages_generates_no_code(cli: Cli, double: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Build, "generate", None)
    for stage in ("graph", "canonicalize", "fuse"):
        done = cli("dump", double, "--stage", stage)
        assert done.code == 0 and done.out.startswith("module double\n"), stage
    assert cli("dump", double, "--passes", "unroll-repeat,decompose", "--stage", "decompose").code == 0


@pytest.mark.parametrize(("stage", "has"), [("linalg", "linalg.generic"), ("assembly", "nacre_entry_double")])
def test_dump_of_generated_stages(cli: Cli, double: Path, stage: str, has: str) -> None:
    done = cli("dump", double, "--stage", stage)
    assert done.code == 0 and has in done.out


def test_dump_needs_no_weights(cli: Cli, scaled: Path) -> None:
    (scaled.parent / "scale.safetensors").unlink()
    assert cli("dump", scaled, "--stage", "cse").code == 0


def test_dump_folder_that_is_a_file(cli: Cli, double: Path) -> None:
    done = cli("compile", double, "--dump-dir", double)
    assert done.code == 1
    assert "error[" in done.err
    assert not double.with_suffix(".so").exists()
