"""Every pass, on one screen. A new one is a file named as the pass, and a line here."""

from __future__ import annotations

from collections.abc import Mapping

from .canonicalize import Canonicalize
from .cse import Cse
from .dce import Dce
from .decompose import Decompose
from .fold_constants import FoldConstants
from .fuse_elementwise import FuseElementwise
from .manager import Pass
from .transpose_parameters import TransposeParameters
from .unroll_repeat import UnrollRepeat

_ALL: tuple[type[Pass], ...] = (
    Canonicalize,  # one form for what can be written in several: x * 1, transposes of transposes, axes from the end
    Cse,  # what is computed twice is computed once
    Dce,  # what no result depends on goes
    Decompose,  # operators that are defined by others become them
    FoldConstants,  # what depends on constants alone is computed now
    FuseElementwise,  # elementwise nodes, one after another, become one group
    TransposeParameters,  # a parameter that is read transposed is stored so
    UnrollRepeat,  # a loop becomes copies of its body
)

PASSES: Mapping[str, type[Pass]] = {each.name: each for each in _ALL}
