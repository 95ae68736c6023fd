"""Small ensembles as model text, which holds tables and trees: no other file is written, and sums keep their bits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from cli.cli_harness import nacre_process
from nacre.compiler.readers.language.model_trees import TreeNodes
from nacre.dialect.graph import Constant, Function, Node, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import F32, I32, DType, TensorType
from readers.trees.test_native_models import FOLDER, MODELS, arguments, close, interpret, stored

NAMES = ("lgb_classes", "lgb_linear", "lgb_zero", "xgb_dart", "xgb_vectors", "cat_logloss", "cat_leaves")


def imported(name: str, folder: Path) -> Path:
    (path,) = (path for path in MODELS if path.stem == name)
    output = folder / f"{name}.nacre"
    assert nacre_process("import", str(path), "-o", str(output)).code == 0
    return output


@pytest.mark.parametrize("name", NAMES)
def test_a_text_has_the_bits_of_the_library(name: str, tmp_path: Path) -> None:
    path = imported(name, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    io = stored()
    raw, found = io[f"{name}.raw"], interpret(path, "raw", arguments(name))
    np.testing.assert_array_equal(found, raw.reshape(found.shape))
    close(interpret(path, "main", arguments(name)), io[f"{name}.prediction"])
    if f"{name}.leaves" in io:
        np.testing.assert_array_equal(interpret(path, "leaves", arguments(name)), io[f"{name}.leaves"])


@pytest.mark.usefixtures("unchecked")  # the bits of the library are a stricter check
def test_a_compiled_text_has_the_bits_of_the_library(tmp_path: Path) -> None:
    model = nacre.compile(imported("lgb_classes", tmp_path), tmp_path / "model.so")
    np.testing.assert_array_equal(model.entries["raw"](*arguments("lgb_classes")), stored()["lgb_classes.raw"])


def test_comments_show_each_tree(tmp_path: Path) -> None:
    """The splits of the first tree of XGBoost's own file, with the feature and threshold of each node."""
    text = imported("xgb_dart", tmp_path).read_text()
    trees = json.loads((FOLDER / "xgb_dart.json").read_text())["learner"]["gradient_booster"]["gbtree"]["model"][
        "trees"
    ]
    assert [f"# tree {number}" in text for number in range(len(trees))] == [True] * len(trees)
    first = text.partition("# tree 1\n")[0]
    nodes = [n for n, left in enumerate(trees[0]["left_children"]) if left >= 0]
    assert first.count(": x") == len(nodes) > 2
    for node in nodes:
        threshold = np.float32(trees[0]["split_conditions"][node])
        assert f"x{trees[0]['split_indices'][node]} < {threshold}; NaN: " in first


def test_a_large_ensemble_keeps_its_tables_in_a_file(tmp_path: Path) -> None:
    text = (FOLDER / "lgb_binary.txt").read_text()
    head, first, rest = text.partition("\nTree=0")
    tree, end, tail = (first + rest).partition("\nend of trees")
    first_tree = tree.split("\nTree=")[1].partition("\n")[2]
    many = "".join(f"\nTree={number}\n{first_tree}" for number in range(80))
    head = "\n".join(line for line in head.split("\n") if not line.startswith("tree_sizes"))
    (tmp_path / "large.txt").write_text(head + many + end + tail)
    assert nacre_process("import", str(tmp_path / "large.txt")).code == 0
    assert (tmp_path / "large.safetensors").exists() and "ranked_trees(" in (tmp_path / "large.nacre").read_text()


TABLES: Mapping[str, tuple[DType, Any]] = {
    "feature": (I32, [0, 1]),
    "threshold": (F32, [0.5, 1.5]),
    "children": (I32, [[-1, -2], [-3, -4]]),
    "flags": (I32, [0, 0]),
    "sets": (I32, []),
    "bounds": (I32, [0]),
    "roots": (I32, [[0, 1]]),
    "depths": (I32, [[1, 1]]),
    "values": (F32, [[1.0], [2.0], [3.0], [4.0]]),
    "initial": (F32, [[0.0]]),
}
"""Two trees of one node."""


def count_blocks(*changes: Mapping[str, Any]) -> int:
    """Returns the number of blocks of a function with an ensemble for each change."""
    x = Value("x", TensorType(F32, (4, 2)))
    b = Builder(OPERATORS)
    for change in changes:
        operands = []
        for name, (dtype, data) in TABLES.items():
            table = Constant(np.array(change.get(name, data), dtype.numpy))
            operands.append(b.fresh(table.type))
            b.nodes.append(Node("constant", (), (operands[-1],), (("value", table),)))
        b.tree_ensemble(x, *operands, compare=change.get("compare", "le"), routing=change.get("routing", "compare"))
    return len(TreeNodes.of([Function("m", (x,), tuple(b.nodes), ())]).nodes)


@pytest.mark.parametrize(
    "change",
    [
        {"compare": "lt"},
        {"routing": "missing"},
        {"feature": [1, 1]},
        {"threshold": [0.5, 2.5]},
        {"children": [[-2, -1], [-3, -4]]},
        {"flags": [0, 1]},
        {"roots": [[1, 0]]},
        {"values": [[1.0], [2.0], [3.0], [5.0]]},
        {"initial": [[1.0]]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_ensembles_that_differ_have_blocks_of_their_own(change: Mapping[str, Any]) -> None:
    assert count_blocks({}, {}) == 1
    assert count_blocks({}, change) == 2
