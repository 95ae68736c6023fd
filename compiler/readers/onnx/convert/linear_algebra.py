"""`Det`: the determinant of matrices."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.types import F32
from ...writing.tensors import Tensor
from ..writing.use import Converters, Use


def _determinant(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    if x.dtype.is_half:
        return [g.cast(g.determinant(g.cast(x, dtype=F32)), dtype=x.dtype)]
    return [g.determinant(x)]


CONVERTERS: Converters = {"Det": _determinant}
