"""Tree ensembles of artifacts and files: their extent, their operators, and the first nodes that differ."""

from __future__ import annotations

import re
from pathlib import Path

import nacre
import pytest
from cli.cli_harness import Done, nacre_process
from nacre.compiler.cli.main import run
from nacre.compiler.tools.stored_trees import compare_trees, read_trees

DATA = Path(__file__).parents[1] / "readers" / "trees" / "data"


def changed(pattern: str, text: str, folder: Path, name: str = "lgb_zero") -> Path:
    data = (DATA / f"{name}.txt").read_text()
    path = folder / "changed.txt"
    path.write_text(re.sub(pattern, text, data, count=1, flags=re.MULTILINE | re.DOTALL))
    assert path.read_text() != data
    return path


@pytest.mark.parametrize(
    ("pattern", "text", "message"),
    [
        (r"(Tree=3.*?\nthreshold=\S+ )\S+", r"\g<1>0.125", r"tree 3: A has node 22: .*, B has node 22: x0 <= 0.125"),
        (r"(Tree=1.*?\nsplit_feature=)\d", r"\g<1>4", r"tree 1: A has node 7: x0 <= .*, B has node 7: x4 <= "),
        (r"(Tree=2.*?\nleaf_value=\S+ )\S+", r"\g<1>0.5", r"tree 2: A has leaf 17: 0\.07.*, B has leaf 17: 0\.5"),
        (r"(Tree=0.*?\ndecision_type=)\d+", r"\g<1>4", r"tree 0: A has node 0: .* 0: yes, B has node 0: .* 0: no"),
    ],
)  # fmt: skip
def test_the_first_node_that_differs(pattern: str, text: str, message: str, tmp_path: Path) -> None:
    heading, line = compare_trees(DATA / "lgb_zero.txt", changed(pattern, text, tmp_path))
    assert heading == "trees that differ: 1 of 5" and re.search(message, line), line
    assert compare_trees(DATA / "lgb_zero.txt", DATA / "lgb_zero.txt") == []


def test_sets_and_shapes() -> None:
    lines = compare_trees(DATA / "xgb_logistic.json", DATA / "xgb_poisson.json")
    assert lines[0].startswith("trees that differ: ") and "A has node 0: x" in lines[1]
    (first, *_) = compare_trees(DATA / "lgb_classes.txt", DATA / "lgb_zero.txt")[1:]
    assert first.startswith("  A has 3 trees for each of 3 outputs, ")


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Artifacts have no values of leaves in the form of trees; their nodes are compared."""
    other = changed(r"(Tree=3.*?\nthreshold=\S+ )\S+", r"\g<1>0.125", tmp_path)
    for path, name in ((DATA / "lgb_zero.txt", "a.so"), (other, "b.so")):
        nacre.compile(path, tmp_path / name)
    read = read_trees(tmp_path / "a.so")
    assert [e.extent() for e in read.ensembles] == ["5 trees, 35 nodes, 40 leaves, depths 4 to 5, 2 features read"]
    assert read.operators["raw"] == [["row_ranks", "ranked_rows"], ["feature_ranks", "ranked_trees"]]
    assert read.operators["leaves"] == [["tree_leaves"]]
    assert run(["inspect", str(tmp_path / "a.so")]) == 0
    shown = Done(0, capsys.readouterr().out, "", "inspect")
    assert "trees: 5 trees, 35 nodes" in shown.out and "few rows: row_ranks, ranked_rows" in shown.sentences
    assert run(["inspect", str(tmp_path / "a.so"), "--json"]) == 0
    output = Done(0, capsys.readouterr().out, "", "inspect").json
    assert output["trees"]["operators"]["leaves"] == [["tree_leaves"]]
    output = nacre_process("diff", tmp_path / "a.so", tmp_path / "b.so", "--json").json
    assert output["trees"][0] == "trees that differ: 1 of 5" and "tree 3: A has node 22" in output["trees"][1]
