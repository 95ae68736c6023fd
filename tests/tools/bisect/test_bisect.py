"""`nacre bisect` blames the rewrite, the line, the kernel; what it writes shows the fault and no other."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nacre.compiler.cli.main import run
from nacre.compiler.lower.packing import Packing
from nacre.compiler.tools.bisect.failures import Examiner
from nacre.dialect.types import Array
from nacre.passes.registry import PASSES
from planted.faults import FAULTS
from planted.planted import Planted
from planted.planting import plant, write_model

pytestmark = pytest.mark.usefixtures("unchecked")

Run = Any


@pytest.fixture
def nacre(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line in this process; gives the exit code and what it printed."""

    def call(*arguments: str | Path) -> tuple[int, str]:
        capsys.readouterr()
        code = run([str(a) for a in arguments])
        captured = capsys.readouterr()
        return code, captured.out or captured.err

    return call


UNSEEN = "missing-mask"
"""What is stored beyond the end of a row is stored over by the next: no number shows it."""


CHECKED_ALONE = {"repeated-vector", "rows-twice", "lost-power"}
"""Faults of large sizes and of memory that `--check-passes` alone is asked to blame, in tests/checking."""
IN_RUNTIME = [fault for fault in FAULTS.values() if fault.stage == "runtime"]
ONLY_NAMED = (
    *("lost-sign", "least-maximum", "denormal-reciprocal", "odd-nan", "short-reduction", "wrong-in-call"),
    *("lost-vector", "sampled-sizes", "lost-frame", "no-memory", "shared-weight"),
)
NAMED = [*IN_RUNTIME, *(FAULTS[name] for name in ONLY_NAMED)]
"""Faults of the runtime, of special numbers, of sizes, of weights and of addresses: they are named, and no smaller
model is looked for."""
BISECTED = [fault for fault in FAULTS.values() if fault.name not in CHECKED_ALONE and fault not in NAMED]


def first_of_stages(faults: Iterable[Planted]) -> frozenset[str]:
    """The name of one fault of each stage."""
    return frozenset({fault.stage: fault.name for fault in faults}.values())


FIRST = first_of_stages(BISECTED) | first_of_stages(NAMED) | {fault.name for fault in IN_RUNTIME} | {UNSEEN}
"""The faults that are bisected by default; `--check-passes` finds all of them in tests/validate."""


def leave_out_further_ones(fault: Planted, request: pytest.FixtureRequest) -> None:
    if fault.name not in FIRST and not request.config.getoption("--variants"):
        pytest.skip("a further fault of a stage; --variants bisects all of them")


@pytest.mark.parametrize("fault", BISECTED, ids=lambda fault: fault.name)
def test_a_planted_fault_is_blamed_and_shown(
    fault: Planted, tmp_path: Path, nacre: Run, request: pytest.FixtureRequest
) -> None:
    leave_out_further_ones(fault, request)
    model, small = write_model(fault, tmp_path), tmp_path / "small.nacre"
    with plant(fault, tmp_path / "cache"):
        code, said = nacre("bisect", model, "--target", fault.target or "native", "-o", small, "--json")
        assert code == 1, said
        report = json.loads(said)
        culprit = report["culprit"]
        assert culprit["stage"] == fault.stage, said
        assert f"{model}:{fault.line}" in culprit["at"], said
        # A write beyond the end of a tensor is seen in guarded memory, before it can end the process.
        assert report["failure"]["kind"] == ("memory" if fault.name == UNSEEN else "numbers")
        assert report["nodes"] <= 6, small.read_text()
        assert (culprit["rewrite"] is not None) == (fault.stage in PASSES)
        if culprit["rewrite"] is not None:
            assert culprit["error_after"] > 100 * culprit["error_before"]
        if fault.name == UNSEEN:
            code, said = nacre("bisect", small, "-o", tmp_path / "again.nacre")
            assert code == 1 and "a kernel alone" in said, said
        else:
            code, said = nacre("test", small, "--target", fault.target or "native")
            assert code == 1 and "1 passed, 1 failed" in said, said
    code, said = nacre("test", small, "--no-cache")
    assert code == 0, said


@pytest.mark.parametrize("fault", NAMED, ids=lambda fault: fault.name)
def test_a_planted_fault_is_blamed(fault: Planted, tmp_path: Path, nacre: Run, request: pytest.FixtureRequest) -> None:
    """No test of a model shows the sign of a zero, nor a fault of the runtime."""
    leave_out_further_ones(fault, request)
    model, small = write_model(fault, tmp_path), tmp_path / "small.nacre"
    sizes = ("--at", "B=3") if fault in IN_RUNTIME else ()
    sizes += ("--size", fault.size) if fault.size is not None else ()
    with plant(fault, tmp_path / "cache"):
        code, said = nacre("bisect", model, *sizes, "--effort", "0", "-o", small, "--json")
    assert code == 1, said
    culprit = json.loads(said)["culprit"]
    assert culprit["stage"] == fault.stage and f"{model}:{fault.line}" in culprit["at"], said


@pytest.mark.parametrize("name", ["lost-sign", "least-maximum", "odd-nan"])
def test_a_small_model_shows_a_sign_or_a_special_number(name: str, tmp_path: Path, nacre: Run) -> None:
    """Its test fails with the fault and passes without it."""
    fault = FAULTS[name]
    model, small = write_model(fault, tmp_path), tmp_path / "small.nacre"
    with plant(fault, tmp_path / "cache"):
        code, said = nacre("bisect", model, "-o", small)
        assert code == 1, said
        assert (" signed" in small.read_text()) == (name == "lost-sign"), small.read_text()
        code, said = nacre("test", small)
        assert code == 1 and "1 passed, 1 failed" in said, said
    code, said = nacre("test", small, "--no-cache")
    assert code == 0, said


RELU = "dim B in 1..4\n\nmodel f(x: f32[B, 3]) -> y: f32[B, 3] {\n  return relu(x * 2)\n}\n"


@pytest.fixture
def relu(tmp_path: Path) -> Path:
    path = tmp_path / "relu.nacre"
    path.write_text(RELU)
    np.save(tmp_path / "x.npy", np.array([[1, -2, 3]], np.float32))
    return path


def test_nothing_is_blamed_where_nothing_is_wrong(relu: Path, nacre: Run) -> None:
    code, said = nacre("bisect", relu, "--against", "-O0")
    assert code == 0 and said.startswith("no error found"), said
    assert nacre("bisect", relu, "--input", f"x={relu.parent / 'x.npy'}", "--json") == (0, '{\n  "culprit": null\n}\n')
    assert not (relu.parent / "relu.small.nacre").exists()


def test_a_reference_that_the_source_contradicts_blames_no_stage(relu: Path, nacre: Run) -> None:
    given = ("--input", f"x={relu.parent / 'x.npy'}")
    np.savez(relu.parent / "right.npz", y=np.array([[2, 0, 6]], np.float32))
    np.savez(relu.parent / "wrong.npz", y=np.array([[2, -4, 6]], np.float32))
    np.savez(relu.parent / "other.npz", z=np.array([[2, -4, 6]], np.float32))
    assert nacre("bisect", relu, *given, "--reference", relu.parent / "right.npz")[0] == 0
    code, said = nacre("bisect", relu, *given, "--reference", relu.parent / "wrong.npz")
    assert code == 1 and "error[other-reference]" in said and "-4 at [0, 1], expected 0" in said, said
    code, said = nacre("bisect", relu, *given, "--reference", relu.parent / "other.npz")
    assert code == 1 and "error[bad-reference]" in said, said
    assert nacre("bisect", relu, "--reference", relu.parent / "right.npz")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--input", "x=[[1, 2]]"), "expected size 3"),
        (("--input", "y=[[1, 2, 3]]"), "unknown y"),
        (("--input", "x=[1, 2, 3]"), "`x` is f32[B, 3], not f32[3]"),
        (("--at", "B=9"), "`B` cannot be 9"),
        (("--entry", "g"), "the file has the models f"),
        (("--against", "O7"), "`O7` is not an optimisation level"),
        (("--target", "portable"), "give one target"),
    ],
)
def test_a_wrong_command_line_is_an_error(arguments: tuple[str, ...], said: str, relu: Path, nacre: Run) -> None:
    code, text = nacre("bisect", relu, *arguments)
    assert code == 2 and said in text, text


def test_a_rewrite_limit_stops_the_passes(tmp_path: Path, nacre: Run) -> None:
    path = tmp_path / "twice.nacre"
    path.write_text("model f(x: f32[4]) -> f32[4] {\n  y = x * 1\n  return y + 0\n}\n")
    counts = [
        nacre("dump", path, "--stage", "canonicalize", "--rewrite-limit", str(limit))[1].count("multiply(")
        for limit in (0, 1)
    ]
    assert counts == [1, 0]


@pytest.mark.parametrize("how", ["raises", "short"])
def test_packing_that_fails_is_blamed(how: str, tmp_path: Path, nacre: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only wrong numbers: a weight that cannot be packed at all ends no command with a traceback."""
    pack = Packing.__call__

    def wrong(self: Packing, data: Array) -> Array:
        if how == "raises":
            raise ValueError("these do not fit")
        return pack(self, data)[:-1]

    monkeypatch.setenv("NACRE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Packing, "__call__", wrong)
    fault = FAULTS["wrong-packing"]
    model = write_model(fault, tmp_path)
    code, said = nacre("bisect", model, "-o", tmp_path / "small.nacre", "--effort", "0", "--json")
    assert code == 1, said
    report = json.loads(said)
    assert report["culprit"]["stage"] == "pack" and f"{model}:{fault.line}" in report["culprit"]["at"], said
    assert "cannot be packed" in report["culprit"]["message"]


@pytest.mark.parametrize("seconds", ["1e-9", "0.001"])
def test_a_limit_that_no_attempt_keeps_is_named(
    seconds: str, relu: Path, nacre: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child may be ended before its first message. It waits, since it could answer while its parent gets no time."""

    def late(self: Examiner, *given: Any) -> Any:
        time.sleep(5)
        return attempt(self, *given)

    attempt = Examiner.attempt
    monkeypatch.setattr(Examiner, "attempt", late)
    code, said = nacre("bisect", relu, "--timeout", seconds, "--effort", "0", "--json")
    assert code == 1 and f"no answer within {float(seconds):g} seconds" in said, said


def test_code_that_cannot_run_here_is_refused(tmp_path: Path, nacre: Run) -> None:
    model = write_model(FAULTS["wrong-packing"], tmp_path)
    code, said = nacre("bisect", model, "--target", "bdver2")
    assert code == 2 and "this machine cannot run code for `bdver2`" in said
