"""Where probes record what was reached: a byte for each mutant, in memory that all processes of a test share.

0: not reached.  1: reached, but the mutant computes the same.  2: the mutant computes something else.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from typing import Any

VARIABLE = "NACRE_REACHED"
"""Names the file of these bytes."""


def _open() -> Any:
    name = os.environ.get(VARIABLE)
    if name is None:
        return bytearray(1 << 16)
    with open(name, "r+b") as file:
        return mmap.mmap(file.fileno(), 0)


SEEN = _open()


def reached(number: int) -> bool:
    SEEN[number] = 2
    return False


def infected(number: int, right: Callable[[], Any], wrong: Callable[[], Any]) -> Any:
    value = right()
    if SEEN[number] < 2:
        SEEN[number] = 2 if _differs(value, wrong) else 1
    return value


def _differs(value: Any, wrong: Callable[[], Any]) -> bool:
    try:
        other = wrong()
        return other is not value and not (type(other) is type(value) and bool(other == value))
    except Exception:
        return True
