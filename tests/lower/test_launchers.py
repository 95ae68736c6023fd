"""How an entry runs kernels of many units: whole where there is no team, in pieces where there is one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from nacre.compiler.artifact.assemble import build_artifact
from nacre.compiler.artifact.link import find_linker
from nacre.compiler.artifact.spec import ArgumentSpec, ArtifactSpec, EntrySpec
from nacre.compiler.codegen.llvm.machine import Machine, Options, Pipeline
from nacre.compiler.host.entry import Call, declare, write_entry
from nacre.compiler.host.launchers import Signature
from nacre.compiler.lower.storage import Input, Output, Unused, Workspace
from nacre.compiler.targets.target import Target
from nacre.dialect.dims import Symbol
from nacre.dialect.types import F32, I64, TensorType
from nacre.runtime.loader import load

N = Symbol("N", 0)
# `twice` has a unit for each element, `sum` one; `ranges` says for each unit whether it came with all others.
KERNELS = """
#include <stdint.h>
int64_t twice_items(int64_t n) { return n; }
void twice(int64_t n, const float *x, float *y, void *nothing, int64_t begin, int64_t end) {
    (void)n;
    if (nothing) return;
    for (int64_t i = begin; i < end; i++) {
        float v = x[i];
        for (int k = 0; k < 2000; k++) v = v * 0.5f + x[i] * 0.5f;
        y[i] = 2 * v;
    }
}
int64_t sum_items(int64_t n) { (void)n; return 1; }
void sum(int64_t n, const float *x, float *y, int64_t begin, int64_t end) {
    *y = 0;
    for (int64_t i = 0; i < n && begin == 0 && end == 1; i++) *y += x[i];
}
int64_t ranges_items(int64_t n) { return n; }
void ranges(int64_t n, int64_t *y, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        volatile float v = 1;
        for (int k = 0; k < 2000; k++) v = v * 0.5f;
        y[i] = end - begin == n;
    }
}
"""
CALLS = (
    Call("twice", (N,), (Input(0), Workspace(0), Unused()), "two inputs"),
    Call("sum", (N,), (Workspace(0), Output(0)), "one unit"),
    Call("ranges", (N,), (Output(1),), "no input"),
    Call("twice", (N,), (Workspace(0), Output(2), Unused()), "a kernel that ran before"),
)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("launchers")
    (folder / "kernels.c").write_text(KERNELS)
    command = [*find_linker().command, "-O1", "-fPIC", "-c", "kernels.c"]
    subprocess.run(command, cwd=folder, check=True)
    machine = Machine(Target(), Options())
    module = machine.parse("\n".join([declare(CALLS), write_entry("nacre_entry_main", (N,), CALLS)]))
    machine.optimize(module, Pipeline.LOOPS)
    size = N.size
    entry = EntrySpec(
        "main",
        "nacre_entry_main",
        (ArgumentSpec("x", TensorType(F32, (size,))),),
        (
            ArgumentSpec("sum", TensorType(F32)),
            ArgumentSpec("whole", TensorType(I64, (size,))),
            ArgumentSpec("y", TensorType(F32, (size,))),
        ),
        (N,),
        4 * size,
    )
    objects = [machine.emit_object(module), (folder / "kernels.o").read_bytes()]
    return build_artifact(ArtifactSpec("launchers", (entry,)), objects, folder / "m.so")


def test_kernels_with_as_many_dims_and_tensors_share_a_launcher() -> None:
    """The time of LLVM grows with the number of functions."""
    text = declare(CALLS)
    assert [text.count(f"@{Signature(1, count).launcher}") for count in (3, 2, 1)] == [1, 1, 1]
    other = declare([*CALLS, Call("other", (N,), (Output(0), Output(1), Output(2)))])
    assert other.count("define") == text.count("define") == 6


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("count", [0, 1, 2, 500])
def test_every_unit_is_computed(artifact: Path, threads: int, count: int) -> None:
    model = load(artifact, threads=threads)
    x = np.arange(count, dtype=np.float32)
    for _ in range(3):
        total, _, y = model(x)
        assert np.array_equal(y, 4 * x) and total == (2 * x).sum()


def test_one_thread_gets_all_units_at_once(artifact: Path) -> None:
    _, whole, _ = load(artifact, threads=1)(np.ones(500, np.float32))
    assert whole.all()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_a_team_gets_pieces(artifact: Path, tmp_path: Path) -> None:
    """In a copy, where no kernel has run: the first unit is timed by itself."""
    _, whole, _ = load(shutil.copy(artifact, tmp_path), threads=2)(np.ones(500, np.float32))
    assert not whole.any()
