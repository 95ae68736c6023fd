"""Opens `.pt2` files without running code that they contain.

Such a file is a zip archive of JSON and tensors. From it, PyTorch loads pickles, resolves names of operators as Python
attributes, and evaluates the text of sizes. This module checks that pickles contain only tensors, that operators are in
`torch.ops`, and that sizes are arithmetic. It refuses any other file before PyTorch reads it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import warnings
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from .writing.package import load_torch

_PROGRAMS = re.compile(r"(.*/)?(models/[^/]+\.json|serialized_exported_program\.json)")
_TARGET = re.compile(r"torch\.ops(\.\w+){2,3}|_operator\.\w+|torch\.(_?sym_\w+)|torch\.\w+\.(sym_\w+)")
_TOKEN = re.compile(
    r"\b(?:[A-Z]\w*|\d+(?:\.\d+)?|positive|nonnegative|negative|integer|real|nonzero|zero|finite|extended_real)\b"
    r"|'\w+'|[\s+\-*/%(),<>=!&|~]"
)
"""A token in the text of a size: classes and assumptions of SymPy, names of symbols in quotes, numbers and signs."""
_PLAIN_PICKLE = re.compile(r"[^/]+/data\.pkl")


def load_program(path: Path) -> Any:
    """Returns the exported program of a file. Raises DiagnosticError."""
    _check(path)
    package = load_torch("export")
    try:
        with warnings.catch_warnings(), _tensors_only(path), _without_log():
            warnings.simplefilter("ignore")
            return package.load(str(path))
    except DiagnosticError:
        raise
    except Exception as error:  # torch raises errors of many classes for a damaged file
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise _error("bad-pt2", f"`{path}` cannot be read: {reason}") from error


def refuse_pickle(path: Path) -> DiagnosticError:
    """Returns the error for a file of `torch.save`."""
    help_text = "export the model with `torch.export.save`; `--checkpoint` takes weights of `torch.save`"
    return _error("refused-pickle", f"`{path}` is a Python pickle, and holds no graph", help_text)


def _check(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if any(_PLAIN_PICKLE.fullmatch(name) for name in names):
                raise refuse_pickle(path)
            programs = [name for name in names if _PROGRAMS.fullmatch(name)]
            texts = [archive.read(name) for name in programs]
    except OSError as error:
        raise _error("missing-file", f"`{path}` cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError) as error:
        raise _error("bad-pt2", f"`{path}` is not a file of `torch.export.save`: {error}") from error
    if not programs:
        raise _error("bad-pt2", f"`{path}` is not a file of `torch.export.save`: it holds no program")
    for name in names:
        if "custom_obj" in name or "opaque_obj" in name:
            help_text = "export the model without script objects"
            raise _error("refused-pickle", f"`{path}` holds the pickled object `{name}`", help_text)
        if "aotinductor" in name:
            raise _error("refused-code", f"`{path}` holds compiled code, `{name}`")
    for text in texts:
        _check_program(path, text)


def _check_program(path: Path, text: bytes) -> None:
    try:
        program = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _error("bad-pt2", f"`{path}` is broken: {error}") from error
    for key, value in _strings(program):
        if key == "target" and value.startswith(("torch", "_operator", "math")) and not _TARGET.fullmatch(value):
            raise _error("refused-code", f"`{path}` calls `{value}`, which is not an operator")
        if key == "expr_str" and ("__" in value or _TOKEN.sub("", value)):
            raise _error("refused-code", f"`{path}` has the size `{value}`, which is not arithmetic")


def _strings(value: Any) -> Iterator[tuple[str, str]]:
    """Yields all strings of a program with their keys."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        key, each = waiting.pop()
        if isinstance(each, dict):
            waiting.extend(each.items())
        elif isinstance(each, list):
            waiting.extend((key, item) for item in each)
        elif isinstance(each, str):
            yield key, each


@contextlib.contextmanager
def _tensors_only(path: Path) -> Iterator[None]:
    """Makes PyTorch refuse pickles of objects other than tensors."""
    torch = load_torch()
    original = torch.load
    torch.load = partial(_load_tensors, original)
    try:
        yield
    except Exception as error:
        if "weights_only" in str(error) or "Weights only" in str(error):
            message = (
                f"`{path}` contains a pickle of objects other than tensors, which can run any code when it is read"
            )
            raise _error("refused-pickle", message) from error
        raise
    finally:
        torch.load = original


@contextlib.contextmanager
def _without_log() -> Iterator[None]:
    """Keeps PyTorch from logging the traceback of an error before it raises the error."""
    logger = logging.getLogger("torch.export")
    was, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was


def _load_tensors(original: Any, file: Any, *args: Any, **options: Any) -> Any:
    return original(file, *args, **{**options, "weights_only": True})


def _error(code: str, message: str, help: str = "") -> DiagnosticError:
    return DiagnosticError([Diagnostic(code, message, help=help)])
