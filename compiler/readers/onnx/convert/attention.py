"""."""

from __future__ import annotations

from ..writing.use import Converters

CONVERTERS: Converters = {}
