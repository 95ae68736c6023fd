"""The bench itself: its workloads are right, its twins compute what the models do, and it refuses what it must."""

from __future__ import annotations

import hashlib
import importlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import measure
import nacre
import numpy as np
import pytest
from compare import Look, Setting, _error, run, select
from machine import Probe
from measure import Contender, NoQuietMomentError, Plan, interleave, summarize
from peers import PEERS, ours
from prepare import prepare
from report import _table, format_reports
from thread_clocks import seconds_by_thread
from workloads import all_workloads
from workloads.kernels import gemm, gemv_chain
from workloads.low_precision import in_precision
from workloads.precision import INT4, INT4A8, INT8, INT8_STATIC

WORKLOADS = all_workloads()
SMALL = ("gemm-gelu-37x200x129", "softmax-8x32000", "layernorm-1x384", "attention-t128-12x32-causal")
SMALL += ("attention-operator-t128-12x32-causal", "conv1x1-7x2048x512", "depthwise-14x512", "digits-b64", "call-python")


@pytest.mark.parametrize("name", WORKLOADS)
def test_text_is_free_of_faults(name: str, tmp_path: Path) -> None:
    workload = WORKLOADS[name]
    texts = {"model.nacre": workload.text, **workload.files}
    texts |= {f"variant{i}.nacre": text for i, text in enumerate(workload.variants.values())}
    for file, text in texts.items():
        (tmp_path / file).write_text(text)
    faults = [nacre.check(tmp_path / file) for file in texts if file.endswith(".nacre")]
    assert not any(faults), faults


def test_patterns_select() -> None:
    def refuse(message: str) -> None:
        raise ValueError(message)

    assert select(["gemm-gelu-37*", "digits-b1"], WORKLOADS, refuse) == ["gemm-gelu-37x200x129", "digits-b1"]
    assert select([], WORKLOADS, refuse) == list(WORKLOADS)
    with pytest.raises(ValueError, match="no workload is called gem-"):
        select(["gem-*"], WORKLOADS, refuse)


def test_static_text_has_no_symbols(tmp_path: Path) -> None:
    model = prepare(WORKLOADS["digits-b1"], tmp_path)
    assert dict(model.dims) == {"B": 1}
    static = WORKLOADS["minilm-b1-t7-static"].text
    assert "dim " not in static and "T = 7\n" in static and "budget" not in static


@pytest.mark.parametrize("peer", ["onnxruntime", "torch"])
@pytest.mark.parametrize("name", SMALL)
def test_twin_computes_the_same(name: str, peer: str, tmp_path: Path) -> None:
    if missing := PEERS[peer].missing():
        pytest.skip(f"{', '.join(missing)} is not installed")
    model = prepare(WORKLOADS[name], tmp_path)
    assert model.error(PEERS[peer].load()(model, 1).results()) < 2e-6


QUANTIZED = {
    # Of normal numbers: a code of 8 bits is off by up to 1/250 of the largest one, one of 4 bits by 1/16.
    "dynamic": (gemm(37, 192, 129), INT8, 0.02),
    "static": (gemm(37, 192, 129), INT8_STATIC, 0.03),
    "blocks": (gemv_chain(1, 64, 96), INT4, 0.2),
    "blocks-of-codes": (gemv_chain(1, 64, 96), INT4A8, 0.2),
}


@pytest.mark.parametrize("form", QUANTIZED)
def test_quantized_twin_is_near(form: str, tmp_path: Path) -> None:
    peer = PEERS["onnxruntime"]
    if missing := peer.missing():
        pytest.skip(f"{', '.join(missing)} is not installed")
    workload, precision, bound = QUANTIZED[form]
    model = prepare(in_precision(workload, precision), tmp_path)
    error = model.error(peer.load()(model, 1).results())
    assert (tmp_path / f"{form}.onnx").exists()
    # It is in fewer bits, and the model all the same.
    assert bound / 50 < error < bound


def test_codes_of_blocks_stand_for_the_weights() -> None:
    pytest.importorskip("onnxruntime")
    pack = importlib.import_module("twins.onnx_quantized").pack_blocks
    steps = np.random.default_rng(0).integers(-7, 8, (64, 3)).astype(np.float32)
    steps[[5, 40]] = -8.0
    codes, scales = pack(steps * 0.25)
    assert codes.shape == (3, 2, 16) and np.all(scales == 0.25)
    both = np.stack([codes & 15, codes >> 4], axis=-1).reshape(3, 64).T
    assert np.array_equal(both.astype(np.float32) - 8, steps)


def test_fewer_bits_are_less_to_read(tmp_path: Path) -> None:
    model = prepare(in_precision(gemm(37, 192, 129), INT8), tmp_path)
    assert model.bytes == 4 * (37 * 192 + 37 * 129) + 192 * 129


def test_costs_are_counted(tmp_path: Path) -> None:
    model = prepare(WORKLOADS["gemm-37x200x129"], tmp_path)
    assert model.operations == 2 * 37 * 200 * 129
    assert model.bytes == 4 * (37 * 200 + 200 * 129 + 37 * 129)


def test_wrong_results_are_found(tmp_path: Path) -> None:
    model = prepare(WORKLOADS["call-python"], tmp_path)
    (right,) = model.expected
    for result, fails in ((right, False), (right * 1.01, True), (right * np.nan, True), (right[:0], True)):
        failures: dict[str, str] = {}
        _error(model, Contender("x", lambda result=result: result, lambda r: [r]), failures)
        assert bool(failures) == fails


@dataclass
class Clock:
    """Replaces the module `time`: `sleep` advances the clock and returns immediately."""

    now: float = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(measure, "time", made)
    return made


def sleeper(name: str, seconds: float) -> Contender:
    return Contender(name, lambda: measure.time.sleep(seconds), lambda _: [])


def test_times_are_compared_round_by_round(clock: Clock) -> None:
    times = interleave([sleeper("a", 0.005), sleeper("b", 0.05)], Plan(3, 0.01), lambda: 1.0)
    assert times.void == 0 and [len(t) for t in times.seconds.values()] == [3, 3]
    assert summarize(times.seconds, "a")["b"].ratio == pytest.approx(10)
    # Two calls to estimate; then, in each round, a pause, a call to warm up, and the calls of the slot.
    assert clock.now == pytest.approx(2 * 0.055 + 3 * (2 * measure.PAUSE + 0.005 * (1 + 2) + 0.05 * (1 + 1)))
    assert times.least() == pytest.approx({"a": 0.005, "b": 0.05})
    drift = summarize({"a": [1.0, 2.0, 4.0], "b": [2.0, 4.0, 8.0]}, "a")["b"]
    assert (drift.ratio, drift.ratio_p10, drift.ratio_p90) == (2, 2, 2)


def test_the_shortest_round_counts(clock: Clock) -> None:
    rounds = iter([0.4, 0.4, 0.3, 0.1, 0.2])  # two calls to estimate, then a call in each round
    contender = Contender("a", lambda: None, lambda _: [], lambda count: count * next(rounds))
    assert interleave([contender], Plan(3, 0.0)).least() == {"a": 0.1}


def test_cpu_time_is_that_of_the_busiest_thread_or_of_all() -> None:
    data = bytes(1 << 20)

    def work() -> None:
        for _ in range(4):
            hashlib.sha256(data).digest()

    with ThreadPoolExecutor(2) as pool:
        # Each task waits for the other one, so that both threads of the pool work.
        barrier = threading.Barrier(2)

        def both() -> None:
            list(pool.map(lambda _: (barrier.wait(), work()), range(2)))

        contender = Contender("x", both, lambda _: [])
        times = interleave(
            [replace(contender.timed_by_threads(each), name=each.__name__) for each in (max, sum)], Plan(3, 0.0)
        ).seconds
    alone = min(seconds_by_thread(work)[0] for _ in range(3))
    assert min(times["max"]) >= 0.5 * alone
    assert min(times["sum"]) >= 1.5 * min(times["max"])


def test_void_rounds_do_not_count() -> None:
    looks = iter([None, 1.0, None, 1.0, 1.0])
    assert interleave([sleeper("a", 0)], Plan(1, 0.001), lambda: next(looks)).void == 2
    with pytest.raises(NoQuietMomentError):
        interleave([sleeper("a", 0)], Plan(1, 0.001), lambda: None)


def setting(cores: tuple[int, ...]) -> Setting:
    rates = {"small pages": 1.0, "huge pages": 1.0}
    return Setting(len(cores), Plan(1, 0.001), Probe(cores), [], {"opt_level": 2}, 1.0, rates, strict=False)


def test_two_threads_on_one_core_are_refused() -> None:
    core = min(os.sched_getaffinity(0))
    assert Look(setting((core,)))() is not None
    # A slot is so short that the two may run one after the other in it.
    assert any(Look(setting((core, core)))() is None for _ in range(20))


@pytest.mark.parametrize("name", ["call-python", "call-c"])
def test_a_run_is_reported(name: str, tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    report = run(WORKLOADS[name], setting((core,)), tmp_path)
    assert report["errors"][ours.NAME] < 1e-6 and report["timings"][ours.NAME]["ratio"] == 1
    machine = {"processor": "p", "peak": 1.0, "bandwidth": {"small pages": 1.0, "huge pages": 1.0}}
    document = {"threads": 1, "quick": True, "options": {}, "machine": machine, "versions": {}, "missing": {"q": ["r"]}}
    text = format_reports([{**document, "reports": [report]}])
    assert f"| {name} | " in text and "q is not installed: r" in text


@pytest.mark.parametrize(
    ("own", "peers", "best"),
    [
        (0.02, (0.016, 0.3), "**1.50**"),  # who is further off than we counts
        (0.0201, (0.016, 0.3), "void"),
        (9e-6, (1e-7, 1e-7), "**1.50**"),  # of results that are as exact as f32 none is worse
    ],
)
def test_a_time_counts_only_if_the_result_is_as_near_as_the_nearest(
    own: float, peers: tuple[float, float], best: str
) -> None:
    one = {"median": 1.0, "p10": 1.0, "p90": 1.0}
    report = {
        "workload": "w",
        "share": None,
        "timings": {"nacre": {**one, "ratio": 1}, "a": {**one, "ratio": 2.0}, "b": {**one, "ratio": 1.5}},
        "errors": {"nacre": own, "a": peers[0], "b": peers[1]},
        "failures": {},
    }
    *_, line = _table([report])
    assert line.split(" | ")[4] == best
