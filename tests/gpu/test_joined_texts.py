"""Kernels that are compiled several to a module have the code that a build gives them one by one."""

from __future__ import annotations

import re

from assembler import find_ptx, symbols_in
from joined_texts import write_texts
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets

MODEL = """language 1
dim B in 0..64
model product(x: f16[B, 40], w: f16[40, 24]) -> f16[B, 24] { return x @ w }
model rows(x: f32[B, 45]) -> f32[B, 45] { return softmax(x) }
model sorted(x: i32[B, 19]) -> i32[B, 19] { return sort(x) }
model angles(x: f64[B]) -> f64[B] { return sin(x) }
"""


def kernels_in(texts: list[str]) -> dict[str, str]:
    """Returns the code of each kernel, without the numbers that it has in its module."""
    found = {}
    for text in texts:
        for kernel in re.split(r"^(?=\.visible \.entry )", text, flags=re.MULTILINE)[1:]:
            (symbol,) = symbols_in([kernel])
            code = re.sub(r"//[^\n]*", "", kernel[: kernel.index("\n}")])
            found[symbol] = re.sub(r"\$L__BB\d+_", "$L__BB_", code)
    return found


def test_joined_kernels_have_the_same_code() -> None:
    build = Build(read_model(MODEL), Options(targets=parse_targets("cuda:sm_80")))
    build.make("program")
    assert build.program is not None
    (kernels,) = build.program.kernels.values()
    alone = kernels_in([text for made in kernels.values() for text in find_ptx(made.code)])
    (joined,) = write_texts(build)
    assert len(alone) > 4 and kernels_in([joined]) == alone
    known, *others = alone
    assert symbols_in(write_texts(build, {known})) == set(others)
