"""Which locations stay in MLIR's text: those in the source of a model."""

from __future__ import annotations

import pytest
from nacre.compiler.codegen.llvm.locations import keep_source_locations


@pytest.mark.parametrize(
    ("printed", "kept"),
    [
        ('%0 = f.g loc("m.nacre":4:10)', '%0 = f.g loc("m.nacre":4:10)'),
        ('%0 = f.g loc("-":4:10)\n%1 = f.h loc(unknown)', "%0 = f.g\n%1 = f.h"),
        ('f(%a: i8 loc("-":1:3), %b: i8 loc("-":1:9)) {', "f(%a: i8, %b: i8) {"),
        ('x loc(callsite("f"("-":1:2) at "a (b) \\" loc(c.nacre":3:4))', 'x loc("a (b) \\" loc(c.nacre":3:4)'),
        ('x loc(fused["m.nacre":1:2, "m.nacre":3:4]) y loc(unknown)', 'x loc("m.nacre":1:2) y'),
        ('x loc(fused<"why">["-":1:2, "m.nacre":3:4])', 'x loc("m.nacre":3:4)'),
        ("call @alloc(%0) : (i8)", "call @alloc(%0) : (i8)"),
    ],
)
def test_places_in_the_source_stay(printed: str, kept: str) -> None:
    assert keep_source_locations(printed) == kept
