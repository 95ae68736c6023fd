"""Attention of one query, as in the decoding of one token, is vector code."""

from __future__ import annotations

import warnings
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.dialect.diagnostics import NacreWarning

TEXT = """dim S in 1..1024
model attend(q: f32[4, 1, 16], k: f32[4, {keys}], v: f32[4, S, 16], seen: bool[1, S]) -> f32[4, 1, 16] {{
  return softmax(where(seen, q @ {turned}, -inf)) @ v
}}
"""


@pytest.mark.parametrize(("keys", "turned"), [("16, S", "k"), ("S, 16", "k.mT")])
def test_no_kernel_is_plain_loops(tmp_path: Path, keys: str, turned: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", NacreWarning)
        model = nacre.compile(TEXT.format(keys=keys, turned=turned), tmp_path / "attend.so")
    rng = np.random.default_rng(0)
    for size in (1, 2, 17, 300):
        q, k, v = (rng.standard_normal((4, n, 16)).astype(np.float32) for n in (1, size, size))
        seen = np.arange(size)[None] < max(1, size - 3)
        scores = np.where(seen, q.astype(np.float64) @ k.swapaxes(1, 2), -np.inf)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        given = k if turned == "k.mT" else np.ascontiguousarray(k.swapaxes(1, 2))
        np.testing.assert_allclose(
            model(q, given, v, seen), powers / powers.sum(-1, keepdims=True) @ v, rtol=0, atol=1e-5
        )
