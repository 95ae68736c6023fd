"""Switches a planted fault on and off.

What a fault replaces is put back afterwards. Objects that are made meanwhile go into a cache of their own. Children
that generate code come from fork servers of their own, which all faults share: a child plants the current fault when it
is forked, and the server itself has none. No other fault takes over the idle children of one.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from nacre.compiler.codegen.workers import pool
from nacre.compiler.codegen.workers.child import ENTRY_WORKER, KERNEL_WORKER
from nacre.compiler.codegen.workers.forking import ForkServer
from nacre.compiler.readers.language import load_module
from nacre.compiler.validate.inputs import made_up
from nacre.dialect.graph import Parameter

from .planted import FILE, VARIABLE, Planted
from .setting import Setter

_SITE = Path(__file__).parent / "site"


_servers: dict[str, ForkServer] = {}
"""The fork servers whose children plant the fault that the file names."""


@cache
def _current() -> Path:
    """The file that names the current fault."""
    folder = Path(tempfile.mkdtemp(prefix="planted-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder / "fault"


@contextmanager
def plant(fault: Planted, folder: Path) -> Iterator[None]:
    """The compiler has the fault until the block ends. `folder` takes what is cached meanwhile."""
    search = {"PYTHONPATH": os.pathsep.join([str(_SITE), str(_SITE.parent.parent), *_python_path()])}
    setter = Setter()
    with mock.patch.object(pool, "_servers", _servers), mock.patch.object(pool, "_idle", {}):
        with mock.patch.dict(os.environ, {**search, FILE: str(_current())}):
            pool.prestart(KERNEL_WORKER)
            pool.prestart(ENTRY_WORKER)
        standing = dict(_servers)
        _current().write_text(fault.place)
        try:
            with mock.patch.dict(os.environ, {**search, VARIABLE: fault.place, "NACRE_CACHE": str(folder)}):
                fault.plant(setter)
                yield
        finally:
            setter.undo()
            pool.end_idle()
            # A server that was started meanwhile has the fault itself.
            for worker in [name for name, server in _servers.items() if standing.get(name) is not server]:
                _servers.pop(worker).close()


def _python_path() -> list[str]:
    return list(filter(None, [os.environ.get("PYTHONPATH")]))


@atexit.register
def _end_servers() -> None:
    while _servers:
        _servers.popitem()[1].close()


def write_model(fault: Planted, folder: Path) -> Path:
    """Writes the model that shows the fault, with made-up weights beside it."""
    path = folder / f"{fault.name}.nacre"
    path.write_text(fault.model, encoding="utf-8")
    module = load_module(fault.model, text=True).module
    arrays: dict[str, Any] = {}
    for parameter in module.parameters:
        for index in np.ndindex(*parameter.counts):
            single = parameter.at(index)
            arrays[single.key] = _stored(single)
    if arrays:
        np.savez(folder / "weights.npz", **arrays)
    return path


def _stored(parameter: Parameter) -> Any:
    """The data as a checkpoint holds them; variances are positive."""
    array = made_up(parameter)
    if parameter.transpose is not None:
        array = array.transpose(np.argsort(parameter.transpose))
    return np.abs(array) + 1 if parameter.key.endswith("var") else array
