"""States take arrays of every order, and files give them back: column-major ones, parts of others, axes in a cycle."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import nacre
import numpy as np
import pytest
from nacre.runtime.library import ArgumentError

TEXT = """language 1

model f(x: f32[3, 5]) -> y: f32[3, 5] {
  state columns: f32[3, 5]
  state part: f64[7]
  state cycle: bf16[3, 2, 5]
  state count: i64
  columns = columns + x
  part = part * 2
  cycle = cycle + cycle
  count = count + 1
  return columns
}
"""


def test_states_of_every_order(tmp_path: Path) -> None:
    model = nacre.compile(TEXT, tmp_path / "model.so", opt_level=0)
    given = {
        "columns": np.arange(15, dtype=np.float32).reshape(5, 3).T,
        "part": np.arange(14)[::-2] / 3,
        "cycle": np.arange(30).reshape(5, 3, 2).transpose(1, 2, 0).astype(ml_dtypes.bfloat16),
        "count": np.asarray(2**60 + 1),
    }
    first, second = model.session(), model.session()
    for name, array in given.items():
        first.states[name] = array
    first.save(tmp_path / "states.safetensors")
    second.restore(tmp_path / "states.safetensors")
    for session in (first, second):
        for name, array in given.items():
            assert np.asarray(session.states[name]).tobytes() == array.tobytes(), name
    with pytest.raises(ArgumentError, match=r"state `part`: expected f64\[7\], got >f8\[7\]"):
        first.states["part"] = given["part"].astype(">f8")
    result = first(np.asfortranarray(given["columns"]))
    np.testing.assert_array_equal(result, 2 * given["columns"])
    np.testing.assert_array_equal(np.asarray(first.states["cycle"]), 2 * given["cycle"])
