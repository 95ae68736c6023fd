"""Python imports this before anything else, where a planted fault is on: so children that generate code have it too."""

from __future__ import annotations

import importlib
import os

from planted.planted import VARIABLE
from planted.setting import Setter

if VARIABLE in os.environ:
    _where, _, _name = os.environ[VARIABLE].partition(":")
    (_fault,) = (fault for fault in importlib.import_module(_where).FAULTS if fault.name == _name)
    _fault.plant(Setter())
