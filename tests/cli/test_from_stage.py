"""`--from`: builds that go on from the text of a stage, and what is told where they cannot."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import nacre
import numpy as np
import pytest
from cli_harness import Cli
from llvmlite.binding import parse_assembly
from nacre.compiler.pipeline import Options
from safetensors.numpy import save_file

# Two blocks of one kernel, weights that are folded and packed, a table that is too big for the text.
MODEL = """block Linear<n>(x: f32[B, n]) -> f32[B, n] {
  param weight: f32[n, n]
  param bias: f32[n]
  return x @ weight.T + bias
}

dim B in 1..8

model main(x: f32[B, 24]) -> y: f32[B, 24] {
  weights "w.safetensors"
  use one = Linear<24>
  use two = Linear<24>
  return softmax(x |> one |> relu |> two) + sin(cast(iota(24), f32))
}
"""
GRAPH = """module m

dim N in 1..64

func main(%x: f32[N, 2], %y: f32[N, 2]) -> (f32[N, 2], f32[N, 2]) {
  %0 = add(%x, %y) : f32[N, 2]
  %1 = subtract(%x, %y) : f32[N, 2]
  return %0, %1
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("from")
    (folder / "main.nacre").write_text(MODEL)
    random = np.random.default_rng(1)
    shapes = {f"{block}.weight": (24, 24) for block in ("one", "two")} | {
        f"{block}.bias": (24,) for block in ("one", "two")
    }
    save_file({key: random.standard_normal(s, np.float32) for key, s in shapes.items()}, folder / "w.safetensors")
    return folder


@pytest.mark.parametrize("level", [0, 2])
def test_every_text_of_a_build_leads_to_the_same_object(cli: Cli, folder: Path, tmp_path: Path, level: int) -> None:
    options = ("--emit", "obj", f"-O{level}", "-o")
    dumps, first, again = tmp_path / "dumps", tmp_path / "first.o", tmp_path / "again.o"
    assert cli("compile", folder / "main.nacre", *options, first, "--dump-dir", dumps).code == 0
    named = [f"{number:02d}-{stage}" for number, stage in enumerate(Options(level=level).stages)]
    read = [name for name in named if Options(level=level).language(name) in ("graph", "mlir")]
    assert {"00-graph", read[-1]} == {read[0], f"{len(read) - 1:02d}-llvm-dialect"}
    for name in read:
        (path,) = dumps.glob(f"{name}.*")
        done = cli("compile", path, "--from", name, "--checkpoint", folder / "w.safetensors", *options, again)
        assert done.code == 0, (name, done.err)
        assert again.read_bytes() == first.read_bytes(), name


@pytest.mark.parametrize("stage", ["graph", "fuse", "linalg", "llvm-dialect"])
def test_an_artifact_of_a_text(cli: Cli, folder: Path, tmp_path: Path, stage: str) -> None:
    source = folder / "main.nacre"
    suffix = Options().language(stage)
    text = tmp_path / f"text.{suffix}"
    assert cli("compile", source, "--emit", "graph", "-o", tmp_path / "m.graph", "--dump-dir", tmp_path).code == 0
    text.write_text(cli("dump", source, "--stage", stage).out)
    weights = ("--checkpoint", folder / "w.safetensors")
    assert cli("compile", text, "--from", stage, *weights, "-o", tmp_path / "b.so").code == 0
    x = np.random.default_rng(0).standard_normal((3, 24), np.float32)
    expected = nacre.compile(source, tmp_path / "a.so")(x)
    assert np.array_equal(nacre.load(tmp_path / "b.so")(x), expected)


def test_what_was_changed_by_hand_counts(cli: Cli, double: Path, tmp_path: Path) -> None:
    text = tmp_path / "double.mlir"
    for stage in ("linalg", "tiled", "llvm-dialect"):
        before = cli("dump", double, "--stage", stage).out
        changed = re.sub(r"\b(arith.|llvm.f)(?:addf|add)\b", r"\1XX", before).replace("arith.XX", "arith.subf")
        changed = changed.replace("llvm.fXX", "llvm.fsub")
        assert changed != before
        # Comments of kernels are lost where another program rewrites the text.
        text.write_text(re.sub(r"^// (?:kernel|computes) .*\n", "", changed, flags=re.MULTILINE))
        done = cli("compile", text, "--from", stage, "-o", tmp_path / f"{stage}.so")
        assert done.code == 0, done.err
        assert not nacre.load(tmp_path / f"{stage}.so")(np.ones((3, 2), np.float32)).any(), stage


def test_a_graph_of_results_without_names(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "m.graph").write_text(GRAPH)
    assert cli("compile", tmp_path / "m.graph", "--from", "graph", "-o", tmp_path / "m.so").code == 0
    model = nacre.load(tmp_path / "m.so")
    assert [r["name"] for r in model.describe()["entries"][0]["results"]] == ["result0", "result1"]
    results = model(np.full((1, 2), 3, np.float32), np.ones((1, 2), np.float32))
    assert [r.tolist() for r in results] == [[[4, 4]], [[2, 2]]]
    # The graph after `fuse` was fused already, the one after `dce` is yet to be.
    assert "fusion(" not in cli("dump", tmp_path / "m.graph", "--from", "fuse", "--stage", "graph").out
    assert "linalg.generic" in cli("dump", tmp_path / "m.graph", "--from", "dce").out


def test_texts_that_say_too_little(cli: Cli, folder: Path, tmp_path: Path) -> None:
    def told(path: Path, stage: str, *options: str) -> str:
        done = cli("compile", path, "--from", stage, "-o", tmp_path / "m.so", *options)
        assert done.code == 1 and not (tmp_path / "m.so").exists()
        return done.err

    source, weights = folder / "main.nacre", ("--checkpoint", str(folder / "w.safetensors"))
    graph, linalg = tmp_path / "m.graph", tmp_path / "m.mlir"
    graph.write_text(cli("dump", source, "--stage", "fuse").out)
    linalg.write_text(text := cli("dump", source, "--stage", "linalg").out)
    assert "error[missing-constant]: " in told(graph, "fuse", *weights)
    assert cli("compile", source, "--emit", "graph", "-o", graph, "--dump-dir", tmp_path).code == 0
    assert "error[no-weights]" in told(graph, "fuse")
    assert "error[missing-kernel]: the graph needs a kernel `" in told(linalg, "linalg", *weights, "-O1")
    linalg.write_text("".join(text.partition("// -----\n")[1:]))
    assert "error[no-graph]" in told(linalg, "linalg", *weights)
    linalg.write_text(text.replace("func.func @fusion", "fun.func @fusion", 1))
    assert "error[bad-kernel]: the text of `fusion_" in told(linalg, "linalg", *weights)
    linalg.write_text(text.replace("// func main", "// funk main"))
    assert "error[graph-syntax]" in told(linalg, "linalg", *weights)
    assert "error[missing-file]" in told(tmp_path / "none.graph", "graph")


def test_stages_that_no_build_goes_on_from(cli: Cli, double: Path) -> None:
    for stage, words in (("assembly", "no build goes on from `assembly`"), ("fuze", "there is no stage `fuze`")):
        done = cli("compile", double, "--from", stage)
        assert done.code == 2 and words in done.err


def test_other_programs_read_what_comes_after(cli: Cli, double: Path, tmp_path: Path) -> None:
    assert cli("compile", double, "--dump-dir", tmp_path / "dumps").code == 0
    (assembly,) = (tmp_path / "dumps").glob("*.s")
    subprocess.run(["cc", "-c", assembly, "-o", tmp_path / "assembly.o"], check=True)
    assert b"nacre_entry_double" in (tmp_path / "assembly.o").read_bytes()
    for path in (tmp_path / "dumps").glob("*.ll"):
        assert "define " in str(parse_assembly(path.read_text()))
