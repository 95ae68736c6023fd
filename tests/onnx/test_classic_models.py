"""The operators of ai.onnx.ml beside ONNX Runtime: trees of every comparison, linear models, scalers, encoders.

The models run in the interpreter, and one of each kind is compiled. Scores agree within the rounding of f32 sums in
another order; labels are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.types import Array
from onnx import TensorProto, helper
from onnx_ml_models import BOTH, FEATURES, FLOAT, Outputs, compare, model_of, ours, theirs

ODD = (0.0, -0.0, 0.5, -1.25, 2.0, np.nan, np.inf, -np.inf, 1e-40, 3e38)
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def random_trees(
    rng: np.random.Generator, kind: str, targets: int, modes: Sequence[str], **more: Any
) -> dict[str, Any]:
    """Returns the attributes of 7 trees, of which the first is one leaf."""
    nodes: list[tuple[Any, ...]] = []
    leaves: list[tuple[int, int, int, float]] = []
    for tree in range(7):
        count = 0 if tree == 0 else int(rng.integers(1, 9))
        places = [(i, 2 * i + 1, 2 * i + 2) for i in range(count)]
        for i, yes, no in places:
            mode = str(rng.choice(modes))
            value = float(rng.choice([0.0, 0.5, -1.25, 2.0]))
            nodes.append((tree, i, int(rng.integers(FEATURES)), mode, value, yes, no, int(rng.integers(2))))
        inner = {i for i, _, _ in places}
        for i in {0, *(c for _, *pair in places for c in pair)} - inner:
            nodes.append((tree, i, 0, "LEAF", 0.0, 0, 0, 0))
            # The first tree reaches all targets: ONNX Runtime adds no base value to a target without a leaf.
            chosen = range(targets) if tree == 0 else sorted({int(rng.integers(targets)) for _ in range(2)})
            for target in chosen:
                leaves.append((tree, i, target, float(rng.normal())))
    nodes.sort(key=lambda node: node[:2])
    names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    columns = list(zip(*nodes, strict=True))
    made = {f"nodes_{name}": list(column) for name, column in zip(names, columns, strict=False)}
    made["nodes_missing_value_tracks_true"] = list(columns[7])
    of_leaf = zip(("treeids", "nodeids", "ids", "weights"), zip(*leaves, strict=True), strict=True)
    return {**made, **{f"{kind}_{name}": list(column) for name, column in of_leaf}, **more}


def random_rows(rng: np.random.Generator, count: int, kind: str = "f") -> Array:
    if kind == "l":
        return rng.integers(-2, 4, (count, FEATURES))
    return rng.choice(ODD, (count, FEATURES)).astype(kind)


@pytest.mark.parametrize("kind", ["f", "d", "l"])
@pytest.mark.parametrize("modes", [MODES[:1], MODES[1:2], MODES[2:4], MODES], ids=["le", "lt", "above", "all"])
def test_regressors(kind: str, modes: Sequence[str]) -> None:
    rng = np.random.default_rng(len(modes) + ord(kind))
    rows = [random_rows(rng, 40, kind)]
    for targets, aggregate in ((1, "SUM"), (3, "SUM"), (2, "AVERAGE"), (1, "MIN"), (1, "MAX")):
        made = random_trees(rng, "target", targets, modes, n_targets=targets, aggregate_function=aggregate)
        made["base_values"] = rng.normal(size=targets).tolist()
        model = model_of("TreeEnsembleRegressor", rows, FLOAT, **made)
        if kind != "l":
            compare(model, rows)
        else:
            # ONNX Runtime has no code for integers here.
            floats = [rows[0].astype(np.float32)]
            wanted = theirs(model_of("TreeEnsembleRegressor", floats, FLOAT, **made), floats)[0]
            np.testing.assert_allclose(ours(model, rows)[0], wanted, rtol=3e-6, atol=2e-6)


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_classifiers(post: str) -> None:
    rng = np.random.default_rng(len(post))
    rows = [random_rows(rng, 40)]
    made = random_trees(rng, "class", 3, MODES[:2], classlabels_int64s=[5, -1, 9], post_transform=post)
    outputs = {"label": TensorProto.INT64, "scores": TensorProto.FLOAT}
    compare(model_of("TreeEnsembleClassifier", rows, outputs, **made), rows)


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("positive", [False, True])
def test_two_classes_with_one_score(post: str, positive: bool) -> None:
    rng = np.random.default_rng(positive)
    rows = [random_rows(rng, 40)]
    made = random_trees(rng, "class", 1, MODES[:1], classlabels_int64s=[3, 8], post_transform=post)
    if positive:
        made["class_weights"] = [abs(weight) / 7 for weight in made["class_weights"]]
    outputs = {"label": TensorProto.INT64, "scores": TensorProto.FLOAT}
    compare(model_of("TreeEnsembleClassifier", rows, outputs, **made), rows)


ROWS = np.random.default_rng(1).normal(size=(9, FEATURES)).astype(np.float32)
ROWS[2] = 0
LINE = [0.5, -1.0, 2.0, 0.25]
SUPPORT = {"support_vectors": [0.5, -1, 2, 0, 1, 1, 0, -1], "coefficients": [0.7, -1.2], "rho": [0.1], "n_supports": 2}
WHOLE = np.array([[1, -7], [3, 5], [0, 2]])
CASES: Mapping[str, tuple[str, Sequence[Array], Outputs, Mapping[str, Any]]] = {
    "linear": ("LinearRegressor", [ROWS], FLOAT, {"coefficients": LINE, "intercepts": [0.5]}),
    "linear-two": ("LinearRegressor", [ROWS], FLOAT, {"coefficients": LINE + LINE, "targets": 2}),
    "classes": ("LinearClassifier", [ROWS], BOTH, {
        "coefficients": [*LINE, *LINE[::-1], 0, 0, 1, 1], "intercepts": [0.5, 0, 1], "classlabels_ints": [4, 2, 0],
        "post_transform": "SOFTMAX"}),
    "two-classes": ("LinearClassifier", [ROWS], BOTH, {
        "coefficients": [*LINE, *(-x for x in LINE)], "intercepts": [0.5, -0.5], "classlabels_ints": [0, 1],
        "post_transform": "LOGISTIC"}),
    "scaler": ("Scaler", [ROWS], FLOAT, {"offset": [0.5, 1, 2, 3], "scale": [2.0, 1, -1, 0]}),
    "scaler-of-integers": ("Scaler", [WHOLE], FLOAT, {"offset": [0.5], "scale": [2.0]}),
    **{f"norm-{norm}": ("Normalizer", [ROWS], FLOAT, {"norm": norm}) for norm in ("MAX", "L1", "L2")},
    "imputer": ("Imputer", [np.where(ROWS > 1, np.float32(np.nan), ROWS)], FLOAT, {
        "imputed_value_floats": LINE, "replaced_value_float": float("nan")}),
    "imputer-of-integers": ("Imputer", [WHOLE], {"y": TensorProto.INT64}, {
        "imputed_value_int64s": [9], "replaced_value_int64": 5}),
    "one-hot": ("OneHotEncoder", [WHOLE], FLOAT, {"cats_int64s": [3, 1, -7], "zeros": 1}),
    "labels": ("LabelEncoder", [WHOLE], FLOAT, {
        "keys_int64s": [5, 1, 3], "values_floats": [0.5, 1.5, 2.5], "default_float": -2.0}),
    "labels-of-floats": ("LabelEncoder", [ROWS], {"y": TensorProto.INT64}, {
        "keys_floats": [0.0, 7.0], "values_int64s": [4, 5], "default_int64": 1}),
    "columns": ("ArrayFeatureExtractor", [ROWS, np.array([3, 0, 3])], FLOAT, {}),
    "join": ("FeatureVectorizer", [ROWS, ROWS[:, :2] * 2], FLOAT, {"inputdimensions": [4, 2]}),
    **{
        f"svm-{kernel}": ("SVMRegressor", [ROWS], FLOAT, {
            "kernel_type": kernel, "kernel_params": [0.5, 0.25, 3.0], **SUPPORT})
        for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID")
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_other_models(name: str) -> None:
    op, rows, outputs, attributes = CASES[name]
    compare(model_of(op, rows, outputs, version=2, **attributes), rows, atol=1e-5 if "svm" in name else 2e-6)


def test_compiled_code() -> None:
    rng = np.random.default_rng(0)
    rows = [random_rows(rng, 33)]
    made = random_trees(rng, "class", 3, MODES, classlabels_int64s=[5, -1, 9], post_transform="SOFTMAX")
    model = model_of("TreeEnsembleClassifier", rows, BOTH, **made)
    compare(model, rows, compiled=True)


def test_a_map_of_scores_is_a_row() -> None:
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[1, 2, 3, 4])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["B", FEATURES])
    y = helper.make_value_info(
        "y", helper.make_sequence_type_proto(
            helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
        )
    )  # fmt: skip
    graph = helper.make_graph([node], "maps", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 3)], ir_version=9)
    (found,) = ours(model, [ROWS])
    np.testing.assert_array_equal(found, ROWS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes_truenodeids": 0}, "node 0: it is a part of a cycle"),
        ({"nodes_falsenodeids": 99}, "tree 1, node 0: its child 99 does not exist"),
        ({"nodes_featureids": 9}, "feature 9 of 4"),
        ({"nodes_modes": "BRANCH_MAYBE"}, "tree 1, node 0: its mode is `BRANCH_MAYBE`"),
    ],
)
def test_bad_trees(change: Mapping[str, Any], message: str) -> None:
    rng = np.random.default_rng(2)
    made = random_trees(rng, "target", 1, MODES[:1], n_targets=1)
    first = made["nodes_treeids"].index(1)
    for name, value in change.items():
        made[name][first] = value
    with pytest.raises(DiagnosticError, match="bad tree") as caught:
        ours(model_of("TreeEnsembleRegressor", [ROWS], FLOAT, **made), [ROWS])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, ""),
        ({"nodes_truenodeids": (1, 1)}, "tree 1, node 1: it is a part of a cycle"),
        ({"nodes_falsenodeids": (1, 99)}, "tree 1, node 1: it refers to child 99 of 4"),
        ({"nodes_modes": (2, 9)}, "tree 1, node 2: its mode is 9"),
        ({"tree_roots": (1, 7)}, "tree 1: its root is 7 among 3 nodes"),
    ],
)
def test_bad_trees_of_version_5(change: Mapping[str, tuple[int, int]], message: str) -> None:
    """Nodes are numbered over all trees: node 0 is the first tree, nodes 1 and 2 are the second one."""
    numbers: dict[str, list[Any]] = {
        "nodes_featureids": [0, 1, 2], "nodes_modes": [0, 0, 1], "tree_roots": [0, 1],
        "nodes_truenodeids": [0, 2, 2], "nodes_trueleafs": [1, 0, 1],
        "nodes_falsenodeids": [1, 1, 3], "nodes_falseleafs": [1, 1, 1], "leaf_targetids": [0, 0, 0, 0],
    }  # fmt: skip
    for name, (at, value) in change.items():
        numbers[name][at] = value
    modes = helper.make_tensor("modes", TensorProto.UINT8, [3], numbers.pop("nodes_modes"))
    splits = helper.make_tensor("splits", TensorProto.FLOAT, [3], [0.5, -1.0, 2.0])
    weights = helper.make_tensor("weights", TensorProto.FLOAT, [4], [1.0, 2.0, 4.0, 8.0])
    tensors = {"nodes_modes": modes, "nodes_splits": splits, "leaf_weights": weights}
    model = model_of("TreeEnsemble", [ROWS], FLOAT, version=5, **numbers, **tensors)
    if not message:
        second = np.where(ROWS[:, 1] <= -1, np.where(ROWS[:, 2] < 2, 4, 8), 2)
        wanted = np.where(ROWS[:, 0] <= 0.5, 1, 2) + second
        np.testing.assert_array_equal(ours(model, [ROWS])[0][:, 0], wanted)
        return
    with pytest.raises(DiagnosticError, match="bad tree") as caught:
        ours(model, [ROWS])
    assert message in str(caught.value)


@pytest.mark.parametrize("count", [2, 3])
def test_labels_of_text_are_bytes(count: int) -> None:
    names = ["a", "third one", "é"][:count]
    rng = np.random.default_rng(0)
    rows = [random_rows(rng, 33)]
    trees = random_trees(rng, "class", count, MODES)
    outputs = {"l": TensorProto.STRING, "y": TensorProto.FLOAT}
    numbered = model_of("TreeEnsembleClassifier", rows, BOTH, **trees, classlabels_int64s=list(range(count)))
    named = model_of("TreeEnsembleClassifier", rows, outputs, **trees, classlabels_strings=names)
    label, scores = ours(numbered, rows)
    text, same = ours(named, rows)
    assert nacre.decode_strings(text).tolist() == [names[int(number)] for number in label]
    assert len(set(label.tolist())) > 1
    np.testing.assert_array_equal(same, scores)
