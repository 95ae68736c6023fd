"""Gradients of whole models, compiled at -O2, against PyTorch's autograd in f64.

A training step whose update returns the gradient leaves the gradient in the parameter's state.
"""

from __future__ import annotations

from typing import Any

import nacre
import numpy as np
import pytest

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional

TOLERANCE = 1e-5
"""Of the norm of a difference, relative to the norm of the gradient."""

HEAD = """language 1
import "library/losses.nacre"

block gradient_itself(parameter: f32[...], gradient: f32[...]) -> f32[...] { return gradient + 0.0 * parameter }

block Linear<inputs, outputs>(x: f32[..., inputs]) -> f32[..., outputs] {
  param weight: f32[outputs, inputs]
  param bias: f32[outputs]
  return x @ weight.T + bias
}

block Norm<width>(x: f32[..., width]) -> f32[..., width] {
  param weight: f32[width]
  param bias: f32[width]
  return layer_norm(x, weight, bias)
}

block Conv<inputs, outputs>(x: f32[B, inputs, H, W]) -> f32[B, outputs, H, W] {
  param weight: f32[outputs, inputs, 3, 3]
  param bias: f32[outputs]
  return conv2d(x, weight, bias, padding=1)
}

# In training mode: the statistics are those of the batch.
block BatchNorm<channels>(x: f32[B, channels, H, W]) -> f32[B, channels, H, W] {
  param weight: f32[channels]
  param bias: f32[channels]
  center = mean(x, axis=(0, 2, 3), keepdims=true)
  spread = mean((x - center) * (x - center), axis=(0, 2, 3), keepdims=true)
  return (x - center) / sqrt(spread + 1e-5) * weight[:, None, None] + bias[:, None, None]
}
"""


def check(text: str, module: Any, inputs: list[Any], loss: Any) -> None:
    """Compares the loss and the gradient of every parameter; `loss` is that of the module in f64."""
    for number, parameter in enumerate(module.parameters()):
        fan = parameter[0].numel() if parameter.ndim > 1 else 4
        random = torch.randn(*parameter.shape, generator=torch.Generator().manual_seed(number + 1))
        parameter.data = (random / fan**0.5).double()
    weights = {name: value.detach().float().numpy() for name, value in module.named_parameters()}
    module.double()
    expected = loss(module)
    expected.backward()
    session = nacre.compile(HEAD + text, weights=weights).session()
    found = session.step(*inputs)
    assert float(found) == pytest.approx(float(expected.detach()), rel=TOLERANCE)
    errors = {}
    for name, parameter in module.named_parameters():
        exact = parameter.grad.numpy()
        errors[name] = np.linalg.norm(session.states[name] - exact) / max(np.linalg.norm(exact), 1e-12)
    # A bias whose effect a normalization cancels has the gradient 0.
    scale = max(float(np.linalg.norm(p.grad.numpy())) for p in module.parameters())
    for name, parameter in module.named_parameters():
        if float(np.linalg.norm(parameter.grad.numpy())) < 1e-6 * scale:
            assert np.linalg.norm(session.states[name]) < 1e-5 * scale, name
            errors.pop(name)
    assert max(errors.values()) <= TOLERANCE, errors


def test_mixture_of_experts() -> None:
    text = """
dim B in 1..64
block Expert<width, inner>(x: f32[B, width]) -> f32[B, width] {
  use wide = Linear<width, inner>
  use narrow = Linear<inner, width>
  return narrow(silu(wide(x)))
}
train step(x: f32[B, 8], y: f32[B, 8]) -> loss: f32 {
  use gate = Linear<8, 4>
  use expert[4] = Expert<8, 16>
  values, chosen = top_k(gate(x), 2)
  shares = softmax(values)
  total = 0 * x
  repeat i in 0..4 {
    share = sum(where(chosen == i, shares, 0), axis=1, keepdims=true)
    total = total + share * expert[i](x)
  }
  loss = mse(total, y)
  minimize loss with gradient_itself()
}
"""

    class Expert(nn.Module):  # type: ignore[misc, name-defined]  # without stubs
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.narrow = nn.Linear(8, 16), nn.Linear(16, 8)

    net = nn.ModuleDict({"gate": nn.Linear(8, 4), "expert": nn.ModuleList(Expert() for _ in range(4))})
    x, y = array(13, 8), array(13, 8, seed=1)

    def loss(net: Any) -> Any:
        given = torch.tensor(x).double()
        values, chosen = net["gate"](given).topk(2)
        shares = values.softmax(-1)
        total = torch.zeros_like(given)
        for place in range(2):
            for row in range(13):
                expert = net["expert"][int(chosen[row, place])]
                out = expert.narrow(functional.silu(expert.wide(given[row])))
                total = total + torch.zeros_like(given).index_add(
                    0, torch.tensor([row]), (shares[row, place] * out)[None]
                )
        return functional.mse_loss(total, torch.tensor(y).double())

    check(text, net, [x, y], loss)


def test_ctc() -> None:
    class Net(nn.Module):  # type: ignore[misc, name-defined]  # without stubs
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(7, 6)

    text = """
dim B in 1..8
dim T in 1..40
dim L in 1..20
train step(x: f32[T, B, 7], labels: i64[B, L], lengths: i64[B], counts: i64[B]) -> loss: f32 {
  use net = Linear<7, 6>
  loss = ctc(log_softmax(net(x)), labels, lengths, counts)
  minimize loss with gradient_itself()
}
"""
    rng = np.random.default_rng(0)
    labels, lengths, counts = rng.integers(1, 6, (4, 9)), np.array([31, 24, 20, 31]), np.array([9, 1, 7, 4])
    x = array(31, 4, 7)
    data = torch.from_numpy(x).double(), *map(torch.from_numpy, (labels, lengths, counts))

    def loss(module: Any) -> Any:
        logs = functional.log_softmax(module.net(data[0]), -1)
        return functional.ctc_loss(logs, *data[1:])

    check(text, Net(), [x, labels, lengths, counts], loss)


def array(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


TRANSFORMER = """
dim B in 1..8
dim T in 1..64

block Block<width, heads>(x: f32[B, T, width]) -> f32[B, T, width] {
  use first, second = Norm<width>
  use query, key, value, out = Linear<width, width>
  use wide = Linear<width, 4*width>
  use narrow = Linear<4*width, width>
  y = first(x)
  q = query(y) |> rearrange("b t (h d) -> b h t d", h=heads)
  k = key(y) |> rearrange("b t (h d) -> b h t d", h=heads)
  v = value(y) |> rearrange("b t (h d) -> b h t d", h=heads)
  seen = iota((T,), dtype=i64)[None, :] <= iota((T,), dtype=i64)[:, None]
  mixed = softmax(where(seen, q @ k.mT / sqrt(width / heads), -inf)) @ v
  x = x + out(mixed |> rearrange("b h t d -> b t (h d)"))
  return x + narrow(gelu(wide(second(x))))
}

train step(ids: i64[B, T], labels: i64[B, T]) -> loss: f32 {
  param table: f32[17, 24]
  use layer[2] = Block<24, 3>
  use head = Linear<24, 17>
  x = embedding(table, ids)
  repeat i in 0..2 { x = layer[i](x) }
  loss = cross_entropy(head(x), labels)
  minimize loss with gradient_itself()
}
"""


def test_transformer() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(24), nn.LayerNorm(24)
            self.query, self.key, self.value, self.out = (nn.Linear(24, 24) for _ in range(4))
            self.wide, self.narrow = nn.Linear(24, 96), nn.Linear(96, 24)

        def forward(self, x: Any) -> Any:
            y = self.first(x)
            heads = [f(y).unflatten(-1, (3, 8)).transpose(1, 2) for f in (self.query, self.key, self.value)]
            mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).flatten(-2))
            return x + self.narrow(functional.gelu(self.wide(self.second(x))))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.zeros(17, 24))
            self.layer = nn.ModuleList([Block(), Block()])
            self.head = nn.Linear(24, 17)

        def forward(self, ids: Any) -> Any:
            x = self.table[ids]
            for layer in self.layer:
                x = layer(x)
            return self.head(x)

    rng = np.random.default_rng(0)
    ids, labels = rng.integers(0, 17, (3, 13)), rng.integers(0, 17, (3, 13))

    def loss(net: Any) -> Any:
        return functional.cross_entropy(net(torch.tensor(ids)).flatten(0, 1), torch.tensor(labels).flatten())

    check(TRANSFORMER, Net(), [ids, labels], loss)


LSTM = """
dim T in 1..64

block Lstm<inputs, width>(x: f32[4, T, inputs]) -> f32[4, width] {
  param weight_ih_l0: f32[4*width, inputs]
  param weight_hh_l0: f32[4*width, width]
  param bias_ih_l0: f32[4*width]
  param bias_hh_l0: f32[4*width]
  h = zeros((4, width))
  scan t in 0..T with h = h, c = zeros((4, width)) {
    gates = x[:, t] @ weight_ih_l0.T + bias_ih_l0 + h @ weight_hh_l0.T + bias_hh_l0
    i, f, g, o = split(gates, 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    h = sigmoid(o) * tanh(c)
  }
  return h
}

train step(x: f32[4, T, 5], y: f32[4, 2]) -> loss: f32 {
  use lstm = Lstm<5, 7>
  use head = Linear<7, 2>
  loss = mse(head(lstm(x)), y)
  minimize loss with gradient_itself()
}
"""


def test_lstm() -> None:
    net = nn.ModuleDict({"lstm": nn.LSTM(5, 7, batch_first=True), "head": nn.Linear(7, 2)})
    x, y = array(4, 11, 5), array(4, 2, seed=1)

    def loss(net: Any) -> Any:
        hidden = net["lstm"](torch.tensor(x).double())[0][:, -1]
        return functional.mse_loss(net["head"](hidden), torch.tensor(y).double())

    check(LSTM, net, [x, y], loss)


UNET = """
dim B in 1..8

block Residual<channels>(x: f32[B, channels, H, W]) -> f32[B, channels, H, W] {
  use conv1, conv2 = Conv<channels, channels>
  use bn1, bn2 = BatchNorm<channels>
  return relu(x + bn2(conv2(relu(bn1(conv1(x))))))
}

train step(x: f32[B, 3, 8, 8], y: f32[B, 2, 8, 8]) -> loss: f32 {
  use stem = Conv<3, 6>
  use side = Residual<6>
  use down = Conv<6, 12>
  use deep = Residual<12>
  use up = Conv<18, 6>
  use head = Conv<6, 2>
  side_x = side(relu(stem(x)))
  deep_x = deep(relu(down(max_pool2d(side_x, 2))))
  wide = deep_x |> repeat_interleave(2, axis=2) |> repeat_interleave(2, axis=3)
  joined = concat(wide, side_x, axis=1)
  loss = mse(head(relu(up(joined))), y)
  minimize loss with gradient_itself()
}
"""


def test_unet_of_residual_blocks_with_batch_norm() -> None:
    class Residual(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
            self.bn1, self.bn2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

        def forward(self, x: Any) -> Any:
            return torch.relu(x + self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.down = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 12, 3, padding=1)
            self.side, self.deep = Residual(6), Residual(12)
            self.up, self.head = nn.Conv2d(18, 6, 3, padding=1), nn.Conv2d(6, 2, 3, padding=1)

        def forward(self, x: Any) -> Any:
            side = self.side(torch.relu(self.stem(x)))
            deep = self.deep(torch.relu(self.down(functional.max_pool2d(side, 2))))
            wide = functional.interpolate(deep, scale_factor=2)
            return self.head(torch.relu(self.up(torch.cat([wide, side], 1))))

    x, y = array(3, 3, 8, 8), array(3, 2, 8, 8, seed=1)

    def loss(net: Any) -> Any:
        return functional.mse_loss(net(torch.tensor(x).double()), torch.tensor(y).double())

    check(UNET, Net(), [x, y], loss)
