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
from fitted import ROWS, TWO, X
from nacre.compiler.readers.sklearn.model import from_sklearn
from nacre.compiler.readers.table import read_file
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.printer import print_module
from sklearn.ensemble import RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

skops = pytest.importorskip("skops.io", reason="the package skops is not installed")


def forest() -> Any:
    return make_pipeline(StandardScaler(), RandomForestClassifier(2, max_depth=2, random_state=0)).fit(X, TWO)


@pytest.mark.parametrize("make", [forest, lambda: GaussianProcessRegressor(RBF(0.7)).fit(X, X[:, 0])])
def test_a_file_is_the_estimator(make: Callable[[], Any], tmp_path: Path) -> None:
    path, estimator = tmp_path / "model.skops", make()
    skops.dump(estimator, path)
    read, wanted = read_file(path), from_sklearn(estimator)
    assert print_module(read.module) == print_module(wanted.module)
    assert np.isfinite(estimator.predict(ROWS)).all()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["f4", "f8", ">f8"])
def test_arrays_of_every_order(order: Any, dtype: str, tmp_path: Path) -> None:
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
        np.testing.assert_allclose(run[0], weights.T, rtol=1e-6)


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
def test_other_types_are_refused(module: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.skops"
    skops.dump(StandardScaler().fit(X), path)

    def change(text: str) -> str:
        record = json.loads(text)
        record["__module__"], record["__class__"] = module, name
        return json.dumps(record)

    changed(path, change)
    found = error_of(path)
    assert found.code == "untrusted-types" and f"`{module}.{name}`" in found.message


def test_a_function_of_a_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.skops"
    skops.dump(FunctionTransformer(error_of), path)
    assert error_of(path).code in ("untrusted-types", "bad-skops")


def test_damaged_files(tmp_path: Path) -> None:
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
