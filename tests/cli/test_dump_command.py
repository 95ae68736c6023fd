"""`nacre dump`, and what `nacre compile` prints of its stages: whole texts, differences, and parts by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from cli_harness import DIGITS, DOUBLE, Cli, on_terminal
from nacre.compiler.codegen.objects import CodeGenerator
from nacre.compiler.graph_passes import GRAPH_PASSES
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.passes.pass_list import parse_pipeline

MODEL = DIGITS / "digits.nacre"


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """Where the graph goes whose passes are watched."""
    return tmp_path / "digits.graph"


def heads(text: str) -> list[str]:
    return re.findall(r"^// ----- (.*) -----$", text, re.MULTILINE)


def test_before_and_after_are_repeatable_and_print_each_time(cli: Cli, double: Path) -> None:
    wanted = ("--dump-after", "canonicalize", "--dump-after", "cse", "--dump-before", "cse")
    done = cli("compile", double, "--emit", "graph", *wanted)
    assert done.code == 0
    expected = []
    for step in parse_pipeline(GRAPH_PASSES[2]):
        expected += [f"before {step.name}"] if step.name == "cse" else []
        expected += [f"after {step.name}"] if step.name in ("canonicalize", "cse") else []
    assert heads(done.err) == expected
    assert done.err.count("module double\n") == len(expected)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("more", [(), ("--target", "x86-64-v3,x86-64-v2"), ("--target", "cuda:sm_80")])
def test_graphs_and_linalg_are_printed_without_code_generation(
    more: Sequence[str], cli: Cli, double: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are the texts of a whole build."""
    assert cli("compile", double, *more, "-o", tmp_path / "m.so", "--dump-dir", tmp_path / "dumps").code == 0

    def refuse(*_: object) -> None:
        raise AssertionError("code is generated")

    monkeypatch.setattr(CodeGenerator, "compile_kernels", refuse)
    for stage in ("graph", "fuse", "linalg"):
        (path,) = (tmp_path / "dumps").glob(f"*-{stage}.*")
        assert cli("dump", double, *more, "--stage", stage).out == path.read_text()
    assert cli("dump", double, *more, "--stage", "llvm-ir").code == 70


NAMES = ["graph", *(step.name for step in parse_pipeline(GRAPH_PASSES[2]))]
FIRST = NAMES.index("canonicalize")
SECOND = NAMES.index("canonicalize", FIRST + 1)
AGAIN = f"{SECOND:02}-canonicalize"
FOLDED = f"{SECOND + 1:02}-fold-constants"


def test_a_run_of_a_pass_by_its_number(cli: Cli, graph: Path) -> None:
    after = cli("compile", MODEL, "--emit", "graph", "-o", graph, "--dump-after", AGAIN).err
    assert heads(after) == ["after canonicalize"]
    before = cli("compile", MODEL, "--emit", "graph", "-o", graph, "--dump-before", FOLDED).err
    assert heads(before) == ["before fold-constants"]
    assert before.replace("before fold-constants", "after canonicalize") == after
    assert cli("dump", MODEL, "--stage", f"{FIRST:02}-canonicalize").out not in after


def test_before_a_pass_that_does_not_come_to_its_end(cli: Cli, double: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("planted")

    monkeypatch.setattr("nacre.passes.simplify.cse.Cse.rewrite", fail)
    done = cli("compile", double, "--dump-before", "cse")
    assert done.code == 70
    assert heads(done.err) == ["before cse"] and "add(%x, %x)" in done.err


def test_changes_of_each_pass(cli: Cli, graph: Path) -> None:
    done = cli("compile", MODEL, "--emit", "graph", "-o", graph, "--dump-changed")
    assert heads(done.err) == [
        f"changed by {name}" for name in ("canonicalize", "dce", "channels-last", "fold-parameters", "dce", "fuse")
    ]
    assert "+  %5_3 = conv2d(" in done.err and "-  %5 = conv2d(" in done.err
    assert "\x1b[" not in done.err
    shown = on_terminal("compile", MODEL, "--emit", "graph", "-o", graph, "--dump-changed")
    assert "\x1b[32m+  %5_3 = conv2d(" in shown.out


def test_parts_by_name(cli: Cli, graph: Path) -> None:
    options = ("compile", MODEL, "--emit", "graph", "-o", graph)
    done = cli(*options, "--dump-changed", "--dump-filter", "hidden")
    assert heads(done.err) == ["changed by fold-parameters", "changed by dce", "changed by fuse"]
    assert "conv2d" not in done.err and "hidden.weight.folded" in done.err
    done = cli(*options, "--dump-after", "fuse", "--dump-filter", "hidden", "--dump-filter", "x_*_last")
    assert "matmul(" in done.err and "max_pool2d(" in done.err and "unsqueeze(" not in done.err
    assert cli(*options, "--dump-after", "fuse", "--dump-filter", "classify").err.count("conv2d(") == 3
    done = cli(*options, "--dump-after", "fuse", "--dump-filter", "hiden")
    assert done.code == 0 and heads(done.err) == []
    assert "no function, kernel, node or block matches `hiden`" in done.err


def test_unknown_stage_does_nothing(cli: Cli, double: Path) -> None:
    before = sorted(double.parent.iterdir())
    for option in ("--dump-after", "--dump-before"):
        done = cli("compile", double, "--dump-dir", double.parent / "dump", option, "linagl")
        assert done.code == 2
        assert "linalg" in done.err and "canonicalize" in done.err
    assert sorted(double.parent.iterdir()) == before


def test_watching_graphs_takes_objects_from_the_cache(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NACRE_CACHE", str(tmp_path / "cache"))
    double = tmp_path / "double.nacre"
    double.write_text(DOUBLE)
    first = cli("compile", double, "--json").json
    again = cli("compile", double, "--json", "--dump-after", "cse").json
    assert "kernels: emit" in first["seconds"] and "kernels: emit" not in again["seconds"]
    assert "kernels: emit" in cli("compile", double, "--json", "--dump-after", "loops").json["seconds"]


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


def test_parts_of_generated_stages(cli: Cli) -> None:
    linalg = cli("dump", MODEL, "--filter", "softmax_*", "--filter", "answer").out
    assert re.findall(r"^func\.func @(\w+)\(.*%end", linalg, re.MULTILINE) == re.findall(
        r"^// kernel (.*)", linalg, re.MULTILINE
    )
    assert linalg.count("// kernel ") == 2 and linalg.count("// kernel softmax_") == 1
    assert re.search(r"^// computes \d+ = matmul\(.*\) in answer at .*digits.nacre:18:10$", linalg, re.MULTILINE)
    assert cli("dump", MODEL, "--stage", "loops", "--filter", "strokes").out.count("// kernel ") == 2
    for stage, begin in (("llvm-ir", "; kernel softmax_"), ("assembly", "# kernel softmax_")):
        text = cli("dump", MODEL, "--stage", stage, "--filter", "softmax_*").out
        assert text.startswith(begin) and "fusion_" not in text and "nacre_entry" not in text, stage
        assert "nacre_entry" in cli("dump", MODEL, "--stage", stage, "--filter", "nacre_entry_*").out


def test_differences_between_two_stages(cli: Cli) -> None:
    done = cli("dump", MODEL, "--between", "graph", "channels-last")
    assert done.code == 0 and done.out.startswith("--- graph\n+++ channels-last\n@@ ")
    assert "\n-  %5 = conv2d(" in done.out and "\n+  %5_3 = conv2d(" in done.out
    assert "edges" not in cli("dump", MODEL, "--between", "graph", "channels-last", "--filter", "strokes").out
    assert cli("dump", MODEL, "--between", FOLDED, AGAIN).out == ""
    assert "\n-" in cli("dump", MODEL, "--between", "llvm-ir", "optimized").out


def test_side_by_side_where_there_is_room() -> None:
    between = ("dump", MODEL, "--between", "graph", "channels-last", "--filter", "strokes")
    wide = on_terminal(*between, environment={"COLUMNS": "200"})
    assert wide.code == 0 and "+++" not in wide.out
    rows = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in wide.out.splitlines()]
    (row,) = [row for row in rows if "%5 = conv2d(" in row]
    assert "%5_1 = transpose(" in row and row.index("%5 = ") < 100 < row.index("%5_1 = ")
    narrow = on_terminal(*between, environment={"COLUMNS": "90"})
    assert "\x1b[32m+  %5_3 = conv2d(" in narrow.out


def test_nothing_lies_between_two_languages(cli: Cli) -> None:
    done = cli("dump", MODEL, "--between", "fuse", "linalg")
    assert done.code == 2 and "`fuse` and `linalg` are in different languages" in done.err
    done = cli("dump", MODEL, "--between", "graph", "fuze")
    assert done.code == 2 and "there is no stage `fuze`" in done.err
