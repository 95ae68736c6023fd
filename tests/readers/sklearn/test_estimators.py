"""Every estimator of the installed scikit-learn: which ones compile, and that their methods agree with the library's.

Floats agree within 1e-9 of the greater of 1 and the library's number, labels are equal. All estimators run in the
interpreter; some, and pipelines, are compiled.
"""

from __future__ import annotations

from typing import Any

import nacre
import numpy as np
import pytest
import sklearn.datasets
from fitted import CLASSES, ROWS, TWO, X, estimators, fit
from nacre.compiler.model.source import SourceModel
from nacre.compiler.readers.sklearn.model import METHODS, from_sklearn
from nacre.compiler.weights import Checkpoint
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.graph import Parameter
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.printer import print_module
from nacre.dialect.types import Array
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier, VotingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

REFUSED = {
    **dict.fromkeys(("CountVectorizer", "HashingVectorizer", "TfidfVectorizer", "FeatureHasher"), "inputs are texts"),
    **dict.fromkeys(("DictVectorizer", "MultiLabelBinarizer"), "inputs are dictionaries or sets"),
    **dict.fromkeys(("MiniBatchNMF", "LatentDirichletAllocation"), "iterates until it converges"),
    "PatchExtractor": "inputs are images",
}
"""Estimators that are not compiled, with the reason."""
NO_ENTRY = {
    ("BernoulliRBM", "score_samples"): "draws random numbers",
    ("MultiOutputClassifier", "predict_proba"): "is a list of arrays",
}
"""Methods of compiled estimators without an entry, with the reason."""
LOOSE = {"Birch": 1e-6}
"""Where the library itself is less exact: it computes the distances to the points of its own clusters by products."""
COMPILED = (
    "SVC",
    "KNeighborsClassifier",
    "GradientBoostingClassifier",
    "GaussianProcessRegressor",
    "AdaBoostRegressor",
    "NMF",
)
ALL = estimators()


def interpret(model: SourceModel, method: str, rows: Array) -> Array:
    weights = model.weights[method]
    assert isinstance(weights, Checkpoint)

    def load(parameter: Parameter) -> Array:
        read = weights.tensors[parameter.name].load
        assert read is not None
        return read()

    return np.asarray(Interpreter(model.module, load).run(method, [np.ascontiguousarray(rows)])[0])


def expected(estimator: Any, method: str, rows: Array) -> Array:
    found = getattr(estimator, method)(rows)
    found = found[0] if isinstance(found, tuple) else found
    return np.asarray(found.toarray() if hasattr(found, "toarray") else found)


def compare(actual: Array, wanted: Array, tolerance: float = 1e-9) -> None:
    assert actual.shape == wanted.shape
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(actual, wanted)
    else:
        scale = np.maximum(1, np.abs(np.where(np.isfinite(wanted), wanted, 1)))
        np.testing.assert_allclose(actual / scale, wanted / scale, rtol=0, atol=tolerance)


def test_most_estimators_compile() -> None:
    assert set(REFUSED) <= set(ALL)
    assert 1 - len(REFUSED) / len(ALL) >= 0.95


@pytest.mark.parametrize("name", sorted(set(ALL) - set(REFUSED)))
def test_an_estimator_agrees_with_the_library(name: str) -> None:
    estimator, rows = fit(name, ALL[name])
    model = from_sklearn(estimator)
    made = [function.name for function in model.module.functions]
    found = [method for method in METHODS if hasattr(estimator, method) and (name, method) not in NO_ENTRY]
    assert made == ["main", *found]
    lacking = [method for owner, method in NO_ENTRY if owner == name]
    assert [warning.message.split("`")[1] for warning in model.warnings] == lacking
    for method in made[1:]:
        compare(interpret(model, method, rows), expected(estimator, method, rows), LOOSE.get(name, 1e-9))
    assert contents(model) == contents(from_sklearn(store_otherwise(estimator)))


def contents(model: SourceModel) -> tuple[str, dict[str, bytes]]:
    """The graph and the weights of a model."""
    (weights, *_) = model.weights.values()
    stored = weights.tensors if isinstance(weights, Checkpoint) else {}
    read = {key: f"{(array := weights.read(key)).dtype} {array.shape}".encode() + array.tobytes() for key in stored}
    return print_module(model.module), read


def store_otherwise(part: Any, seen: set[int] | None = None) -> Any:
    """Makes all matrices of an estimator column-major, and its vectors every second element of others."""
    seen = set() if seen is None else seen
    if id(part) in seen or isinstance(part, type):
        return part
    seen.add(id(part))
    if isinstance(part, (list, tuple)):
        items = dict(enumerate(part))
    else:
        items = part if isinstance(part, dict) else getattr(part, "__dict__", {})
    for key, value in list(items.items()):
        if type(value) is not np.ndarray or value.dtype == object or not value.ndim:
            store_otherwise(value, seen)
        elif not isinstance(part, tuple):
            other = np.asfortranarray(value) if value.ndim > 1 else np.repeat(value, 2)[::2]
            target = part if isinstance(part, list) else items
            target[key] = other
    return part


@pytest.mark.parametrize("data", ["iris", "wine", "breast_cancer", "digits", "diabetes"])
@pytest.mark.parametrize("ensemble", ["RandomForest", "ExtraTrees", "HistGradientBoosting"])
def test_data_sets_of_the_library(ensemble: str, data: str) -> None:
    """Real features repeat values, so that thresholds lie between neighbours that are close."""
    x, y = getattr(sklearn.datasets, f"load_{data}")(return_X_y=True)
    kind = "Regressor" if data == "diabetes" else "Classifier"
    sizes = {"max_iter": 5} if ensemble == "HistGradientBoosting" else {"n_estimators": 5}
    estimator = ALL[f"{ensemble}{kind}"](**sizes, random_state=0).fit(x, y)
    model = from_sklearn(estimator)
    for method in ("predict", "predict_proba")[: 1 if kind == "Regressor" else 2]:
        compare(interpret(model, method, x), expected(estimator, method, x))


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_refused_estimator_has_an_error(name: str) -> None:
    kind = ALL[name]
    estimator = kind()
    with pytest.raises(DiagnosticError, match=f"`{name}` cannot be compiled: it has no converter"):
        from_sklearn(estimator)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SparseCoder", {"transform_algorithm": "threshold", "transform_alpha": 0.3, "positive_code": True}),
        ("SparseCoder", {"transform_n_nonzero_coefs": 3, "split_sign": True}),
        ("PolynomialCountSketch", {"degree": 3, "coef0": 0.5, "gamma": 0.7}),
        ("NMF", {"n_components": 3, "alpha_W": 0.01, "l1_ratio": 0.4, "max_iter": 7}),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_options_of_codes(name: str, options: dict[str, Any]) -> None:
    first, rows = fit(name, ALL[name])
    again = type(first)(**{**first.get_params(deep=False), **options}).fit(np.abs(X) if name == "NMF" else X)
    compare(interpret(from_sklearn(again), "transform", rows), expected(again, "transform", rows))


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_code_agrees_with_the_library(name: str) -> None:
    estimator, rows = fit(name, ALL[name])
    model = nacre.compile(from_sklearn(estimator))
    for method in METHODS:
        if method in model.entries:
            for count in (len(rows), 1):
                compare(model.entries[method](rows[:count]), expected(estimator, method, rows[:count]))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("level", [0, 2])
def test_trees_beside_a_network_are_one_graph(level: int) -> None:
    rng = np.random.default_rng(5)
    x = np.column_stack([rng.normal(size=(120, 3)), rng.integers(0, 4, 120)])
    y = (np.nan_to_num(x[:, 0]) + (x[:, 3] == 2) > 0.3).astype(int) * 3 + 1
    x[rng.random(120) < 0.1, 1] = np.nan
    columns = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), [0, 1, 2]),
            ("classes", OneHotEncoder(sparse_output=False), [3]),
        ]
    )
    parts = [
        ("boosting", HistGradientBoostingClassifier(max_iter=4)),
        ("forest", RandomForestClassifier(5, max_depth=4)),
        ("network", MLPClassifier((6,), max_iter=30)),
        ("line", LogisticRegression()),
    ]
    pipeline = make_pipeline(columns, VotingClassifier(parts, voting="soft", weights=[1, 2, 1, 3]))
    pipeline.fit(x, y)
    source = from_sklearn(pipeline)
    operators = {node.op for node in source.module.function("main").body}
    assert {"tree_ensemble", "matmul"} <= operators
    model = nacre.compile(source, opt_level=level)
    np.testing.assert_array_equal(model(x), pipeline.predict(x))
    compare(model.entries["predict_proba"](x), pipeline.predict_proba(x))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("NearestCentroid", {"shrink_threshold": 0.4}),
        ("NearestCentroid", {"metric": "manhattan"}),
        ("NearestCentroid", {"priors": "empirical"}),
        ("NearestCentroid", {"priors": [0.6, 0.1, 0.3], "shrink_threshold": 0.2}),
        ("ClassifierChain", {"order": [1, 0], "chain_method": "predict_proba"}),
        ("ClassifierChain", {"chain_method": "decision_function"}),
        ("ClassifierChain", {"chain_method": "predict_log_proba"}),
        ("GradientBoostingClassifier", {"init": DummyClassifier(strategy="most_frequent")}),
        ("GradientBoostingRegressor", {"init": DummyRegressor(strategy="median")}),
    ],
)
def test_options(name: str, options: dict[str, Any]) -> None:
    (first, rows), labels = fit(name, ALL[name]), [TWO, 1 - TWO] if name == "ClassifierChain" else CLASSES
    estimator = clone(first).set_params(**options).fit(X, np.transpose(labels))
    model = from_sklearn(estimator)
    for method in METHODS:
        if hasattr(estimator, method):
            compare(interpret(model, method, rows), expected(estimator, method, rows))


def test_a_random_first_estimator_is_refused() -> None:
    estimator = ALL["GradientBoostingClassifier"](init=DummyClassifier(strategy="uniform"), n_estimators=2)
    with pytest.raises(DiagnosticError, match="its first estimator is not a dummy that returns a constant"):
        from_sklearn(estimator.fit(X, CLASSES))


def test_errors() -> None:
    with pytest.raises(DiagnosticError, match="`StandardScaler` cannot be compiled: it is not fitted"):
        from_sklearn(StandardScaler())
    with pytest.raises(DiagnosticError, match="`dict` is not an estimator of scikit-learn"):
        from_sklearn({})
    with pytest.raises(DiagnosticError, match="`FunctionTransformer` cannot be compiled: its function `<lambda>`"):
        from_sklearn(FunctionTransformer(lambda x: x).fit(ROWS))
    with pytest.raises(DiagnosticError, match="`OneHotEncoder` cannot be compiled: its categories are texts"):
        from_sklearn(OneHotEncoder(sparse_output=False).fit([["a"], ["b"]]))
