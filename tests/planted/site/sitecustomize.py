"""Python imports this before anything else, where a planted fault is on: so children that generate code have it too."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

from planted.planted import FILE, VARIABLE
from planted.setting import Setter


def _plant(place: str) -> None:
    where, _, name = place.partition(":")
    (fault,) = (fault for fault in importlib.import_module(where).FAULTS if fault.name == name)
    fault.plant(Setter())


if VARIABLE in os.environ:
    _plant(os.environ[VARIABLE])
elif FILE in os.environ:
    # Imported before the fork, for all children.
    importlib.import_module("planted.faults")
    os.register_at_fork(after_in_child=lambda: _plant(Path(os.environ[FILE]).read_text()))
