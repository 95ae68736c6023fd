"""The bytes of an artifact's weights: growth causes a warning, and a bound holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.compiler.artifact import assemble
from nacre.compiler.checking import read_model
from nacre.compiler.codegen.objects import CodeGenerator
from nacre.compiler.graph_passes import GRAPH_PASSES
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.weight_sizes import SizeBound, WeightSizes, measure_weights, parse_bound, too_large
from saving import save_npz

MODEL = """language 1
model net(x: f32[1, 32, 28, 28]) -> f32[1, 32, 14, 14] {
  weights "weights.npz"
  param first: f32[32, 32, 3, 3]
  param second: f32[32, 32, 3, 3]
  return relu(conv2d(max_pool2d(relu(conv2d(x, first, padding=1)), 2), second, padding=1))
}
"""
PARAMETERS = 2 * 32 * 32 * 9 * 4
MORE = 32 * 32 * 27 * 4
"""What a transform adds."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("net"), np.random.default_rng(4)
    arrays = {n: (rng.standard_normal((32, 32, 3, 3)) / 16).astype(np.float32) for n in ("first", "second")}
    save_npz(folder / "weights.npz", arrays)
    (folder / "net.nacre").write_text(MODEL)
    return folder / "net.nacre"


def sizes(path: Path, **options: Any) -> WeightSizes:
    source_model = read_model(path)
    build = Build(source_model, Options(**options))
    return measure_weights(source_model.module, build.lower(build.optimize()))


def test_growth_has_its_cause(path: Path) -> None:
    found = sizes(path)
    assert found.parameters == PARAMETERS
    (growth,) = found.growth
    assert growth.bytes == 2 * MORE and growth.parameters == ("first", "second")
    assert found.is_reported and str(found).startswith(
        "weights take 295 kB, 4.00 times the 73.7 kB of the parameters: 221 kB"
    )


@pytest.mark.parametrize(("bound", "stored"), [("4.1x", 2), ("3x", 1), ("220kB", 1), ("1.1x", 0)])
def test_transforms_keep_the_bound(bound: str, stored: int, path: Path) -> None:
    limit = parse_bound(bound)
    found = sizes(path, size=limit)
    assert found.weights <= limit.bytes(PARAMETERS)
    assert found.transformed == stored * MORE


def test_a_budget_of_the_file_is_a_bound(path: Path) -> None:
    path.with_name("budget.nacre").write_text(MODEL + "budget net { weights <= 220 KB }\n")
    assert sizes(path.with_name("budget.nacre")).transformed == MORE


def test_passes_with_options_keep_the_bound(path: Path) -> None:
    passes = GRAPH_PASSES[2].replace("winograd", "winograd{channels=32}")
    limit = SizeBound(PARAMETERS + 2 * MORE - 1, relative=False)
    assert sizes(path, passes=passes, size=limit).transformed == MORE


def test_a_bound_of_a_size_that_cannot_be_lowered_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "row.nacre").write_text("language 1\nmodel row(x: f32[5], i: i64) -> f32[] { return gather(x, i) }\n")
    with pytest.raises(nacre.DiagnosticError, match="unchecked indices remain after the passes"):
        sizes(tmp_path / "row.nacre", passes="dce", size=SizeBound(1e6, relative=False))


def test_a_bounded_model_computes_the_same(path: Path, tmp_path: Path) -> None:
    plain, bounded = (
        nacre.compile(path, tmp_path / f"{number}.so", size=size) for number, size in enumerate((None, "1.1x"))
    )
    assert bounded.describe()["weights"]["bytes"] <= 1.1 * PARAMETERS < plain.describe()["weights"]["bytes"]
    x = np.random.default_rng(5).standard_normal((1, 32, 28, 28)).astype(np.float32)
    expected = plain(x)
    assert np.abs(bounded(x) - expected).max() <= 2e-5 * np.abs(expected).max()


def test_a_bound_that_cannot_hold_is_a_fault(path: Path) -> None:
    with pytest.raises(nacre.DiagnosticError, match=r"the weights take at least .* kB, the bound is `0\.5x`"):
        sizes(path, size=parse_bound("0.5x"))


def test_a_bound_that_is_nearly_met_is_told_in_bytes() -> None:
    error = too_large(WeightSizes(589_824, 589_824, ()), parse_bound("589820B"))
    assert "the weights take at least 589,824 B, the bound is 589,820 B" in str(error)


@pytest.mark.parametrize("text", ["", "x", "0x", "-1x", "500", "1.2 X", "3 MiBs", "1e3B", "9" * 400 + "x"])
def test_bounds_are_checked(text: str) -> None:
    with pytest.raises(nacre.DiagnosticError, match="is not a size bound"):
        parse_bound(text)


def test_bounds_are_read() -> None:
    assert parse_bound("1.5x") == SizeBound(1.5, relative=True)
    assert parse_bound("500 MiB") == SizeBound(500 * 2**20, relative=False)
    assert parse_bound(str(SizeBound(1.25, relative=True))) == SizeBound(1.25, relative=True)
    assert parse_bound(str(SizeBound(500 * 2**20, relative=False))) == SizeBound(500 * 2**20, relative=False)


def test_weights_that_no_library_can_hold_are_refused_before_code_is_generated(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assemble, "_EMBEDDED_LIMIT", PARAMETERS // 2)
    monkeypatch.setattr(CodeGenerator, "compile_kernels", lambda *_: pytest.fail("code is generated"))
    with pytest.raises(nacre.DiagnosticError, match="do not fit into a shared library"):
        nacre.compile(path, tmp_path / "net.so")
