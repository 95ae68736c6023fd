"""Estimators of scikit-learn as PMML, in the forms that exporters write, beside the predictions of the estimators.

A forest is an average of trees; boosting is a sum, scaled by its targets, and a regression with a link function behind
it. Splits are written as a pair of opposite predicates, or the second one as `True`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.dialect.types import Array
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeClassifier
from test_random_pmml import interpret

COLUMN = "double(x"
"""The name of a column without its end: thresholds are f64, and columns are rounded to f32, as in the estimators."""


def nodes(tree: Any, scores: Array, *, compact: bool, names: list[str] | None = None, node: int = 0) -> str:
    """Returns what is inside a node after its predicate."""
    left, right = int(tree.children_left[node]), int(tree.children_right[node])
    if left < 0:
        return ""
    parts = []
    for child, operator in ((left, "lessOrEqual"), (right, "greaterThan")):
        field, cut = f"{COLUMN}{tree.feature[node]})", repr(float(tree.threshold[node]))
        test = f'<SimplePredicate field="{field}" operator="{operator}" value="{cut}"/>'
        if compact and operator == "greaterThan":
            test = "<True/>"
        inner = nodes(tree, scores, compact=compact, names=names, node=child)
        parts.append(
            f"<Node {score_of(scores[child], names)[0]}>{test}{score_of(scores[child], names)[1]}{inner}</Node>"
        )
    return "".join(parts)


def score_of(values: Array, names: list[str] | None) -> tuple[str, str]:
    if names is None:
        return f'score="{float(values[0])!r}"', ""
    parts = "".join(
        f'<ScoreDistribution value="{name}" recordCount="{float(x)!r}" probability="{float(x)!r}"/>'
        for name, x in zip(names, values, strict=True)
    )
    return f'score="{names[int(np.argmax(values))]}"', parts


def schema(count: int, extra: str = "") -> str:
    fields = "".join(f'<MiningField name="x{i}"/>' for i in range(count))
    return f'<MiningSchema>{fields}{extra}<MiningField name="y" usageType="target"/></MiningSchema>'


def tree_model(tree: Any, count: int, scores: Array, *, compact: bool, names: list[str] | None = None) -> str:
    function = "regression" if names is None else "classification"
    attributes, inner = score_of(scores[0], names)
    body = nodes(tree, scores, compact=compact, names=names)
    return (
        f'<TreeModel functionName="{function}" missingValueStrategy="nullPrediction" splitCharacteristic="binarySplit">'
        f"{schema(count)}<Node {attributes}><True/>{inner}{body}</Node></TreeModel>"
    )


def mining(function: str, method: str, parts: list[str], count: int, extra: str = "") -> str:
    segments = "".join(f'<Segment id="{i}"><True/>{part}</Segment>' for i, part in enumerate(parts))
    head = f'<MiningModel functionName="{function}">{schema(count)}{extra}'
    return f'{head}<Segmentation multipleModelMethod="{method}">{segments}</Segmentation></MiningModel>'


def file(model: str, count: int, names: list[str] | None) -> str:
    values = "".join(f'<Value value="{name}"/>' for name in names or ())
    kind = 'optype="continuous" dataType="double"' if names is None else 'optype="categorical" dataType="integer"'
    fields = "".join(f'<DataField name="x{i}" optype="continuous" dataType="double"/>' for i in range(count))
    derived = "".join(
        f'<DerivedField name="float(x{i})" optype="continuous" dataType="float"><FieldRef field="x{i}"/></DerivedField>'
        f'<DerivedField name="{COLUMN}{i})" optype="continuous" dataType="double"><FieldRef field="float(x{i})"/>'
        "</DerivedField>"
        for i in range(count)
    )
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<PMML xmlns="http://www.dmg.org/PMML-4_3" version="4.3"><Header/>'
    dictionary = f'<DataDictionary>{fields}<DataField name="y" {kind}>{values}</DataField></DataDictionary>'
    return f"{head}{dictionary}<TransformationDictionary>{derived}</TransformationDictionary>{model}</PMML>"


IRIS, DIABETES = load_iris(return_X_y=True), load_diabetes(return_X_y=True)


@pytest.mark.parametrize("compact", [False, True])
def test_forests(compact: bool, tmp_path: Path) -> None:
    x, y = DIABETES[0], DIABETES[1]
    forest = RandomForestRegressor(6, max_depth=5, random_state=1).fit(x, y)
    trees = [e.tree_ for e in forest.estimators_]
    parts = [tree_model(t, 10, t.value[:, 0], compact=compact) for t in trees]
    (tmp_path / "forest.pmml").write_text(file(mining("regression", "average", parts, 10), 10, None))
    np.testing.assert_allclose(interpret(tmp_path / "forest.pmml", "main", x), forest.predict(x), rtol=1e-14)


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("count", [1, 5])
def test_classes(compact: bool, count: int, tmp_path: Path) -> None:
    x, y, names = IRIS[0], IRIS[1] * 10, ["0", "10", "20"]
    model: Any = DecisionTreeClassifier(max_depth=4, random_state=1)
    model = (model if count == 1 else RandomForestClassifier(count, max_depth=4, random_state=1)).fit(x, y)
    trees = [e.tree_ for e in model.estimators_] if count > 1 else [model.tree_]
    shares = [t.value[:, 0] / t.value[:, 0].sum(1, keepdims=True) for t in trees]
    parts = [tree_model(t, 4, s, compact=compact, names=names) for t, s in zip(trees, shares, strict=True)]
    text = parts[0] if count == 1 else mining("classification", "average", parts, 4)
    (tmp_path / "classes.pmml").write_text(file(text, 4, names))
    np.testing.assert_allclose(
        interpret(tmp_path / "classes.pmml", "probabilities", x), model.predict_proba(x), rtol=1e-14, atol=1e-16
    )
    np.testing.assert_array_equal(interpret(tmp_path / "classes.pmml", "main", x), model.predict(x))


def boosted(model: Any, column: int, x: Array, name: str) -> str:
    """Returns the sum of the trees of one output, as the field `name`."""
    trees = [e.tree_ for e in model.estimators_[:, column]]
    start = float(np.ravel(model._raw_predict_init(x[:1]))[column])
    parts = [tree_model(t, x.shape[1], t.value[:, 0], compact=True) for t in trees]
    output = f'<Output><OutputField name="{name}" feature="predictedValue"/></Output>'
    targets = f'<Targets><Target rescaleFactor="{model.learning_rate!r}" rescaleConstant="{start!r}"/></Targets>'
    return mining("regression", "sum", parts, x.shape[1], output + targets)


def test_boosted_numbers(tmp_path: Path) -> None:
    x, y = DIABETES[0], DIABETES[1]
    model = GradientBoostingRegressor(n_estimators=9, max_depth=3, random_state=1).fit(x, y)
    (tmp_path / "boosted.pmml").write_text(file(boosted(model, 0, x, "sum"), 10, None))
    np.testing.assert_allclose(interpret(tmp_path / "boosted.pmml", "main", x), model.predict(x), rtol=1e-12)


@pytest.mark.parametrize("classes", [2, 3])
def test_boosted_classes(classes: int, tmp_path: Path) -> None:
    """A sum for the second of two classes, or for each class, and then a logistic or softmax regression."""
    chosen = IRIS[1] < classes
    x, y, names = IRIS[0][chosen], IRIS[1][chosen], [str(i) for i in range(classes)]
    model = GradientBoostingClassifier(n_estimators=6, max_depth=2, random_state=1).fit(x, y)
    columns = model.estimators_.shape[1]
    parts = [boosted(model, column, x, f"sum {column}") for column in range(columns)]
    extra = "".join(f'<MiningField name="sum {column}"/>' for column in range(columns))
    tables = [
        f'<RegressionTable intercept="0" targetCategory="{names[column + (classes == 2)]}">'
        f'<NumericPredictor name="sum {column}" coefficient="1"/></RegressionTable>'
        for column in range(columns)
    ]
    if classes == 2:
        tables.append('<RegressionTable intercept="0" targetCategory="0"/>')
    link = "logit" if classes == 2 else "softmax"
    parts.append(
        f'<RegressionModel functionName="classification" normalizationMethod="{link}">'
        f"<MiningSchema>{extra}</MiningSchema>{''.join(tables)}</RegressionModel>"
    )
    (tmp_path / "boosted.pmml").write_text(file(mining("classification", "modelChain", parts, 4), 4, names))
    found = interpret(tmp_path / "boosted.pmml", "probabilities", x)
    np.testing.assert_allclose(found, model.predict_proba(x), rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(interpret(tmp_path / "boosted.pmml", "main", x), model.predict(x))


@pytest.mark.usefixtures("unchecked")  # the estimator is a stricter check
def test_compiled_code(tmp_path: Path) -> None:
    """Many rows run on ranks, few from node to node."""
    x, y = DIABETES[0], DIABETES[1]
    forest = RandomForestRegressor(6, max_depth=7, random_state=1).fit(x, y)
    parts = [tree_model(e.tree_, 10, e.tree_.value[:, 0], compact=False) for e in forest.estimators_]
    (tmp_path / "forest.pmml").write_text(file(mining("regression", "average", parts, 10), 10, None))
    model = nacre.compile(tmp_path / "forest.pmml", tmp_path / "forest.so")
    missing = np.where(np.arange(10) == 2, np.nan, x)
    for rows in (x, x[:1], x[:0], x[:33]):
        np.testing.assert_allclose(model(rows), forest.predict(rows) if len(rows) else rows[:, 0], rtol=1e-14)
    np.testing.assert_array_equal(model(missing), interpret(tmp_path / "forest.pmml", "main", missing))
    assert np.isnan(model(missing)).any()
