"""Files of skops: the same model as from the estimator; types of other packages, damages and pickles are refused."""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fitted import ROWS, TWO, X, fit
from nacre.compiler.readers.sklearn.model import from_sklearn
from nacre.compiler.readers.table import read_file
from nacre.compiler.weights import Checkpoint
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.printer import print_module
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from test_estimators import ALL, REFUSED


@pytest.fixture(scope="module")
def skops() -> Any:
    """The package looks through all modules when it is imported, which takes longer than most files of tests."""
    return pytest.importorskip("skops.io", reason="the package skops is not installed")


def forest() -> Any:
    return make_pipeline(StandardScaler(), RandomForestClassifier(2, max_depth=2, random_state=0)).fit(X, TWO)


@pytest.mark.parametrize("make", [forest, lambda: GaussianProcessRegressor(RBF(0.7)).fit(X, X[:, 0])])
def test_a_file_is_the_estimator(make: Callable[[], Any], tmp_path: Path, skops: Any) -> None:
    path, estimator = tmp_path / "model.skops", make()
    skops.dump(estimator, path)
    read, wanted = read_file(path), from_sklearn(estimator)
    assert print_module(read.module) == print_module(wanted.module)
    assert np.isfinite(estimator.predict(ROWS)).all()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["f4", "f8", ">f8"])
def test_arrays_of_every_order(order: Any, dtype: str, tmp_path: Path, skops: Any) -> None:
    """Weights as the file has them: by column, in the other byte order, and with sizes that are odd or 1."""
    for shape in ((3, 5), (1, 5), (3, 3), (7, 5)):
        estimator = LinearRegression().fit(np.eye(shape[1]), np.zeros((shape[1], shape[0])))
        weights = np.arange(np.prod(shape)).reshape(shape) + 1 / 3
        estimator.coef_ = np.asarray(weights.astype(dtype), order=order)
        skops.dump(estimator, tmp_path / "model.skops")
        source = read_file(tmp_path / "model.skops")
        function = source.module.functions[0]
        stored = source.weights[function.name]
        rows = np.eye(shape[1], dtype=function.arguments[0].type.dtype.numpy)
        run = Interpreter(source.module, lambda p: stored.read(p.key)).run(function, [rows])  # noqa: B023  # called at once
        np.testing.assert_array_equal(run[0], estimator.coef_.T)


def error_of(path: Path) -> Any:
    with pytest.raises(DiagnosticError) as caught:
        read_file(path)
    (found,) = caught.value.diagnostics
    return found


def changed(path: Path, change: Callable[[str], str]) -> None:
    """Changes the schema of a file."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    text = parts["schema.json"].decode()
    parts["schema.json"] = change(text).encode()
    assert parts["schema.json"].decode() != text
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


@pytest.mark.parametrize(
    ("module", "name"), [("os", "system"), ("sklearn.datasets", "fetch_openml"), ("subprocess", "Popen")]
)
def test_other_types_are_refused(module: str, name: str, tmp_path: Path, skops: Any) -> None:
    path = tmp_path / "model.skops"
    skops.dump(StandardScaler().fit(X), path)

    def change(text: str) -> str:
        record = json.loads(text)
        record["__module__"], record["__class__"] = module, name
        return json.dumps(record)

    changed(path, change)
    found = error_of(path)
    assert found.code == "untrusted-types" and f"`{module}.{name}`" in found.message


def test_a_function_of_a_user_is_refused(tmp_path: Path, skops: Any) -> None:
    path = tmp_path / "model.skops"
    skops.dump(FunctionTransformer(error_of), path)
    assert error_of(path).code in ("untrusted-types", "bad-skops")


def test_damaged_files(tmp_path: Path, skops: Any) -> None:
    path = tmp_path / "model.skops"
    skops.dump(forest(), path)
    data = path.read_bytes()
    for part in range(8):
        path.write_bytes(data[: len(data) * part // 8])
        assert error_of(path).code == "bad-skops"
    rng = np.random.default_rng(0)
    for _ in range(20):
        broken = bytearray(data)
        broken[int(rng.integers(len(data)))] ^= int(rng.integers(1, 256))
        path.write_bytes(broken)
        try:
            read_file(path)
        except DiagnosticError as error:
            assert len(error.diagnostics) == 1


@pytest.mark.parametrize("name", sorted(set(ALL) - set(REFUSED) - {"Birch"}))  # skops itself does not write Birch
@pytest.mark.filterwarnings("ignore::FutureWarning")  # of deprecated estimators
def test_a_file_of_each_estimator(name: str, tmp_path: Path, skops: Any) -> None:
    path, (estimator, _) = tmp_path / "model.skops", fit(name, ALL[name])
    skops.dump(estimator, path)
    read, wanted = read_file(path), from_sklearn(estimator)
    assert print_module(read.module) == print_module(wanted.module)
    (stored, *_), (weights, *_) = read.weights.values(), wanted.weights.values()
    assert isinstance(stored, Checkpoint) and isinstance(weights, Checkpoint)
    assert list(stored.tensors) == list(weights.tensors)
    for key in stored.tensors:
        np.testing.assert_array_equal(stored.read(key), weights.read(key))


def test_attributes_of_other_types_and_shapes(tmp_path: Path, skops: Any) -> None:
    """The error names the method and the class whose attribute is damaged, also inside a pipeline."""
    path, estimator = tmp_path / "model.skops", forest()
    for change, code, message in (
        (lambda s: setattr(s, "scale_", s.scale_[:-1]), "unsupported-estimator", "its arrays do not fit together"),
        (lambda s: setattr(s, "scale_", "wide"), "bad-skops", "`transform` of `StandardScaler`: "),
        (lambda s: setattr(s, "scale_", {}), "bad-skops", "`transform` of `StandardScaler`: "),
        (lambda s: delattr(s, "scale_"), "unsupported-estimator", "it is not fitted"),
        (lambda s: setattr(s, "n_features_in_", 1 << 60), "unsupported-estimator", f"it has {1 << 60} features"),
    ):
        damaged = clone(estimator).fit(X, TWO)
        change(damaged[0])
        skops.dump(damaged, path)
        found = error_of(path)
        assert found.code == code and message in found.message, found


@pytest.mark.parametrize(
    ("side", "value", "message"),
    [
        ("left_child", 0, "tree 1, node 0: it is the child of two nodes, or of itself"),
        ("right_child", 999, "tree 1, node 0: it refers to node 999"),
        ("right_child", -7, "tree 1, node 0: it refers to node -7"),
        ("feature", 5, "tree 1, node 0: it refers to feature 5 of 5"),
        ("threshold", np.nan, "tree 1, node 0: it refers to the threshold nan"),
    ],
)
def test_trees_of_damaged_nodes(side: str, value: float, message: str, tmp_path: Path, skops: Any) -> None:
    path, estimator = tmp_path / "model.skops", forest()[1]
    tree = estimator.estimators_[1].tree_
    state = tree.__getstate__()
    state["nodes"][side][0] = value
    tree.__setstate__(state)
    skops.dump(estimator, path)
    found = error_of(path)
    assert found.code == "bad-tree" and message in found.message, found


def test_errors_of_converters_are_not_errors_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skops: Any
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a converter is wrong")

    path = tmp_path / "model.skops"
    skops.dump(StandardScaler().fit(X), path)
    monkeypatch.setattr("nacre.compiler.readers.sklearn.skops_file.from_sklearn", fail)
    with pytest.raises(AssertionError, match="a converter is wrong"):
        read_file(path)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (None, "it has no member `schema.json`"),
        ("{", "has a schema that is not JSON"),
        ("[" * 100_000, "has a schema that is not JSON"),
        ("[1]", "has a schema that is not a record"),
        ("{}", "is not a file of skops: TypeError"),
    ],
)
def test_bad_schemas(schema: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.skops"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("1.npy" if schema is None else "schema.json", schema or "")
    found = error_of(path)
    assert found.code == "bad-skops" and message in found.message, found


def test_files_that_are_larger_where_they_are_opened(tmp_path: Path) -> None:
    path = tmp_path / "model.skops"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("schema.json", "1.npy"):
            archive.writestr(name, bytes(40 << 20))
    found = error_of(path)
    assert found.code == "bad-skops"
    assert found.message.endswith("has members of 83886080 bytes, much more than the file")


def test_missing_files_and_pickles(tmp_path: Path) -> None:
    assert error_of(tmp_path / "none.skops").code == "missing-file"
    for suffix in (".pkl", ".pickle", ".joblib"):
        path = tmp_path / f"model{suffix}"
        path.write_bytes(pickle.dumps(StandardScaler()))
        found = error_of(path)
        assert found.code == "refused-pickle" and "skops.io.dump" in found.help
