"""The table of dtypes in C: names and bytes by the numbers of the ABI, which decide sizes and overlaps of tensors."""

from __future__ import annotations

import re
from pathlib import Path

from nacre import runtime
from nacre.dialect.types import DTYPES
from nacre.runtime.arguments import DTYPE_CODES


def test_names_and_bytes() -> None:
    text = (Path(runtime.__file__).parent / "check.c").read_text()
    table = text[text.index("dtypes[] = {") : text.index("static const int32_t dtype_count")]
    rows = [(name, int(size)) for name, size in re.findall(r'\{"(\w+)", (\d+)\}', table)]
    assert rows[0] == ("unknown", 0) and len(rows) == 1 + len(DTYPE_CODES)
    for name, code in DTYPE_CODES.items():
        assert rows[code] == (name, DTYPES[name].numpy.itemsize), name
