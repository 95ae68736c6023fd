"""Reads estimators of scikit-learn from files: `.skops`, without running code of the file; pickles are refused.

A `.skops` file names the type of each object. The package skops has a list of trusted types; the reader adds classes of
scikit-learn, such as its trees and kernels, and what its estimators hold of NumPy and SciPy. It refuses a file with any
other one.
"""

from __future__ import annotations

import io
import json
import re
import tokenize
import zipfile
import zlib
from importlib import import_module
from pathlib import Path
from typing import Any

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ...base.shortened import shortened_code
from ...model.source import SourceModel, WeightSource
from .model import from_sklearn

_MOST_GROWTH = 64
_SPARE_BYTES = 64 << 20
"""The maximum uncompressed size of a file beyond its own size. Models with many equal numbers compress well."""
_OWN = re.compile(r"sklearn(\.\w+)+")
_HELD = re.compile(
    r"numpy\.(dtype|mean)|scipy\.sparse\._(csr\.csr|csc\.csc)_(matrix|array)|scipy\.interpolate\._bsplines\.BSpline"
    r"|scipy\._lib\.array_api_compat\.numpy\._aliases\.asarray|sklearn\.cluster\._kmeans\._kmeans_single_(lloyd|elkan)"
    r"|sklearn\.feature_selection\._univariate_selection\.(f_classif|f_regression|r_regression|chi2)"
    r"|sklearn\.feature_selection\._mutual_info\.mutual_info_(classif|regression)"
    r"|sklearn\.metrics\._classification\.\w+_score"
)
"""Other types and functions that fitted estimators of scikit-learn hold. The converters call none of the functions."""
_SCHEMA = "schema.json"
_OF_VALUES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""The exceptions of Python and NumPy for a value of another type, shape or range than expected."""
_OF_FILES = (
    *_OF_VALUES, EOFError, ImportError, NotImplementedError, RecursionError, tokenize.TokenError, zipfile.BadZipFile,
    zlib.error,
)  # fmt: skip
"""The exceptions of the package skops for a damaged file: also those of the archive and its compression, of imports of
the named types, and of the headers of arrays, which NumPy reads as Python literals."""


def _error(code: str, message: str, help: str = "") -> DiagnosticError:
    return DiagnosticError([Diagnostic(code, message, help=help)])


def read_skops(path: Path, weights: WeightSource | None = None) -> SourceModel:
    """Reads the estimator of a `.skops` file as `from_sklearn` does. Raises DiagnosticError."""
    if weights is not None:
        raise _error("bad-setting", f"`{path}` holds its weights; others cannot be given")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _error("missing-file", f"`{path}` cannot be read: {error.strerror or error}") from error
    estimator = _load(data, path)
    try:
        return from_sklearn(estimator)
    except _OF_VALUES as error:
        # The file may hold an attribute of any type and value. An undamaged estimator gives no exception, whatever its
        # options are, so the cause is the file. Other exceptions are errors of the converters.
        notes = "".join(f"{note}: " for note in getattr(error, "__notes__", ())[:1])
        message = f"`{path}` holds an estimator whose attributes are damaged: {notes}{_describe(error)}"
        raise _error("bad-skops", message) from error


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0]


def _load(data: bytes, path: Path) -> Any:
    try:
        skops, unsupported = import_module("skops.io"), import_module("skops.io.exceptions").UnsupportedTypeException
    except ImportError as error:
        message = "a `.skops` file is read with the Python package `skops`, which is not installed"
        raise _error("no-skops", message, "pip install 'nacre[skops]'") from error
    _check_archive(data, path)
    try:
        named = skops.get_untrusted_types(data=data)
        foreign = [name for name in named if not _is_trusted(name)]
        if not foreign:
            return skops.loads(data, trusted=named)
    except unsupported as error:
        raise _error("bad-skops", f"`{path}` holds a type that cannot be read: {error}") from error
    except _OF_FILES as error:
        raise _error("bad-skops", f"`{path}` is not a file of skops: {_describe(error)}") from error
    raise _error(
        "untrusted-types",
        f"`{path}` holds types that are not classes of scikit-learn: {shortened_code(foreign)}",
        "if they are trusted, load the file with skops, and give the estimator to `nacre.from_sklearn`",
    )


def _check_archive(data: bytes, path: Path) -> None:
    """Raises DiagnosticError unless the file is an archive with a schema in JSON, and also if its uncompressed size is
    excessive, since the package reads each member completely."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            total = sum(info.file_size for info in members)
            if total > _MOST_GROWTH * len(data) + _SPARE_BYTES:
                raise _error("bad-skops", f"`{path}` has members of {total} bytes, much more than the file")
            if locked := [info.filename for info in members if info.flag_bits & 1]:
                raise _error("bad-skops", f"`{path}` has an encrypted member `{locked[0]}`")
            if all(info.filename != _SCHEMA for info in members):
                raise _error("bad-skops", f"`{path}` is not a file of skops: it has no member `{_SCHEMA}`")
            schema = archive.read(_SCHEMA)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, ValueError) as error:
        raise _error("bad-skops", f"`{path}` is not a whole zip archive: {error}") from error
    try:
        record = json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise _error("bad-skops", f"`{path}` has a schema that is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise _error("bad-skops", f"`{path}` has a schema that is not a record")


def _is_trusted(name: str) -> bool:
    if _HELD.fullmatch(name):
        return True
    module, _, attribute = name.rpartition(".")
    if not _OWN.fullmatch(module):
        return False
    try:
        return isinstance(getattr(import_module(module), attribute, None), type)
    except ImportError:
        return False


def refuse_pickle(path: Path, weights: WeightSource | None = None) -> SourceModel:
    """Refuses a pickle of an estimator."""
    raise _error(
        "refused-pickle",
        f"`{path}` is a Python pickle, which can run any code when it is read",
        "save the estimator with `skops.io.dump`; or, if the file is trusted, load it in Python, and give the "
        "estimator to `nacre.from_sklearn`",
    )
