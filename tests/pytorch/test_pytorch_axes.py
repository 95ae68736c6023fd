"""Conversions that move axes in cycles: a permutation that is read inverted gives other numbers, and a shape that fits.

Cycles of three axes are the least permutations that are not their own inverse. All sizes are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.dialect.interpreter import Interpreter, load_parameter

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402  # after the check that PyTorch is there

N = 4
INDEX, REPEATED = torch.tensor([2, 0, 3, 1]), torch.tensor([2, 0, 1, 1])
TABLE = INDEX.reshape(2, 2)
Function = Callable[..., Any]


def written(*place: Any, accumulate: bool = False) -> Function:
    """`x[place] = values`, or the sums with these."""
    return lambda x, values: torch.ops.aten.index_put(x, place, values, accumulate)


CASES: dict[str, tuple[Function, tuple[tuple[int, ...], ...]]] = {
    "adaptive averages of the first of three axes": (
        lambda x: nn.functional.adaptive_avg_pool3d(x, (3, N, N)),
        ((N, N, N, N, N),),
    ),
    "adaptive averages of all axes": (
        lambda x: nn.functional.adaptive_avg_pool3d(x, (3, 2, 3)),
        ((N, N, N, N, N),),
    ),
    "axes that are moved": (lambda x: x.movedim(0, 2).permute(1, 2, 3, 0), ((N, N, N, N),)),
    "a transposed matrix, and a vector that stays": (lambda x, y: x.t() @ y.t(), ((N, N), (N,))),
    "diagonals of the first two axes": (lambda x: torch.diagonal(x, 1, 0, 1), ((N, N, N),)),
    "reading along the last two axes": (lambda x: x[:, :, INDEX, INDEX], ((N, N, N, N),)),
    "reading along two axes": (lambda x: x[:, :, INDEX, INDEX], ((N, N, N, N, N),)),
    "reading by a table": (lambda x: x[:, TABLE, TABLE], ((N, N, N, N),)),
    "writing along the first axis": (written(INDEX), ((N, N, N), (N, N, N))),
    "writing along the last axis": (written(None, None, INDEX), ((N, N, N), (N, N, N))),
    "writing along the third axis": (written(None, None, INDEX), ((N, N, N, N), (N, N, N, N))),
    "writing along two axes": (written(None, INDEX, INDEX), ((N, N, N, N), (N, N, N))),
    "writing along two axes apart": (written(INDEX, None, INDEX), ((N, N, N, N), (N, N, N))),
    "writing by a table": (written(None, None, TABLE), ((N, N, N), (N, N, 2, 2))),
    "adding along the last axis": (written(None, None, REPEATED, accumulate=True), ((N, N, N), (N, N, N))),
    "adding by a table": (written(None, REPEATED.reshape(2, 2), accumulate=True), ((N, N, N), (N, 2, 2, N))),
}


@pytest.mark.parametrize("name", CASES)
def test_axes_in_cycles(name: str) -> None:
    function, shapes = CASES[name]

    class Case(nn.Module):
        def forward(self, *given: Any) -> Any:
            return function(*given)

    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    given = tuple(map(torch.from_numpy, arrays))
    source = nacre.from_torch(Case(), given)
    weights = source.weights["Case"]
    load = load_parameter if weights is None else lambda p: weights.read(p.key)
    (result,) = Interpreter(source.module, load).run("Case", arrays)
    np.testing.assert_allclose(result, function(*given).numpy(), rtol=1e-5, atol=1e-6)


def test_parameters_that_share_memory_are_distinguished() -> None:
    """Views of one piece of memory that begin at the same place: transposed, cut off, and of another dtype."""
    whole = torch.arange(1, 1 + N * N, dtype=torch.float32).reshape(N, N)
    views = {"whole": whole, "turned": whole.t(), "cut": whole[:2], "bits": whole.view(torch.int32)}

    class Case(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, view in views.items():
                self.register_buffer(name, view)

        def forward(self, x: Any) -> Any:
            return tuple(x + getattr(self, name).sum(0) * getattr(self, name)[:, 1].max() for name in views)

    x = torch.ones(N)
    source = nacre.from_torch(Case(), (x,))
    weights = source.weights["Case"]
    assert weights is not None
    results = Interpreter(source.module, lambda p: weights.read(p.key)).run("Case", [x.numpy()])
    for name, found, expected in zip(views, results, Case()(x), strict=True):
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6, err_msg=name)
