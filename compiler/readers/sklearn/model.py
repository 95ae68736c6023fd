"""`nacre.from_sklearn`: a fitted estimator or pipeline as a model that `nacre.compile` takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ....dialect.dims import Symbol
from ....dialect.graph import Function, Module, Value
from ....dialect.operator import Builder, InferenceError
from ....dialect.ops import OPERATORS
from ....dialect.types import F64, TensorType
from ....dialect.verifier import verify
from ...model.source import SourceModel
from ...weights import open_arrays
from . import codes, composition, decomposition, forests, kernels, linear, neighbors, preprocessing, probability
from .writing import Methods, Tensor, Writer, unsupported

_FAMILIES = (linear, preprocessing, kernels, probability, neighbors, decomposition, codes, forests, composition)
CONVERTERS: Mapping[str, Methods] = {name: methods for family in _FAMILIES for name, methods in family.TABLE.items()}
"""The converters of the methods of each class of estimators."""
assert len(CONVERTERS) == sum(len(family.TABLE) for family in _FAMILIES), "two families convert one class"
METHODS = ("predict", "transform", "score_samples", "predict_proba", "decision_function")
"""The methods that become entries, in order of precedence: the first one that an estimator has is also the entry
`main`."""
_MOST_FEATURES = 1 << 24
_VECTORS = ("LabelEncoder", "LabelBinarizer", "IsotonicRegression")
"""The classes whose input is a vector."""


def from_sklearn(estimator: Any) -> SourceModel:
    """Returns a fitted estimator or pipeline of scikit-learn as a model: `nacre.compile(nacre.from_sklearn(pipeline))`.

    Its entries are the methods `predict`, `transform`, `score_samples`, `predict_proba` and `decision_function` that it
    has, and `main`, the first of them. They take `features` in f64: [B, features]; missing numbers are NaN.
    Classes that are numbers are returned as such, others as indices into `classes_`. No code of scikit-learn is run
    beyond reading attributes, and scikit-learn is not imported.

    Raises DiagnosticError if an estimator is not fitted or has no converter for the first of its methods. The model has
    a warning for each other method without an entry.
    """
    name = type(estimator).__name__
    if type(estimator).__module__.partition(".")[0] != "sklearn":
        message = f"`{name}` is not an estimator of scikit-learn"
        help_text = "a model in a file is given to `nacre.compile` by its path; pickles are not read"
        raise DiagnosticError([Diagnostic("unsupported-estimator", message, help=help_text)])
    shared = Writer(CONVERTERS)
    if name not in CONVERTERS:
        raise unsupported(estimator, "it has no converter")
    methods = [method for method in METHODS if shared.has(estimator, method)]
    if not methods:
        raise unsupported(estimator, "it has none of the methods " + ", ".join(METHODS))
    functions, warnings = [], []
    for entry, method in [("main", methods[0]), *((m, m) for m in methods)]:
        try:
            functions.append(_write_entry(shared, estimator, entry, method))
        except DiagnosticError as error:
            if entry == "main":
                raise
            warnings.append(_without(method, error.diagnostics[0].message))
    others = [method for method in METHODS if method not in methods and hasattr(estimator, method)]
    warnings += [_without(method, f"`{method}` of `{name}` has no converter") for method in others]
    dims = {symbol for function in functions for symbol in function.symbols()}
    module = Module("main", tuple(sorted(dims, key=str)), tuple(shared.parameters.values()), tuple(functions))
    verify(module)
    weights = open_arrays(shared.arrays)
    stored = {function.name: weights for function in functions}
    return SourceModel(module, f"<{name}>", stored, warnings=tuple(warnings))


def _without(method: str, reason: str) -> Diagnostic:
    return Diagnostic("unsupported-method", f"the model has no entry `{method}`: {reason}", severity="warning")


def _write_entry(writer: Writer, estimator: Any, entry: str, method: str) -> Function:
    writer.builder = Builder(OPERATORS)
    rows = Symbol("B")
    name = type(estimator).__name__
    shape = (rows.size,) if name in _VECTORS else (rows.size, _count_features(estimator))
    features = Value("features", TensorType(F64, shape))
    try:
        with np.errstate(all="ignore"):
            result = writer.run(estimator, method, Tensor(writer, features))
    except (AttributeError, NotImplementedError) as error:
        raise unsupported(estimator, f"it is not fitted, or of an unknown version ({error})") from error
    except InferenceError as error:
        raise unsupported(estimator, f"its arrays do not fit together: {error}") from error
    return Function(entry, (features,), tuple(writer.builder.nodes), (result.value,), (method,))


def _count_features(estimator: Any) -> int:
    count = getattr(estimator, "n_features_in_", None)
    if count is None:
        raise unsupported(estimator, "it is not fitted: it has no `n_features_in_`")
    if not 0 <= int(count) <= _MOST_FEATURES:
        raise unsupported(estimator, f"it has {count} features; at most {_MOST_FEATURES} are supported")
    return int(count)
