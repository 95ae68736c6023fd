"""Reads estimators of scikit-learn from files: `.skops`, without running code of the file; pickles are refused.

A `.skops` file names the type of each object. The package skops has a list of trusted types; the reader adds classes of
scikit-learn, such as its trees and kernels, and refuses a file with any other one.
"""

from __future__ import annotations

import io
import re
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ...model.source import SourceModel, WeightSource
from .model import from_sklearn

_MOST_GROWTH = 64
_SPARE_BYTES = 64 << 20
"""The maximum uncompressed size of a file beyond its own size. Models with many equal numbers compress well."""
_OWN = re.compile(r"sklearn(\.\w+)+")


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
    except DiagnosticError:
        raise
    except Exception as error:
        # A file may contain attributes of any type and value. Converters do not check all of them, so any exception is
        # an error of the file.
        reason = f"{type(error).__name__}: {error}".split("\n")[0]
        message = f"`{path}` holds an estimator whose attributes are damaged: {reason}"
        raise _error("bad-skops", message) from error


def _load(data: bytes, path: Path) -> Any:
    try:
        skops, unsupported = import_module("skops.io"), import_module("skops.io.exceptions").UnsupportedTypeException
    except ImportError as error:
        message = "a `.skops` file is read with the Python package `skops`, which is not installed"
        raise _error("no-skops", message, "pip install 'nacre[skops]'") from error
    try:
        _require_sizes(data, path)
        named = skops.get_untrusted_types(data=data)
        foreign = [name for name in named if not _is_own_class(name)]
        if not foreign:
            return skops.loads(data, trusted=named)
    except DiagnosticError:
        raise
    except unsupported as error:
        raise _error("bad-skops", f"`{path}` holds a type that cannot be read: {error}") from error
    except Exception as error:
        # The package fails in many ways for damaged files: in the archive, the JSON, the arrays, or the types.
        reason = f"{type(error).__name__}: {error}".split("\n")[0]
        raise _error("bad-skops", f"`{path}` is not a file of skops: {reason}") from error
    listed = ", ".join(f"`{name}`" for name in foreign[:8])
    more = f" and {len(foreign) - 8} more" if len(foreign) > 8 else ""
    raise _error(
        "untrusted-types",
        f"`{path}` holds types that are not classes of scikit-learn: {listed}{more}",
        "if they are trusted, load the file with skops, and give the estimator to `nacre.from_sklearn`",
    )


def _require_sizes(data: bytes, path: Path) -> None:
    """Raises DiagnosticError for a file whose uncompressed size is excessive, since the package reads each member
    completely."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        total = sum(info.file_size for info in archive.infolist())
    if total > _MOST_GROWTH * len(data) + _SPARE_BYTES:
        raise _error("bad-skops", f"`{path}` has members of {total} bytes, much more than the file")


def _is_own_class(name: str) -> bool:
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
