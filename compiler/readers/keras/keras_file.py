"""Opens files of Keras: `.keras`, a zip file of Keras 3, and `.h5`, HDF5 with the configuration in an attribute."""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ..writing.tensors import Elements
from .hdf5_package import require_h5py

_MOST_GROWTH = 16
_SPARE_BYTES = 64 << 20
_PATIENCE = 600
_DAMAGES = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, ValueError, EOFError, RuntimeError)
"""The errors of zip files that are damaged, encrypted, or packed in an unknown way."""


@dataclass(frozen=True, slots=True, eq=False)
class Archive:
    """The configuration of a model, the version of Keras, and the arrays by path. `orders` has the order of the arrays
    of each layer in an `.h5` file; in a `.keras` file, the paths give the order."""

    config: Mapping[str, Any]
    version: str
    arrays: Mapping[str, Elements]
    orders: Mapping[str, Sequence[str]] | None


def open_archive(path: Path) -> Archive:
    """Returns the content of a `.keras` or `.h5` file. Raises DiagnosticError."""
    if not path.is_file():
        raise DiagnosticError([Diagnostic("missing-file", f"`{path}` cannot be read: no such file")])
    require_h5py()
    if path.suffix != ".keras":
        attributes, orders, arrays = _read_hdf5(path, str(path))
        config = attributes["model_config"]
        if not config:
            message = f"`{path}` has weights and no configuration of a model"
            raise DiagnosticError([Diagnostic("bad-keras", message, help="save the model, and not its weights alone")])
        return Archive(_json(config, path), attributes["keras_version"], arrays, orders)
    try:
        with zipfile.ZipFile(path) as file, tempfile.TemporaryDirectory() as folder:
            config = _member(file, "config.json", path).decode()
            version = str(_json(_member(file, "metadata.json", path).decode(), path).get("keras_version", "3"))
            weights = Path(folder) / "model.weights.h5"
            weights.write_bytes(_member(file, weights.name, path))
            _, _, arrays = _read_hdf5(weights, str(path))
    except _DAMAGES as error:
        raise _bad(path, f"is not a readable zip file: {error}") from None
    return Archive(_json(config, path), version, arrays, None)


def _bad(path: Path, message: str) -> DiagnosticError:
    return DiagnosticError([Diagnostic("bad-keras", f"`{path}` {message}")])


def _member(file: zipfile.ZipFile, name: str, path: Path) -> bytes:
    try:
        info = file.getinfo(name)
    except KeyError:
        raise _bad(path, f"has no member `{name}`") from None
    most = _MOST_GROWTH * path.stat().st_size + _SPARE_BYTES
    if info.file_size > most:
        raise _bad(path, f"has a member `{name}` of {info.file_size} bytes, much more than the file")
    with file.open(info) as stream:
        return stream.read(most)


def _json(text: str, path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _bad(path, f"has a configuration that is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise _bad(path, "has a configuration that is not a JSON object")
    return found


def _read_hdf5(path: Path, shown: str) -> tuple[dict[str, str], dict[str, list[str]], dict[str, Elements]]:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "arrays.npz"
        command = [sys.executable, "-m", f"{__package__}.hdf5_child", str(path), str(output)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            raise _bad(Path(shown), f"was not read within {_PATIENCE} seconds") from None
        if done.returncode != 0:
            said = done.stderr.strip().splitlines() or [f"the reader of HDF5 ended with status {done.returncode}"]
            raise _bad(Path(shown), f"cannot be read: {said[-1]}")
        found = json.loads(done.stdout)
        with np.load(output) as stored:
            arrays = {name: stored[f"a{number}"] for number, name in enumerate(found["names"])}
    return found["attributes"], found["orders"], arrays
