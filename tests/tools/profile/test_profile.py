"""Profiles: parts add up to the whole, and are where they should be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.compiler.tools.profile.machine import Peak
from nacre.compiler.tools.profile.profile import KernelTime, Profile, profile_entry
from nacre.compiler.tools.profile.trace import trace_events
from nacre.runtime.observe import Operation
from saving import save_npz

X = np.random.default_rng(0).normal(size=(8, 100, 32)).astype(np.float32)


@pytest.fixture(scope="module", params=[1, 2])
def threads(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.fixture(scope="module")
def profile(artifact: Path, threads: int) -> Profile:
    model = nacre.load(artifact, threads=threads)
    return profile_entry(model, model.entries["main"], [X], threads, 0.1)


def test_kernels_add_up(profile: Profile, threads: int) -> None:
    assert profile.dims == {"B": 8, "T": 100} and profile.runs >= 3
    kernels = profile.kernels()
    total = sum(k.seconds for k in kernels)
    assert 0 < total <= profile.seconds and profile.outside == pytest.approx(profile.seconds - total)
    assert [k.seconds for k in kernels] == sorted((k.seconds for k in kernels), reverse=True)
    assert sum(k.calls for k in kernels) == len(profile.calls) >= 4
    # Two layers' products, and the scores.
    assert sum(k.flops for k in kernels) >= 2 * 8 * 100 * 32 * (2 * 32 + 100)
    assert all(1 <= k.threads <= threads and 0 < k.balance <= 1 for k in kernels)


def test_lines_add_up(profile: Profile) -> None:
    lines = profile.lines()
    assert sum(line.seconds for line in lines) == pytest.approx(sum(c.seconds for c in profile.calls))
    assert sum(line.flops for line in lines) == sum(k.flops for k in profile.kernels())
    by_line = {line.at: line.operators for line in lines}
    assert {"m.nacre:6", "m.nacre:14"} <= set(by_line)
    assert {"matmul", "tanh", "layer_norm"} <= set(by_line["m.nacre:6"])
    assert {"softmax", "matmul"} <= set(by_line["m.nacre:14"])


def test_a_model_that_copies_has_a_profile(artifact: Path) -> None:
    model = nacre.load(artifact)
    profile = profile_entry(model, model.entries["other"], [np.ones(4, np.float32)], 2, 0.0)
    assert profile.runs == 3 and [k.kind for k in profile.kernels()] == ["copy"]
    assert [line.at for line in profile.lines()] == ["?"]


@pytest.mark.parametrize(
    ("flops", "size", "bound"),
    [
        (900, 10, "compute"),
        (100, 70, "memory"),
        (100, 170, "caches"),
        (100, 20, "neither"),
        (0, 0, "neither"),
    ],
)
def test_the_bound_of_a_kernel(flops: int, size: int, bound: str) -> None:
    kernel = KernelTime("k", "rows", 1, 1.0, flops, size, 1.0, 1.0, (Operation("exp", "", None, 0),))
    assert kernel.bound(Peak(1000, 100)) == bound
    assert (kernel.compute(Peak(1000, 100)), kernel.bandwidth(Peak(1000, 100))) == (flops / 1000, size / 100)


INT8 = """model main(x: u8[64, 128]) -> y: f32[64, 64] {
  weights "w.npz"
  param weight: i8[128, 64]
  return cast(matmul(x, weight, into=i32), f32) * 0.01
}
"""


def test_products_of_narrow_dtypes_have_their_own_peak(tmp_path: Path) -> None:
    save_npz(tmp_path / "w.npz", {"weight": np.ones((128, 64), np.int8)})
    (tmp_path / "m.nacre").write_text(INT8)
    model = nacre.compile(tmp_path / "m.nacre", tmp_path / "a.so")
    message = profile_entry(model, model.entries["main"], [np.ones((64, 128), np.uint8)], 1, 0.0).kernels()
    (kernel,) = (k for k in message if k.products)
    assert kernel.products == {"i8": 2 * 64 * 128 * 64}
    plain, narrow = Peak(1e9, 1e10), Peak(1e9, 1e10, {"i8": 4e9, "bf16": 2e9})
    others = kernel.flops - kernel.products["i8"]
    assert kernel.ideal(plain) == pytest.approx(kernel.flops / 1e9)
    assert kernel.ideal(narrow) == pytest.approx(kernel.products["i8"] / 4e9 + others / 1e9)


def test_trace(profile: Profile, threads: int) -> None:
    trace: Any = json.loads(json.dumps(trace_events(profile.recording, ("other", "main"))))
    events = trace["traceEvents"]
    assert {e["ph"] for e in events} == {"X", "M"}
    complete = [e for e in events if e["ph"] == "X"]
    assert all({"name", "cat", "ts", "dur", "pid", "tid", "args"} <= set(e) and e["dur"] >= 0 for e in complete)
    assert min(e["ts"] for e in complete) == 0
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert {e["tid"] for e in complete} == set(names) and names[0] == "calls" and len(names) >= 2
    runs = [e for e in complete if e["cat"] == "call"]
    kernels = [e for e in complete if e["tid"] == 0 and e["cat"] != "call"]
    assert {e["name"] for e in runs} == {"main"} and len(kernels) == len(runs) * len(profile.calls)
    whole = {e["args"]["run"]: e for e in runs}
    assert len(whole) == len(runs) <= 50
    for e in kernels:
        outer = whole[e["args"]["run"]]
        # Times are rounded to a nanosecond, and then to floats.
        assert outer["ts"] - 1e-3 <= e["ts"] and e["ts"] + e["dur"] <= outer["ts"] + outer["dur"] + 1e-3
    assert all(0 < e["args"]["busy_us"] <= e["dur"] + 1e-3 for e in complete if e["tid"] > 0)
