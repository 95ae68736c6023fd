"""`torch.compile(model, backend="nacre")` computes as eager PyTorch does, and compiles again where it must."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from nacre.compiler.torch_backend import CompiledGraph, compile_graph  # noqa: E402  # after the check that PyTorch is there
from torch import nn  # noqa: E402


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        y = torch.relu(self.norm(self.first(x)))
        return self.second(y), y.shape[0]


@pytest.fixture
def pair() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    module = Net().eval()
    return module, torch.compile(module, backend=compile_graph)


def test_results_are_those_of_eager(pair: tuple[nn.Module, nn.Module]) -> None:
    module, compiled = pair
    with torch.no_grad():
        for batch in (3, 5, 1):
            x = torch.randn(batch, 8)
            (found, size), (expected, _) = compiled(x), module(x)
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
            assert size == batch


def test_a_changed_parameter_is_noticed(pair: tuple[nn.Module, nn.Module]) -> None:
    module, compiled = pair
    x = torch.randn(3, 8)
    with torch.no_grad():
        before = compiled(x)[0].clone()
        module.first.weight.mul_(2)
        after = compiled(x)[0]
        torch.testing.assert_close(after, module(x)[0], rtol=0, atol=1e-6)
    assert not torch.equal(before, after)


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))
        self.register_buffer("factor", torch.full((4,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total * self.factor


def test_a_written_buffer_is_an_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    module, twin = Counter(), Counter()
    compiled = torch.compile(module, backend=compile_graph)
    graphs: list[CompiledGraph] = []
    original = CompiledGraph._compile
    monkeypatch.setattr(CompiledGraph, "_compile", lambda s, given: graphs.append(s) or original(s, given))
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(4)
            torch.testing.assert_close(compiled(x), twin(x))
        torch.testing.assert_close(module.total, twin.total)
    assert len(graphs) == 1


def test_parameters_of_inference_mode_are_read_in_each_call() -> None:
    torch._dynamo.reset()
    x = torch.randn(3, 8)
    with torch.inference_mode():
        module = Net().eval()
        compiled = torch.compile(module, backend=compile_graph)
        for _ in range(2):
            torch.testing.assert_close(compiled(x)[0], module(x)[0], rtol=0, atol=1e-5)
            module.first.weight.mul_(2)


def test_gradients_are_refused(pair: tuple[nn.Module, nn.Module]) -> None:
    with pytest.raises(Exception, match="computes no gradients"):
        pair[1](torch.randn(3, 8))


def test_the_backend_is_declared() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert 'nacre = "nacre.compiler.torch_backend:compile_graph"' in text
    found = [point for point in entry_points(group="torch_dynamo_backends") if point.name == "nacre"]
    assert all(point.load() is compile_graph for point in found)
