"""Python imports this before anything else, where a planted fault is on: so children that generate code have it too."""

from __future__ import annotations

import os

from planted.faults import FAULTS
from planted.planted import VARIABLE
from planted.setting import Setter

if VARIABLE in os.environ:
    FAULTS[os.environ[VARIABLE]].plant(Setter())
