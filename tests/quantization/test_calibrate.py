"""Calibration: histograms, what is made of them, and the ranges of a model's values, all beside brute force."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.model.parameters import open_parameters
from nacre.compiler.model.policy import Calibration
from nacre.compiler.quantization.calibrate import calibrate
from nacre.compiler.quantization.clipping import choose_range, divergence, rounded
from nacre.compiler.quantization.histogram import HALF, Histogram
from nacre.compiler.quantization.ranges import Ranges
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.interpreter import Interpreter
from saving import save_npz

RNG = np.random.default_rng(3)
NUMBERS = {
    "both signs": RNG.normal(size=20000),
    "one sign": np.maximum(RNG.normal(size=20000), 0),
    "outliers": np.append(RNG.normal(size=20000), [60, -20]),
    "lopsided": RNG.gamma(2, size=20000) - 1.0,
}
NAMES = list(NUMBERS)


def histogram(*pieces: Any) -> Histogram:
    made = Histogram()
    for piece in pieces:
        made.add(np.asarray(piece))
    return made


def by(method: Any, percentile: float = 99.99) -> Calibration:
    return Calibration(Path("x.npz"), method, percentile)


@pytest.mark.parametrize("name", NAMES)
def test_pieces_and_their_order_do_not_matter(name: str) -> None:
    numbers = NUMBERS[name]
    whole = histogram(numbers)
    for pieces in (np.array_split(numbers, 7), np.array_split(np.sort(np.abs(numbers) * np.sign(numbers)), 3)):
        cut = histogram(*pieces)
        assert (cut.low, cut.high, cut.power) == (whole.low, whole.high, whole.power)
        np.testing.assert_array_equal(cut.counts, whole.counts)
    edges = np.linspace(-HALF, HALF, 2 * HALF + 1) * whole.width
    np.testing.assert_array_equal(whole.counts, np.histogram(numbers, edges)[0])


def test_bins_grow_with_the_numbers() -> None:
    grown = histogram([1e-6, -2e-6], [0.25], [], [1000.0])
    assert grown.power == 10 and grown.total == 4
    assert list(grown.counts[HALF - 1 : HALF + 3]) == [1, 1, 1, 0]  # bins are 0.25 wide now
    assert grown.counts[HALF + int(1000 / grown.width)] == 1
    assert histogram([np.nan, 1, np.inf]).strange == 2
    assert histogram([np.nan]).total == 0 and histogram(np.zeros(3)).total == 3


@pytest.mark.parametrize("name", NAMES)
def test_minmax_holds_all_numbers_and_zero(name: str) -> None:
    low, high = choose_range(histogram(NUMBERS[name]), by("minmax"))
    assert (low, high) == (min(NUMBERS[name].min(), 0), max(NUMBERS[name].max(), 0))
    assert choose_range(histogram([2, 3]), by("minmax")) == (0, 3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("percentile", [90, 99, 99.9, 100])
def test_percentiles_are_those_of_the_numbers(name: str, percentile: float) -> None:
    numbers = NUMBERS[name]
    seen = histogram(numbers)
    found = choose_range(seen, by("percentile", percentile))
    low, high = np.quantile(numbers, [1 - percentile / 100, percentile / 100])
    # In the tails numbers are rare: two of them may lie further apart than a bin is wide.
    gap = max(np.diff(np.sort(numbers))[[0, 1, 2, -3, -2, -1]].max() if percentile > 99 else 0, 2 * seen.width)
    assert abs(found[0] - min(low, 0)) <= gap and abs(found[1] - max(high, 0)) <= gap


def squared(numbers: Any, low: float, high: float) -> float:
    """The error of codes as passes make them, number by number."""
    step = (high - low) / 255
    zero = round(-low / step)
    codes = np.clip(np.round(numbers / step) + zero, 0, 255)
    return float(((codes - zero) * step - numbers).__pow__(2).mean())


@pytest.mark.parametrize("name", NAMES)
def test_mse_is_as_good_as_the_best_of_a_grid(name: str) -> None:
    numbers = NUMBERS[name]
    found = choose_range(histogram(numbers), by("mse"))
    low, high = min(numbers.min(), 0), max(numbers.max(), 0)
    shares = np.linspace(0.1, 1, 31)
    best = min(squared(numbers, low * a, high * b) for a in shares for b in (shares if low < 0 < high else [a]))
    assert squared(numbers, *found) <= 1.1 * best
    assert squared(numbers, *found) <= squared(numbers, low, high) * 1.001


def relative_entropy(numbers: Any, low: float, high: float, width: float) -> float:
    """The same, bin by bin in dictionaries."""
    bins: dict[int, int] = {}
    for place in np.floor(numbers / width).astype(int):
        bins[int(place)] = bins.get(int(place), 0) + (place != 0)
    total = sum(bins.values())
    inside = [
        k for k in range(int(np.floor(low / width)) - 1, int(high / width) + 2) if low <= (k + 0.5) * width <= high
    ]
    code = {k: int(np.clip(np.round(((k + 0.5) * width - low) / ((high - low) / 255)), 0, 255)) for k in inside}
    groups: dict[int, list[int]] = {}
    for k in inside:
        if bins.get(k, 0):
            groups.setdefault(code[k], []).append(k)
    kept = sum(bins[k] for members in groups.values() for k in members)
    left = {k: sum(bins[m] for m in members) / len(members) / kept for members in groups.values() for k in members}
    p = {k: float(bins.get(k, 0)) for k in inside}
    p[inside[0]] += sum(count for k, count in bins.items() if k < inside[0])
    p[inside[-1]] += sum(count for k, count in bins.items() if k > inside[-1])
    found = sum(n / total * np.log(n / total / max(left.get(k, 0), 1e-12)) for k, n in p.items() if n)
    return float(found - sum(len(members) - 1 for members in groups.values()) / (2 * total))


@pytest.mark.parametrize("name", NAMES)
def test_entropy_is_that_of_the_bins(name: str) -> None:
    numbers = NUMBERS[name]
    seen = histogram(numbers)
    for share in (1.0, 0.7, 0.2):
        bounds = min(seen.low, 0) * share, max(seen.high, 0) * share
        assert divergence(seen, bounds) == pytest.approx(
            relative_entropy(numbers, *bounds, seen.width), rel=1e-9, abs=1e-12
        )


def test_outliers_are_clipped_and_even_numbers_are_not() -> None:
    outliers, even = histogram(NUMBERS["outliers"]), histogram(RNG.uniform(-1, 1, 20000))
    low, high = choose_range(outliers, by("entropy"))
    assert -20 <= low < -2 and 2 < high < 40
    low, high = choose_range(even, by("mse"))
    assert low < -0.98 and high > 0.98
    assert (
        choose_range(histogram(np.zeros(3)), by("entropy")) == (0, 0) == choose_range(histogram(np.zeros(3)), by("mse"))
    )
    assert rounded(np.ones(2), (0.0, 0.0)).tolist() == [0, 0]


TWO_LAYERS = """language 1
dim B in 1..64
model main(x: f32[B, 8]) -> f32[B, 4] {
  weights "weights.npz"
  param first: f32[8, 16]
  param second: f32[16, 4]
  hidden = relu(x @ first)
  return hidden @ second
}
"""


def test_ranges_are_those_that_the_interpreter_computes(tmp_path: Path) -> None:
    arrays = {
        name: RNG.normal(size=shape).astype("float32") for name, shape in (("first", (8, 16)), ("second", (16, 4)))
    }
    save_npz(tmp_path / "weights.npz", arrays)
    (tmp_path / "model.nacre").write_text(TWO_LAYERS)
    x = RNG.normal(size=(50, 8)).astype("float32")
    np.savez(tmp_path / "data.npz", x=x)
    source_model, names = read_model(tmp_path / "model.nacre"), ["x", "hidden", "0"]
    found = calibrate(source_model, "main", names, Calibration(tmp_path / "data.npz"))
    seen = {"x": x}
    interpreter = Interpreter(
        source_model.module,
        open_parameters(source_model),
        observe=lambda node, arrays: seen.update(zip((v.name for v in node.outputs), arrays, strict=True)),
    )
    interpreter.run("main", [x])
    assert (found.model, found.samples, list(found.values)) == ("main", 50, names)
    for name in names:
        wanted = min(seen[name].min(), 0), max(seen[name].max(), 0)
        np.testing.assert_allclose(found.values[name], wanted, rtol=1e-5)
    assert calibrate(source_model, "main", names, Calibration(tmp_path / "data.npz"), most=7) == found


def test_values_that_are_not_finite_are_an_error_with_a_span(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.array([[1.0], [0.0]], "float32"))
    model = read_model(
        "language 1\ndim B in 1..4\nmodel main(x: f32[B, 1]) -> f32[B, 1] {\n  y = 1 / x\n  return y + 1\n}"
    )
    with pytest.raises(DiagnosticError) as caught:
        calibrate(model, "main", ["y"], Calibration(tmp_path / "x.npz"))
    (fault,) = caught.value.diagnostics
    assert fault.code == "calibration-not-finite" and fault.span is not None and fault.span.line == 4


def test_ranges_are_passed_on_unchanged() -> None:
    ranges = Ranges("main", 3, {"x": (-0.1, 1 / 3), "a:b": (0.0, 1e-30)})
    assert ranges.texts == ("x:-0.1:0.3333333333333333", "a:b:0.0:1e-30")
