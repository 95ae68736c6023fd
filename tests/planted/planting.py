"""Switches a planted fault on and off.

What a fault replaces is put back afterwards. Objects that are made meanwhile go into a cache of their own, and no child
that was started before is used, nor one that was started meanwhile used later.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from nacre.compiler.codegen.workers.pool import end_waiting
from nacre.compiler.readers.language import load_module
from nacre.compiler.tools.validate.inputs import made_up
from nacre.dialect.graph import Parameter

from .planted import VARIABLE, Planted
from .setting import Setter

_SITE = Path(__file__).parent / "site"


@contextmanager
def plant(fault: Planted, folder: Path) -> Iterator[None]:
    """The compiler has the fault until the block ends. `folder` takes what is cached meanwhile."""
    paths = [str(_SITE), str(_SITE.parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {VARIABLE: fault.place, "NACRE_CACHE": str(folder), "PYTHONPATH": os.pathsep.join(paths)}
    setter = Setter()
    end_waiting()
    try:
        with mock.patch.dict(os.environ, environment):
            fault.plant(setter)
            yield
    finally:
        setter.undo()
        end_waiting()


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
