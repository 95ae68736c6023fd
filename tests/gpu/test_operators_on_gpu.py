"""Every operator on a GPU, as translated PTX: results agree with the references, and ptxas accepts the code.

The kernels of each operator are assembled in all its dtypes, and run in its most typical one and in other floats.
`run.py` packs those of all dtypes, to run on a chip.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import nacre
import numpy as np
import pytest
from assembler import find_faults, ptx_of, symbols_in
from fake_driver import Machine
from joined_texts import run_joined, write_texts
from nacre.compiler.base.environment import CHECK_PASSES
from nacre.compiler.model.source import SourceModel
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets
from nacre.dialect.graph import Function, Module
from nacre.dialect.operator import Operator
from nacre.dialect.types import BF16, F16, F64

sys.path.append(str(Path(__file__).parents[1] / "operators"))
from operator_harness import DEVICE_PASSES, TESTED, Example
from test_compiled import symbolic_uses, typical, uses

GROUP = 8
GROUPS = [TESTED[i : i + GROUP] for i in range(0, len(TESTED), GROUP)]
CHECKED = {"minimum", "layer_norm", "gather"}
"""The groups with these operators are built as models are, one kernel to an object. The stages of these builds are
checked, where a run checks builds: the tests of operators check those of the others."""
Uses = dict[str, tuple[Function, Example]]


def choose(group: tuple[Operator, ...], *, everything: bool = False) -> tuple[Uses, Uses]:
    """Returns what runs: the cases of each operator in its most typical dtype, one in each other float, and one with
    dims. Then those in other dtypes: all in the typical ones, and one in each other dtype, or `everything`."""
    kept: Uses = {}
    others = uses(group, everything=True) if everything else {}
    for name, use in uses(group, everything=False).items():
        item = use[1]
        is_run = item.dtype is typical(item.operator, item)[0] or item.dtype in (F16, BF16, F64)
        (kept if is_run else others)[name] = use
    return kept | symbolic_uses(group, 1), {name: use for name, use in others.items() if name not in kept}


def begin(found: Uses) -> Build:
    dims = {symbol for function, _ in found.values() for symbol in function.symbols()}
    module = Module("operators", tuple(sorted(dims, key=str)), functions=tuple(f for f, _ in found.values()))
    source = SourceModel(module, "operators.graph", dict.fromkeys(found))
    return Build(source, Options(targets=parse_targets("cuda:sm_80"), passes=DEVICE_PASSES))


@dataclass(frozen=True)
class Built:
    """The kernels of a group, their artifact, and the uses in other dtypes, which do not run."""

    uses: Uses
    texts: Sequence[str]
    path: Path
    others: Uses


@pytest.fixture(scope="module", params=GROUPS, ids=[f"{group[0].name}..{group[-1].name}" for group in GROUPS])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A group, built once for all tests."""
    group: tuple[Operator, ...] = request.param
    found, others = choose(group, everything=request.config.getoption("--variants"))
    build = begin(found)
    path = tmp_path_factory.mktemp("operators") / "operators.so"
    if any(operator.name in CHECKED for operator in group):
        build.run(path)
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv(CHECK_PASSES, raising=False)
            run_joined(build, path)
    return Built(found, ptx_of(path), path, others)


def call(model: nacre.Model, name: str, item: Example) -> str | None:
    """Returns a description of the difference to the reference; None if there is none."""
    results = model.entries[name](*item.arrays)
    results = results if isinstance(results, tuple) else (results,)
    return item.disagreement([np.asarray(result) for result in results], item.expected)


def test_operators_agree_with_their_references(machine: Machine, built: Built) -> None:
    found, model = built.uses, nacre.load(built.path, device="cuda")
    failures = []
    for name, (function, item) in found.items():
        if item.operator.has("checking"):
            continue
        message = call(model, name, item)
        failures += [f"{name} {item} as {function.arguments}: {message or machine.error}"] if message else []
    assert not failures, f"{len(failures)} of {len(found)} differ:\n" + "\n".join(failures[:20])
    assert machine.launches and not machine.error
    del model
    gc.collect()
    assert machine.left == 0


def test_kernels_are_assembled(built: Built, assembled: Path, request: pytest.FixtureRequest) -> None:
    """The kernels of all dtypes have no calls, and no registers in memory. Where none can be there, the fastest level
    of ptxas is enough."""
    assert len(symbols_in(built.texts)) > len(built.uses) / 3
    everywhere = request.config.getoption("--variants")
    others = write_texts(begin(built.others), symbols_in(built.texts)) if built.others else []
    assert find_faults([*built.texts, *others], assembled, "sm_80", everywhere=everywhere) == []


def test_operations_after_dependent_steps(machine: Machine, tmp_path: Path) -> None:
    """The decomposition of one number ends with operations on whole tensors, in the launch of one thread."""
    text = """language 1
    model m(x: f32[1, 1]) -> u: f32[1, 1], s: f32[1], vh: f32[1, 1] {
      u, s, vh = svd(x)
      return u, s, vh
    }
    """
    nacre.compile(text, tmp_path / "svd.so", target="cuda:sm_80")
    model = nacre.load(tmp_path / "svd.so", device="cuda")
    u, s, vh = model(np.full((1, 1), -3, np.float32))
    assert machine.launches and not machine.error
    assert s == 3 and abs(u * s * vh + 3) < 1e-6


def test_position_in_an_empty_axis_is_refused(machine: Machine, tmp_path: Path) -> None:
    text = "language 1\ndim N in 0..9\nmodel best(x: f32[3, N]) -> i64[3] { return argmax(x, axis=1) }\n"
    nacre.compile(text, tmp_path / "best.so", target="cuda:sm_80")
    model = nacre.load(tmp_path / "best.so", device="cuda")
    with pytest.raises(
        nacre.NacreError, match=r"needs N >= 1 for `argmax` at .*:3:45, which does not hold for `N` = 0"
    ):
        model(np.zeros((3, 0), np.float32))
    assert not machine.launches
    assert model(np.eye(3, 5, 1, dtype=np.float32)).tolist() == [1, 2, 3]


def test_rows_of_groups_are_not_those_of_channels(machine: Machine, tmp_path: Path) -> None:
    """The mean of a group is copied to its channels. A row of the copies is a channel, and not the row of a group."""
    text = """language 1
    model m(x: f32[16, 31, 3], a: f32[31], b: f32[31]) -> f32[16, 31, 3] { return group_norm(x, a, b, groups=1) }
    """
    nacre.compile(text, tmp_path / "groups.so", target="cuda:sm_80")
    rng = np.random.default_rng(7)
    x, a, b = (rng.normal(size=size).astype(np.float32) for size in ((16, 31, 3), 31, 31))
    y = np.asarray(nacre.load(tmp_path / "groups.so", device="cuda")(x, a, b))
    assert machine.launches and not machine.error
    wide = x.astype(np.float64)
    mean, deviation = (f(wide, axis=(1, 2), keepdims=True) for f in (np.mean, np.var))
    expected = (wide - mean) / np.sqrt(deviation + 1e-5) * a[:, None] + b[:, None]
    assert np.max(np.abs(y - expected)) < 1e-5
