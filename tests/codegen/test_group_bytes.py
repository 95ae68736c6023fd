"""A weight in groups of four steps, which a product of bytes chose, is read by a product in bf16 too."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler import options
from nacre.compiler.targets.target import Target, choose_panels
from nacre.compiler.targets.vector_unit import PanelSizes

MODEL = """language 1
dim T in 1..64

model prefill(x: f32[T, 128]) -> f32[T, 96] {
  param w: f32[96, 128]
  return x @ w.T
}

model decode(x: f32[1, 128]) -> f32[1, 96] {
  param w: f32[96, 128]
  return x @ w.T
}

quantize prefill {
  weights "*" to DTYPE
  activations matmul to bf16
}

quantize decode {
  weights "*" to DTYPE
  activations matmul to i8 dynamic
}
"""


def panels(decoded: bool, targets: Iterable[Target]) -> PanelSizes:
    """The sizes for targets that have, or lack, a matrix unit for products in bf16."""
    return replace(choose_panels(targets), decoded=decoded)


@pytest.mark.parametrize("dtype", ["q8[block 32]", "q4[block 32]", "q4[block 64, zero]"])
def test_a_product_in_bf16_reads_the_groups_of_a_product_of_bytes(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    w = rng.standard_normal((96, 128)).astype(np.float32)
    inputs = [rng.standard_normal((rows, 128)).astype(np.float32) for rows in (1, 17, 64)]
    results, sizes = [], []
    for decoded in (False, True):
        monkeypatch.setattr(options, "choose_panels", partial(panels, decoded))
        path = tmp_path / f"{decoded}.so"
        model = nacre.compile(MODEL.replace("DTYPE", dtype), path, weights={"w": w})
        results.append([model.entries["prefill"](x) for x in inputs])
        sizes.append(model.describe()["weights"]["bytes"])
    # The codes are stored once; scales and zeros always are.
    assert sizes[0] - sizes[1] == w.size // (2 if "q4" in dtype else 1)
    # A matrix unit adds the same numbers in the same order, vectors add those of a group first.
    for apart, shared in zip(*results, strict=True):
        np.testing.assert_allclose(shared, apart, rtol=0, atol=1e-6 * np.abs(apart).max())
