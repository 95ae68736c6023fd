"""Loops of tiled kernels compute nothing that is the same in each iteration."""

from __future__ import annotations

import re
from pathlib import Path

from nacre.compiler.cli.main import run

CONVOLUTION = """language 1
dim H in 1..112
model m(x: f32[1, 64, H, H]) -> f32[1, 64, H, H] {
  param w: f32[64, 64, 3, 3] = 0.5
  return conv2d(x, w, padding=2, dilation=2)
}
"""
"""The size of a row is known in the call only, and so are the distances of rows and of prefetches."""
NORM = """language 1
model m(x: f64[9, 640], w: f64[640]) -> f64[9, 640] { return rms_norm(x, w) }
"""


def loops(source: str, folder: Path) -> list[str]:
    """Returns the innermost loops of a model's assembly: from a label up to the jump back to it."""
    (folder / "m.nacre").write_text(source)
    given = ["--target", "x86-64-v3", "--emit", "asm", "-o", str(folder / "m.s")]
    assert run(["compile", str(folder / "m.nacre"), *given]) == 0
    text = (folder / "m.s").read_text()
    return re.findall(r"^(\.LBB\w+):((?:(?!^\.LBB)[\s\S])*?\tj\w+\t\1$)", text, re.MULTILINE)


def test_addresses(tmp_path: Path) -> None:
    """Each step of the sum adds the distances to the addresses, and multiplies once for the line that it prefetches."""
    whole = [body for _, body in loops(CONVOLUTION, tmp_path) if body.count("vfmadd231ps") == 12]
    assert whole
    for body in whole:
        integer = re.findall(r"\t(imul|shl|lea|mov|cmov\w*|add)q\t", body)
        assert len(integer) <= 5, body


def test_divisions(tmp_path: Path) -> None:
    """A row is divided once."""
    assert any("mulpd" in body for _, body in loops(NORM, tmp_path))
    assert not [body for _, body in loops(NORM, tmp_path) if "vdivpd" in body or "vsqrt" in body]
