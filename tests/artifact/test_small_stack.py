"""The deepest kernels run in a thread with the stack that ABI.md asks for."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from c_models import CC, STRICT
from nacre.compiler.artifact.header import emit_header
from nacre.compiler.checking import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build

HERE = Path(__file__).parent
CALLS = {
    # Blocks of rows with the greatest number of scores on the stack: 8 rows of 8192, 64 of 1024, and a mask.
    "wide": ((2, 64, 64), (2, 8192, 64), (2, 8192, 64), (2, 64, 64)),
    "high": ((16, 256, 64), (16, 1024, 64), (16, 1024, 64), (16, 256, 64)),
    "causal": ((2, 1, 600, 64), (2, 1, 4096, 64), (2, 1, 4096, 128), (2, 1, 600, 128)),
    "rows": ((3, 30000), (3, 30000)),
}
SOURCE = """language 1
dim T in 1..1024

model wide(q: f32[2, 64, 64], k: f32[2, 8192, 64], v: f32[2, 8192, 64]) -> f32[2, 64, 64] { return attention(q, k, v) }
model high(q: f32[16, 256, 64], k: f32[16, 1024, 64], v: f32[16, 1024, 64]) -> f32[16, 256, 64] {
  return attention(q, k, v)
}
model causal(q: f32[2, 1, T, 64], k: f32[2, 1, 4096, 64], v: f32[2, 1, 4096, 128]) -> f32[2, 1, T, 128] {
  return attention(q, k, v, causal=true)
}
model rows(x: f32[3, 30000]) -> f32[3, 30000] { return layer_norm(softmax(x), eps=1e-5) }
"""


def words(name: str) -> list[str]:
    """The arguments of the program for a call: the entry, its inputs, and each tensor's rank and shape."""
    shapes = CALLS[name]
    return [name, str(len(shapes) - 1), *(str(n) for shape in shapes for n in (len(shape), *shape))]


def test_kernels_fit_the_stack_of_a_caller(tmp_path: Path) -> None:
    assert CC
    source = tmp_path / "deep.nacre"
    source.write_text(SOURCE)
    build = Build(read_model(source), Options())
    build.run(tmp_path / "deep.so")
    assert build.spec is not None
    (tmp_path / "deep.h").write_text(emit_header(build.spec))
    command = [CC, *STRICT, "-pthread", "-I.", str(HERE / "small_stack.c"), "./deep.so", "-o", "program"]
    subprocess.run(command, cwd=tmp_path, check=True)
    given = [word for name in CALLS for word in words(name)]
    shown = subprocess.run(["./program", *given], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    used = {name: int(size) for name, size in re.findall(r"^(\w+) 0 (\d+)$", shown, re.MULTILINE)}
    assert list(used) == list(CALLS), shown
    # The deepest call is a test of the limit only if it comes near it.
    assert 256 * 1024 < max(used.values()) < 448 * 1024, used
