"""A detector with as many boxes as an image has: counts, boxes and classes agree with eager PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.dialect.diagnostics import DiagnosticError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from detector import Detector, define_operators  # noqa: E402  # after the check that PyTorch is there

LIBRARY = define_operators()


def test_a_detector_agrees_with_eager(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Detector().eval()
    source = nacre.from_torch(module, (torch.randn(1, 3, 32, 40),))
    (function,) = source.module.functions
    model = nacre.compile(source, tmp_path / "detector.so")
    counts = []
    for scale in (0.0, 1.0, 3.0, 8.0):
        image = torch.randn(1, 3, 32, 40) * scale
        with torch.no_grad():
            expected = module(image)
        found = dict(zip(function.result_names, model(image), strict=True))
        for number, wanted in enumerate(expected):
            count = int(found[f"output_{number}_size"])
            assert count == len(wanted) <= len(found[f"output_{number}"])
            np.testing.assert_allclose(found[f"output_{number}"][:count], wanted.numpy(), rtol=0, atol=2e-5)
        counts.append(len(expected[0]))
    assert len(set(counts)) > 1, counts


class _Selection(torch.nn.Module):
    def __init__(self, change: Any) -> None:
        super().__init__()
        self.change = change

    def forward(self, x: torch.Tensor) -> Any:
        return self.change(x[x[:, 0] > 0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.sum(0), "mixes the elements"),
        (lambda x: x.cumsum(0), "mixes the elements"),
        (lambda x: torch.cat([x, x]), "mixes the elements"),
        (lambda x: x.softmax(0), "mixes the elements"),
        (lambda x: x.T @ x, "mixes the elements"),
        (lambda x: x * x.shape[0], "computes with a size"),
    ],
)
def test_operators_that_mix_elements_are_refused(change: Any, message: str) -> None:
    with pytest.raises(DiagnosticError, match=message) as error:
        nacre.from_torch(_Selection(change), (torch.randn(5, 3),))
    assert {each.code for each in error.value.diagnostics} == {"data-dependent"}


def test_positions_and_selections() -> None:
    class Positions(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            chosen = x[x[:, 0] > 0]
            return (x > 0.5).nonzero(), chosen.exp() * 2, chosen[chosen[:, 1] < 0].sum(1)

    module = Positions()
    source = nacre.from_torch(
        module, (torch.randn(5, 3),), dynamic_shapes={"x": {0: torch.export.Dim("N", min=2, max=64)}}
    )
    model = nacre.compile(source)
    names = source.module.functions[0].result_names
    for rows in (5, 2, 64):
        x = torch.randn(rows, 3)
        found = dict(zip(names, model(x), strict=True))
        for number, wanted in enumerate(module(x)):
            count = int(found[f"output_{number}_size"])
            assert count == len(wanted)
            np.testing.assert_allclose(found[f"output_{number}"][:count], wanted.numpy(), rtol=0, atol=1e-5)
