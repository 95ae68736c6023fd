"""What the machine can do: measured once, kept by processor, and measured again where the file is damaged."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from nacre.compiler.tools.profile import machine
from nacre.compiler.tools.profile.machine import Peak, find_peak, measure_peak, processor, threads_of


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NACRE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NACRE_NO_CACHE", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For how many threads something was measured; each time it is faster."""
    asked: list[int] = []

    def measure(threads: int) -> Peak:
        asked.append(threads)
        return Peak(1e11 * len(asked), 1e10 * threads)

    monkeypatch.setattr(machine, "measure_peak", measure)
    return asked


def test_a_peak_is_measured_once(cache: Path, measured: list[int]) -> None:
    assert find_peak(1) == find_peak(1) == Peak(1e11, 1e10)
    assert find_peak(2) == Peak(2e11, 2e10)
    assert find_peak(1, anew=True) == find_peak(1) == Peak(3e11, 1e10)
    assert measured == [1, 2, 1]
    assert all(processor() in name for name in json.loads((cache / "peaks.json").read_text()))


@pytest.mark.parametrize("changed", ["__version__", "processor"])
def test_another_compiler_or_processor_has_another_peak(
    cache: Path, measured: list[int], monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    first = find_peak(1)
    with monkeypatch.context() as patch:
        patch.setattr(machine, changed, "another" if changed == "__version__" else lambda: "another")
        assert find_peak(1) != first
    assert find_peak(1) == first and measured == [1, 1]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"x": 1}', '{"x": {"flops": 1, "bytes": 1}}', '{"x": {"flops": 1}}'])
def test_a_damaged_file_is_replaced(cache: Path, measured: list[int], text: str) -> None:
    cache.mkdir()
    (cache / "peaks.json").write_text(text)
    assert find_peak(1) == find_peak(1)
    assert measured == [1]


def test_nothing_is_kept_where_no_cache_is_wanted(
    cache: Path, measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NACRE_NO_CACHE", "1")
    find_peak(1)
    find_peak(1)
    assert measured == [1, 1] and not cache.exists()


def test_the_peak_is_one_that_a_machine_can_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_SECONDS", 0.01)
    monkeypatch.setattr(machine, "_BUFFER", 1 << 24)
    peak = measure_peak(1)
    assert 1e9 < peak.flops < 1e13 and 1e8 < peak.bytes < 1e13
    assert set(peak.narrow) == {"bf16", "i8", "i16"} and peak.flops <= min(peak.narrow.values())
    assert peak.of("f32") == peak.of(None) == peak.flops and peak.of("i8") == peak.narrow["i8"]


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    cpus = len(os.sched_getaffinity(0))
    monkeypatch.delenv("NACRE_THREADS", raising=False)
    assert (threads_of(0), threads_of(1), threads_of(10_000)) == (cpus, 1, cpus)
    monkeypatch.setenv("NACRE_THREADS", "1")
    assert threads_of(0) == 1
