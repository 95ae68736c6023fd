"""Checked calls write into memory that holds no result: elements that a kernel leaves out are never right by chance."""

from __future__ import annotations

from typing import Any

import nacre
import numpy as np
import pytest
from nacre.compiler.validate.stateful import call_function
from nacre.runtime.loader import Entry

TEXT = """language 1
dim T in 0..64

model f(x: f32[T, 3]) -> twice: f32[2*T, 3], least: f32, flags: bool[T], short: bf16[3], whole: i64[1, T + 1] {
  column = sum(x, axis=1)
  return concat([x, x], axis=0), sum(x, axis=[0, 1]), column > 0, cast(sum(x, axis=0), bf16), iota((1, T + 1), axis=1)
}

model count(x: f32[T]) -> total: f32 {
  state seen: f32
  seen = seen + sum(x, axis=0)
  return seen
}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> nacre.Model:
    return nacre.compile(TEXT, tmp_path_factory.mktemp("memory") / "model.so", opt_level=0)


@pytest.mark.parametrize("size", [0, 1, 5])
def test_memory_of_results(size: int, model: nacre.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(size).standard_normal((size, 3)).astype(np.float32)
    expected = [np.asarray(each) for each in model.f(x)]
    held: list[bytes] = []
    call = Entry.__call__

    def see(entry: Entry, *given: Any, out: Any = None) -> Any:
        assert call(entry, *given) is not None  # memory that is free afterwards holds the right results
        held.extend(each.tobytes() for each in out)
        return call(entry, *given, out=out)

    monkeypatch.setattr(Entry, "__call__", see)
    found = call_function(model, "f", [x], {"T": size})
    assert held == [b"\x4b" * each.nbytes for each in expected]
    for each, other in zip(found, expected, strict=True):
        assert (each.dtype, each.shape) == (other.dtype, other.shape)
        assert each.tobytes() == other.tobytes()


def test_results_of_a_call_with_states(model: nacre.Model) -> None:
    found = call_function(model, "count", [np.ones(4, np.float32), np.float32(2)], {"T": 4})
    assert [float(each) for each in found] == [6, 6]
