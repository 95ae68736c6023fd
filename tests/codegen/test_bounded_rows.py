"""Attention whose mask is a comparison of positions: keys that no row of a block sees are not read, and the result has
the bits that it has with the same mask as an argument, whatever the numbers are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import nacre
import numpy as np
import numpy.typing as npt
import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.runtime.loader import Model

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Mask:
    """Scores as the model's text masks them, by diagonals, and what is kept of row i and column j; `low` stands
    elsewhere."""

    scores: str
    keep: Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], npt.NDArray[np.bool_]]
    low: str = "-inf"


MASKS: Mapping[str, Mask] = {
    "causal": Mask("where(upto(0), score, low)", lambda i, j: j <= i),
    "finite": Mask("where(upto(0), score, low)", lambda i, j: j <= i, "-1e9"),
    "near": Mask("where(upto(0), score, low)", lambda i, j: j <= i, "-3.0"),
    "early": Mask("where(upto(-40), score, low)", lambda i, j: j <= i - 40, "-3.4e38"),
    "behind": Mask("where(upto(7), low, score)", lambda i, j: j > i + 7),
    "window": Mask("where(upto(0), where(upto(-100), low, score), low)", lambda i, j: (j <= i) & (j > i - 100)),
}

ROW, COLUMN = "iota(ROWS)[:, None]", "iota(COLUMNS)"
FORMS: Mapping[str, Mask] = {
    "rows": Mask(f"where({ROW} + 7 >= {COLUMN}, score, low)", lambda i, j: j <= i + 7),
    "columns": Mask(f"where({COLUMN} > {ROW}, low, score)", lambda i, j: j <= i, "-1e9"),
    "difference": Mask(f"where({COLUMN} - {ROW} < -40, score, low)", lambda i, j: j < i - 40, "-3.4e38"),
    "distance": Mask(
        f"where({COLUMN} <= {ROW} and {ROW} - {COLUMN} < 100, score, low)", lambda i, j: (j <= i) & (j > i - 100)
    ),
    "either": Mask(
        f"where({COLUMN} > {ROW} or {COLUMN} <= {ROW} - 100, low, score)", lambda i, j: (j <= i) & (j > i - 100)
    ),
    "matrices": Mask(
        "where(reshape(iota(ROWS), (1, ROWS, 1)) >= iota((ROWS, COLUMNS), axis=1), score, low)", lambda i, j: j <= i
    ),
    "lower": Mask("where(tril(ones((ROWS, COLUMNS))) == 0, low, score)", lambda i, j: j <= i),
    "upper": Mask(
        "where(cast(triu(ones((ROWS, COLUMNS)), diagonal=3), bool), low, score)", lambda i, j: j < i + 3, "-3.0"
    ),
}
"""Other ways to write a triangle, which the graph's rules bring into the form of those above."""
ALL = {**MASKS, **FORMS}


def model(name: str, scores: str, rows: str, columns: str, more: str = "") -> str:
    """Attention of rows over columns, with the scores masked."""
    masked = scores.replace("upto(", f"triangular_mask({rows}, {columns}, diagonal=")
    masked = masked.replace("ROWS", rows).replace("COLUMNS", columns)
    arguments = f"q: f32[2, {rows}, 16], k: f32[2, {columns}, 16], v: f32[2, {columns}, 20]{more}"
    return f"""model {name}({arguments}) -> f32[2, {rows}, 20] {{
  score = q @ k.mT * 0.25
  return softmax({masked}) @ v
}}
"""


def every_mask(rows: str, columns: str) -> str:
    """A model for each mask, and one that takes it as an argument."""
    given = model("given", "where(keep, score, low)", rows, columns, f", keep: bool[{rows}, {columns}], low: f32")
    models = [model(name, mask.scores.replace("low", mask.low), rows, columns) for name, mask in ALL.items()]
    return "".join(["dim T in 1..448\ndim S in 1..512\n", *models, given])


def numbers(rows: int, columns: int) -> dict[str, tuple[Floats, Floats, Floats]]:
    """Ordinary numbers; an infinite value and one that is NaN; scores that are minus infinity, NaN and huge."""
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal((2, n, w)).astype(np.float32) for n, w in ((rows, 16), (columns, 16), (columns, 20)))
    values, scores = v.copy(), k.copy()
    values[1, columns - 3, 19], values[1, columns // 2, 4] = np.inf, np.nan
    scores[0, :70], scores[0, 90 % columns], scores[1, 130 % columns] = -np.inf, np.nan, 1e38
    return {"ordinary": (q, k, v), "values": (q, k, values), "scores": (np.abs(q), scores, v)}


def schedules(source: str, *, strict: bool = False) -> list[tuple[str, ...]]:
    build = Build(read_model(source), Options(strict=strict))
    (kernels,) = build.generate(build.lower(build.optimize())).kernels.values()
    return sorted(kernel.report.schedules for kernel in kernels.values())


def compare_with_argument(loaded: Sequence[Model], name: str, mask: Mask, rows: int, columns: int) -> None:
    """Compares the bits of a masked model with those of the mask as an argument."""
    keep, low = mask.keep(*np.ogrid[:rows, :columns]), np.float32(mask.low)
    for kind, arrays in numbers(rows, columns).items():
        expected = loaded[0].entries["given"](*arrays, keep, low)
        for artifact in loaded:
            actual = artifact.entries[name](*arrays)
            np.testing.assert_array_equal(actual, expected, err_msg=f"{name}, {kind} numbers, {rows} by {columns}")


CALLS = {("320", "320"): ((320, 320),), ("T", "S"): ((448, 512), (300, 512), (5, 384), (448, 320))}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("shape", CALLS)
def test_bits_are_those_of_a_mask_that_is_an_argument(shape: tuple[str, str], tmp_path: Path) -> None:
    nacre.compile(every_mask(*shape), tmp_path / "masks.so")
    loaded = [nacre.load(tmp_path / "masks.so", threads=threads) for threads in (1, 2)]
    rest = product(CALLS[shape][1:], MASKS.items())
    for (i, j), (name, mask) in (*product(CALLS[shape][:1], ALL.items()), *rest):
        compare_with_argument(loaded, name, mask, i, j)


def test_rows_are_bounded() -> None:
    grouped = "model op(q: f32[1, 4, T, 16], k: f32[1, 2, T, 16], v: f32[1, 2, T, 16]) -> f32[1, 4, T, 16] {\n"
    grouped += "  return attention(q, k, v, causal=true)\n}\n"
    found = schedules(every_mask("T", "S") + grouped)
    different = {(mask.keep(*np.ogrid[:448, :512]).tobytes(), mask.low) for mask in ALL.values()}
    # All forms of one mask give one kernel.
    assert found.count(("bounded rows",)) == len(different) + 1
    assert found.count(("rows",)) == 1
    assert len(found) == len(different) + 4, "two kernels transpose keys, and none computes a mask"


def test_short_rows_are_computed_as_a_whole() -> None:
    assert ("rows",) in schedules(model("m", "where(upto(0), score, -inf)", "32", "32"))


def test_weights_that_are_a_result_are_computed_as_a_whole() -> None:
    types = "q: f32[2, 320, 16], k: f32[2, 320, 16], v: f32[2, 320, 20]"
    source = f"""model m({types}) -> weights: f32[2, 320, 320], y: f32[2, 320, 20] {{
  weights = softmax(where(triangular_mask(320, 320), q @ k.mT, -inf))
  return weights, weights @ v
}}
"""
    assert not any("bounded rows" in names for names in schedules(source))
