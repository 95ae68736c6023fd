"""Whole networks agree with eager PyTorch, for several sizes of their dims."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from networks import NETWORKS  # noqa: E402  # after the check that PyTorch is there

DEFAULT = ("decoder", "residual", "recurrent")
"""The networks that run without `--variants`."""


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_agrees_with_eager(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if name not in DEFAULT and not request.config.getoption("--variants"):
        pytest.skip("runs with --variants")
    network = NETWORKS[name]
    torch.manual_seed(0)
    module = network.make().eval()
    source = nacre.from_torch(module, network.arguments(**network.sizes[0]), dynamic_shapes=network.dims)
    assert {str(dim.name) for dim in source.module.dims} == set(network.sizes[0])
    assert {p.name for p in source.module.parameters} <= set(module.state_dict())
    model = nacre.compile(source, tmp_path / "model.so")
    for sizes in network.sizes:
        arguments = network.arguments(**sizes)
        with torch.no_grad():
            expected = module(*arguments).numpy()
        np.testing.assert_allclose(model(*arguments), expected, rtol=0, atol=network.tolerance)
