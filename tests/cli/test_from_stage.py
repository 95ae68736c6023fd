"""`--from`: builds that continue from the text of a stage, and their errors."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import nacre
import numpy as np
import pytest
from cli_harness import Cli
from llvmlite.binding import parse_assembly
from nacre.compiler.base.environment import CHECK_PASSES
from nacre.compiler.dumps.kernel_texts import split_parts
from nacre.compiler.options import Options
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


@pytest.mark.parametrize("more", [("-O0",), ("-O2",), ("-g",), ("--target", "x86-64-v3,x86-64-v2")])
def test_every_text_of_a_build_leads_to_the_same_object(
    cli: Cli, folder: Path, tmp_path: Path, more: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    level = 0 if "-O0" in more else 2
    options = ("--emit", "obj", *more, "-o")
    dumps, first, again = tmp_path / "dumps", tmp_path / "first.o", tmp_path / "again.o"
    assert cli("compile", folder / "main.nacre", *options, first, "--dump-dir", dumps).code == 0
    # The other builds have to give the bytes of this one, whose stages were checked.
    monkeypatch.delenv(CHECK_PASSES, raising=False)
    named = [f"{number:02d}-{stage}" for number, stage in enumerate(Options(level=level).stages)]
    # With lines or for two targets the texts of code generation alone: those of passes are the same.
    for name in named if more[0].startswith("-O") else named[-5:]:
        (path,) = dumps.glob(f"{name}.*")
        done = cli("compile", path, "--from", name, "--checkpoint", folder / "w.safetensors", *options, again)
        assert done.code == 0, (name, done.err)
        if "-g" in more and name.endswith("assembly"):
            # An assembler writes the same table of lines in other words.
            listings = [subprocess.run(["objdump", "-d", o], capture_output=True).stdout for o in (first, again)]
            assert len({listing.partition(b"Disassembly")[2] for listing in listings}) == 1
        else:
            assert again.read_bytes() == first.read_bytes(), name


def test_artifacts_of_texts(cli: Cli, folder: Path, tmp_path: Path) -> None:
    source, library = folder / "main.nacre", tmp_path / "a.so"
    assert cli("compile", source, "-o", library, "--dump-dir", tmp_path).code == 0
    x = np.random.default_rng(0).standard_normal((3, 24), np.float32)
    expected = nacre.load(library)(x)
    for stage in ("graph", "fuse", "linalg", "llvm-dialect", "llvm-ir", "assembly"):
        (dumped,) = tmp_path.glob(f"*-{stage}.{Options().language(stage)}")
        if stage in ("graph", "fuse", "linalg"):
            assert cli("dump", source, "--stage", stage).out == dumped.read_text()
        weights = ("--checkpoint", folder / "w.safetensors")
        made = tmp_path / f"{stage}.so"
        assert cli("compile", dumped, "--from", stage, *weights, "-o", made).code == 0
        assert np.array_equal(nacre.load(made)(x), expected), stage


@pytest.mark.usefixtures("unchecked")
def test_manual_changes_take_effect(cli: Cli, double: Path, tmp_path: Path) -> None:
    text = tmp_path / "double.mlir"
    sums = {"linalg": "arith.addf", "tiled": "arith.addf", "llvm-dialect": "llvm.fadd", "llvm-ir": "fadd"}
    for stage, plus in (sums | {"optimized": "fadd", "assembly": "vaddps"}).items():
        before = cli("dump", double, "--stage", stage, "--target", "x86-64-v3").out
        changed = re.sub(rf"\b{plus}\b", plus.replace("add", "sub"), before)
        assert changed != before
        # Comments of kernels are lost where another program rewrites the text.
        text.write_text(re.sub(r"^// (?:kernel|computes) .*\n", "", changed, flags=re.MULTILINE))
        done = cli("compile", text, "--from", stage, "-o", tmp_path / f"{stage}.so", "--target", "x86-64-v3")
        assert done.code == 0, done.err
        assert not nacre.load(tmp_path / f"{stage}.so")(np.ones((3, 2), np.float32)).any(), stage


@pytest.mark.usefixtures("unchecked")
def test_device_code_is_changed(cli: Cli, double: Path, tmp_path: Path) -> None:
    """The host's functions, which count blocks, are not part of the texts of the last stages."""
    options = ("--target", "cuda:sm_80")
    for stage, old, new in (
        ("llvm-ir", " fadd ", " fsub "),
        ("optimized", " fadd ", " fsub "),
        ("assembly", "add.rn.f32", "sub.rn.f32"),
    ):
        text, path = tmp_path / f"double.{Options().language(stage)}", tmp_path / f"{stage}.so"
        before = cli("dump", double, "--stage", stage, *options).out
        assert old in before
        for made in (before, before.replace(old, new)):
            text.write_text(made)
            done = cli("compile", text, "--from", stage, "-o", path, *options)
            assert done.code == 0, done.err
            assert (b"sub.rn.f32" in path.read_bytes()) is (made != before), stage
        path.unlink()
        text.write_text(before.replace(".entry ", ".entry other_").replace("ret void", "rot void"))
        done = cli("compile", text, "--from", stage, "-o", path, *options)
        assert done.code == 1 and "error[bad-kernel]" in done.err and not path.exists(), stage
        expected = "there is no `.entry " if stage == "assembly" else "3: error: expected instruction opcode"
        assert expected in done.err, done.err
    # PTX is the assembly of a GPU.
    text.write_text(cli("dump", double, "--stage", "ptx", *options).out)
    assert text.read_text() == before
    assert cli("compile", text, "--from", "ptx", "-o", path, *options).code == 0
    shown = cli("compile", double, "--dump-after", "ptx", "-o", path, *options).err
    assert "----- after assembly -----" in shown
    done = cli("compile", text, "--from", "ptx", "-o", path)
    assert done.code and "there is no stage `ptx`; its name is `assembly`" in done.err


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
    def message(path: Path, stage: str, *options: str) -> str:
        done = cli("compile", path, "--from", stage, "-o", tmp_path / "m.so", *options)
        assert done.code == 1 and not (tmp_path / "m.so").exists()
        return done.err

    source, weights = folder / "main.nacre", ("--checkpoint", str(folder / "w.safetensors"))
    graph, linalg = tmp_path / "m.graph", tmp_path / "m.mlir"
    graph.write_text(cli("dump", source, "--stage", "fuse").out)
    linalg.write_text(text := cli("dump", source, "--stage", "linalg").out)
    assert "error[missing-constant]: " in message(graph, "fuse", *weights)
    assert cli("compile", source, "--emit", "graph", "-o", graph, "--dump-dir", tmp_path).code == 0
    assert "error[no-weights]" in message(graph, "fuse")
    assert "error[missing-kernel]: the graph needs a kernel `" in message(linalg, "linalg", *weights, "-O1")
    linalg.write_text("".join(text.partition("// -----\n")[1:]))
    assert "error[no-graph]" in message(linalg, "linalg", *weights)
    linalg.write_text(text.replace("func.func @fusion", "fun.func @fusion", 1))
    assert "error[bad-kernel]: the text of `fusion_" in message(linalg, "linalg", *weights)
    linalg.write_text(text.replace("// func main", "// funk main"))
    assert "error[graph-syntax]" in message(linalg, "linalg", *weights)
    assert "error[missing-file]" in message(tmp_path / "none.graph", "graph")


def test_stages_that_no_build_goes_on_from(cli: Cli, double: Path) -> None:
    done = cli("compile", double, "--from", "fuze")
    assert done.code == 2 and "there is no stage `fuze`" in done.err


def test_llvm_ir_that_says_too_little(cli: Cli, double: Path, tmp_path: Path) -> None:
    path = tmp_path / "double.ll"
    text = cli("dump", double, "--stage", "llvm-ir").out

    def message(changed: str) -> str:
        assert changed != text
        path.write_text(changed)
        done = cli("compile", path, "--from", "llvm-ir", "-o", tmp_path / "m.so")
        assert done.code == 1 and not (tmp_path / "m.so").exists()
        return done.err

    assert "does not say which of its 2 tensors it uses" in message(re.sub(r"; uses .*\n", "", text))
    assert "does not say which of its 2 tensors it uses" in message(re.sub(r"; uses .*\n", "; uses 1\n", text))
    assert "does not say which of its 2 tensors it uses" in message(
        re.sub(r"(; uses \d+).*\n", r"\1, 7 over 0\n", text)
    )
    parts = text.split("; -----\n; entries")
    symbols = ("nacre_launch_1_2", "observed_nacre_entry_double", "nacre_entry_double")
    for number, symbol in enumerate(symbols, 1):
        left = "; -----\n; entries".join(parts[:number])
        assert f"error[missing-entries]: the text does not define `{symbol}`" in message(left)
    assert "error[bad-kernel]: the text of `nacre_entry_double` cannot be read" in message(f"{text}\ndefine nonsense\n")
    launcher = "void @nacre_launch_1_2("
    assert "error[bad-kernel]: the text of `nacre_launch_1_2` cannot be read" in message(
        text.replace(f"define hidden {launcher}", f"define nonsense {launcher}")
    )


def test_other_programs_read_the_output(cli: Cli, double: Path, tmp_path: Path) -> None:
    dumps, library = tmp_path / "dumps", tmp_path / "double.so"
    assert cli("compile", double, "--dump-dir", dumps, "--emit", "asm", "--emit", "llvm", "-o", library).code == 0
    subprocess.run(["cc", "-c", library.with_suffix(".s"), "-o", tmp_path / "assembly.o"], check=True)
    assert b"nacre_entry_double" in (tmp_path / "assembly.o").read_bytes()
    modules = [library.with_suffix(".ll").read_text()]
    modules += [part.text for path in dumps.glob("*.ll") for part in split_parts("ll", path.read_text())[1]]
    assert len(modules) == 1 + 2 * 4  # the kernel, the launcher, the entry and its observed copy at two stages
    for text in modules:
        assert "define " in str(parse_assembly(text))


@pytest.mark.usefixtures("unchecked")
def test_texts_are_called_and_tested(cli: Cli, double: Path, tmp_path: Path) -> None:
    """What was called of one text is not taken for another one of the same graph."""
    tested = tmp_path / "tested.nacre"
    tested.write_text(double.read_text() + '\ntest double "twice" {\n  given x = [[1, 2]]\n  expect [[2, 4]]\n}\n')
    text, changed = tmp_path / "double.s", tmp_path / "changed.s"
    target = ("--target", "x86-64-v3", "--from", "assembly")
    text.write_text(cli("dump", double, "--stage", "assembly", *target[:2]).out)
    changed.write_text(re.sub(r"\bvadd(?=[ps]s)", "vsub", text.read_text()))
    for path, sums in ((text, [2.0, 4.0]), (changed, [0.0, 0.0])):
        assert cli("run", "--json", path, *target, "--input", "x=[[1, 2]]").json["y"]["first"] == sums
        done = cli("test", path, *target, "--tests", tested)
        assert done.code == int(path == changed), done.err
        assert done.out.count("(interpreter)") == done.out.count("(artifact)") == 1
    assert cli("test", text, *target).code == 2
    tested.write_text(tested.read_text().replace("N, 2]", "N, 3]").replace("2]]", "2, 3]]").replace("4]]", "4, 6]]"))
    assert "error[other-model]" in cli("test", text, *target, "--tests", tested).err
    assert "--from is for model files" in cli("run", "--json", tmp_path / "double.so", *target[2:]).err
