"""Files of trees that are cut off, inconsistent or unknown: a diagnostic with the tree and the node, never a crash."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nacre.compiler.readers.table import read_file
from nacre.compiler.readers.trees.fields import number
from nacre.dialect.diagnostics import Diagnostic, DiagnosticError

FOLDER = Path(__file__).parent / "data"
Change = Callable[[Any], None]


def errors(path: Path) -> list[Diagnostic]:
    with pytest.raises(DiagnosticError) as caught:
        read_file(path)
    return list(caught.value.diagnostics)


def error(data: bytes, name: str, folder: Path) -> Diagnostic:
    path = folder / name
    path.write_bytes(data)
    (found,) = errors(path)
    return found


@pytest.mark.parametrize(
    "name",
    [
        "lgb_zero.txt", "lgb_linear.txt", "xgb_squared.ubj", "xgb_logistic.json", "xgb_vectors.json", "cat_rmse.cbm",
        "cat_classes.json", "cat_statistics.cbm", "cat_statistics_in_json.json",
    ],
)  # fmt: skip
def test_a_file_that_is_cut_off(name: str, tmp_path: Path) -> None:
    data = (FOLDER / name).read_bytes()
    # A text of LightGBM is complete with the line `end of trees`; importances and parameters follow it.
    end = data.find(b"end of trees") if name.endswith(".txt") else len(data)
    for part in range(40):
        found = error(data[: end * part // 40], name, tmp_path)
        assert found.code == "bad-tree", (part, found)


@pytest.mark.parametrize(
    "name", ["xgb_squared.ubj", "cat_rmse.cbm", "lgb_classes.txt", "lgb_linear.txt", "cat_statistics.cbm"]
)
def test_changed_bytes_are_an_error_or_a_model(name: str, tmp_path: Path) -> None:
    data = (FOLDER / name).read_bytes()
    path = tmp_path / name
    refused = 0
    for place in range(8, len(data), len(data) // 97):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x85]) + data[place + 1 :])
        try:
            read_file(path)
        except DiagnosticError:
            refused += 1
    assert refused > 10


def replaced(pattern: str, text: str) -> Callable[[str], str]:
    return lambda data: re.sub(pattern, text, data, count=1, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (replaced(r"^left_child=\S+", "left_child=0"), "bad-tree", "tree 0, node 0: it is the child of two nodes"),
        (replaced(r"^left_child=\S+", "left_child=99"), "bad-tree", "tree 0, node 0: it refers to child 99"),
        (replaced(r"^right_child=\S+", "right_child=-77"), "bad-tree", "tree 0, node 0: it refers to leaf 76"),
        (replaced(r"^split_feature=\S+", "split_feature=6"), "bad-tree", "tree 0, node 0: it refers to feature 6 of 6"),
        (replaced(r"^split_feature=\S+", "split_feature=x"), "bad-tree", "`split_feature` holds a word"),
        (replaced(r"^threshold=\S+", "threshold=nan"), "bad-tree", "tree 0, node"),
        (replaced(r"^threshold=\S+ ", "threshold="), "bad-tree", "tree 0: `threshold` has"),
        (replaced(r"^num_leaves=.*", "num_leaves=0"), "bad-tree", "tree 0: the tree has 0 leaves"),
        (replaced(r"^decision_type=\S+", "decision_type=14"), "bad-tree", "tree 0, node 0: the decision type 14"),
        (replaced(r"^objective=.*", "objective=magic"), "unsupported-objective", "`magic`"),
        (replaced(r"^version=.*", "version=v9"), "unsupported-version", "`v9`"),
        (replaced(r"^is_linear=0", "is_linear=1"), "bad-tree", "tree 0: `leaf_const` is missing"),
        (replaced(r"^tree\n", "bush\n"), "bad-tree", "its first line"),
        (replaced(r"^max_feature_idx=.*", "max_feature_idx=-1"), "bad-tree", "0 features"),
        (replaced(r"^Tree=2\n", "Twig=2\n"), "bad-tree", "declares"),
    ],
)
def test_inconsistent_lightgbm_files(change: Callable[[str], str], code: str, message: str, tmp_path: Path) -> None:
    text = (FOLDER / "lgb_classes.txt").read_text()
    changed = change(text)
    assert changed != text
    found = error(changed.encode(), "model.txt", tmp_path)
    assert found.code == code and message in found.message, found


def put(path: str, value: Any) -> Change:
    def change(record: Any) -> None:
        *outer, last = [int(part) if part.isdigit() else part for part in path.split("/")]
        for part in outer:
            record = record[part]
        record[last] = value

    return change


_MODEL = "learner/gradient_booster/model"
_TREE = f"{_MODEL}/trees/1"


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (put(f"{_TREE}/left_children/0", 0), "bad-tree", "tree 1, node 0: it is the child of two nodes"),
        (put(f"{_TREE}/right_children/0", 1), "bad-tree", "tree 1, node 1: it is the child of two nodes"),
        (put(f"{_TREE}/right_children/1", 700), "bad-tree", "tree 1, node 1: it refers to node 700"),
        (put(f"{_TREE}/split_indices/0", 6), "bad-tree", "tree 1, node 0: it refers to feature 6 of 6"),
        (put(f"{_TREE}/tree_param", 3), "bad-tree", "tree 1: `tree_param` is not a record"),
        (put(f"{_TREE}/split_conditions", []), "bad-tree", "tree 1: `split_conditions` has 0 elements"),
        (put(f"{_TREE}/tree_param/size_leaf_vector", "2"), "bad-tree", "tree 1: `base_weights` has"),
        (put(f"{_MODEL}/tree_info/1", 5), "bad-tree", "tree 1: it belongs to output 5 of 1"),
        (put(f"{_MODEL}/tree_info", None), "bad-tree", "`tree_info` is not a list"),
        (put("learner/objective/name", "reg:magic"), "unsupported-objective", "`reg:magic`"),
        (put("learner/gradient_booster/name", "gblinear"), "unsupported-trees", "`gblinear`"),
        (put("learner/learner_model_param/base_score", "[1.5]"), "bad-tree", "base score 1.5"),
        (put("version", [4, 0, 0]), "unsupported-version", "XGBoost 4.0.0"),
        (put("version", []), "unsupported-version", "XGBoost"),
        (lambda record: record.pop("learner"), "bad-tree", "neither"),
    ],
)
def test_inconsistent_xgboost_files(change: Change, code: str, message: str, tmp_path: Path) -> None:
    record = json.loads((FOLDER / "xgb_logistic.json").read_text())
    change(record)
    found = error(json.dumps(record).encode(), "model.json", tmp_path)
    assert found.code == code and message in found.message, found


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (put("oblivious_trees/1/leaf_values", [1.0]), "bad-tree", "tree 1: it has 1 values of leaves, expected 24"),
        (put("oblivious_trees/1/splits/0/float_feature_index", 9), "bad-tree", "tree 1: a split refers to feature 9"),
        (put("oblivious_trees/1/splits/0/split_type", "OneHotFeature"), "bad-tree", "tree 1: `cat_feature_index`"),
        (put("oblivious_trees/1/splits/0/split_type", "Text"), "unsupported-trees", "tree 1: it has a split"),
        (put("features_info/categorical_features", [{}]), "bad-tree", "`feature_index` is missing"),
        (put("features_info/text_features", [{}]), "unsupported-trees", "text features"),
        (put("scale_and_bias", [1]), "bad-tree", "not a pair"),
        (put("model_info/params/loss_function/type", "Magic"), "unsupported-objective", "`Magic`"),
        (put("oblivious_trees/0/splits/0/border", "x"), "bad-tree", "tree 0: `border`"),
        (put("features_info", 3), "bad-tree", "`features_info` is not a record"),
        (put("features_info/float_features/0", 3), "bad-tree", "element 0 of `float_features` is not a record"),
        (put("features_info/float_features/0/borders", 3), "bad-tree", "`borders` is not a list"),
    ],
)
def test_inconsistent_catboost_files(change: Change, code: str, message: str, tmp_path: Path) -> None:
    record = json.loads((FOLDER / "cat_classes.json").read_text())
    change(record)
    found = error(json.dumps(record).encode(), "model.json", tmp_path)
    assert found.code == code and message in found.message, found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replaced(r"^leaf_features=\S+", "leaf_features=6"), "the linear model of leaf"),
        (replaced(r"^leaf_features= *\d+", "leaf_features="), ": `leaf_features` has"),
        (replaced(r"^leaf_coeff= *\S+", "leaf_coeff=x"), ": `leaf_coeff` holds a word"),
        (replaced(r"^num_features=\S+", "num_features=-1"), "tree 0: `num_features` holds a number below 0"),
    ],
)
def test_inconsistent_linear_leaves(change: Callable[[str], str], message: str, tmp_path: Path) -> None:
    text = (FOLDER / "lgb_linear_classes.txt").read_text()
    changed = change(text)
    assert changed != text
    found = error(changed.encode(), "model.txt", tmp_path)
    assert found.code == "bad-tree" and message in found.message, found


def test_vectors_out_of_range(tmp_path: Path) -> None:
    record = json.loads((FOLDER / "xgb_vectors.json").read_text())
    tree = record["learner"]["gradient_booster"]["model"]["trees"][1]
    leaf = tree["left_children"].index(-1)
    tree["right_children"][leaf] = 99
    found = error(json.dumps(record).encode(), "model.json", tmp_path)
    assert found.code == "bad-tree" and f"tree 1, node {leaf}: it refers to vector 99 of" in found.message, found


_SPLIT = "oblivious_trees/2/splits/0"
_CTR = "features_info/ctrs/0"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put(f"{_SPLIT}", {"split_type": "OnlineCtr", "split_index": 0, "border": 1}), "tree 2: a split refers to the"),
        (put(f"{_SPLIT}", {"split_type": "OneHotFeature", "cat_feature_index": 0, "value": 5}), "tree 2: a split"),
        (put(f"{_CTR}/identifier", "no table"), "the table of the statistic no table is missing"),
        (put(f"{_CTR}/elements", []), "a statistic has no elements"),
        (put(f"{_CTR}/elements/0/cat_feature_index", 7), "categorical feature 7 of 3"),
        (put(f"{_CTR}/target_border_idx", 70), "reads class 70 of"),
        (put(f"{_CTR}/scale", "x"), "`scale` is"),
    ],
)
def test_inconsistent_statistics(change: Change, message: str, tmp_path: Path) -> None:
    record = json.loads((FOLDER / "cat_statistics_in_json.json").read_text())
    change(record)
    found = error(json.dumps(record).encode(), "model.json", tmp_path)
    assert found.code == "bad-tree" and message in found.message, found


@pytest.mark.parametrize(("name", "value"), [("hash_stride", 1), ("hash_stride", 7919), ("hash_map", ["x", 1])])
def test_bad_tables_of_statistics(name: str, value: Any, tmp_path: Path) -> None:
    record = json.loads((FOLDER / "cat_statistics_in_json.json").read_text())
    next(iter(record["ctr_data"].values()))[name] = value
    found = error(json.dumps(record).encode(), "model.json", tmp_path)
    assert found.code == "bad-tree", found


def test_a_missing_file() -> None:
    for suffix in (".txt", ".json", ".ubj", ".cbm"):
        assert errors(Path(f"/nowhere/model{suffix}"))[0].code == "missing-file"


@pytest.mark.parametrize("value", [10**400, "x", None, [1], float("nan")])
def test_a_value_that_is_no_number(value: object) -> None:
    """An integer of JSON may have more digits than a float holds."""
    with pytest.raises(DiagnosticError, match="`leaf` is "):
        number(value, "leaf")
