"""Networks of usual kinds in PyTorch, small and with random weights, and their example arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # PyTorch's own abbreviation


class Encoder(nn.Module):
    """A transformer encoder over embedded tokens, with a padding mask."""

    def __init__(self, width: int = 48, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, width)
        self.position = nn.Parameter(torch.randn(64, width) / 4)
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, batch_first=True, activation="gelu")
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 2 * width, batch_first=True, activation="gelu")
            for _ in range(layers)
        )
        del layer

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids) + self.position[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=mask)
        return x


class Decoder(nn.Module):
    """A transformer decoder with a causal mask and attention to a memory."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerDecoderLayer(width, heads, 2 * width, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.answer = nn.Linear(width, 50)

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        mask = torch.full((length, length), float("-inf"), dtype=x.dtype).triu(1)
        for layer in self.layers:
            x = layer(x, memory, tgt_mask=mask)
        return self.answer(x)


class VisionTransformer(nn.Module):
    """Patches, a class token, attention written out."""

    def __init__(self, width: int = 48, heads: int = 3) -> None:
        super().__init__()
        self.heads = heads
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, 17, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.projections = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.outputs = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.inner = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)) for _ in range(2)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        for number in range(2):
            x = x + self._attend(self.norms[2 * number](x), number)
            x = x + self.inner[number](self.norms[2 * number + 1](x))
        return self.head(x[:, 0])

    def _attend(self, x: torch.Tensor, number: int) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.projections[number](x).reshape(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2) / math.sqrt(width // self.heads)).softmax(-1)
        return self.outputs[number]((scores @ v).transpose(1, 2).reshape(batch, length, width))


class UNet(nn.Module):
    """Two levels of convolutions with group norm, down by pooling, up by interpolation and transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = self._block(3, 16), self._block(16, 32), self._block(32, 32)
        self.up = nn.ConvTranspose2d(32, 32, 2, stride=2)
        self.fourth, self.fifth = self._block(64, 16), self._block(32, 16)
        self.answer = nn.Conv2d(16, 2, 1)

    @staticmethod
    def _block(before: int, after: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(4, after), nn.SiLU(),
            nn.Conv2d(after, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.first(x)
        b = self.second(F.max_pool2d(a, 2))
        c = self.third(F.avg_pool2d(b, 2))
        d = self.fourth(torch.cat([self.up(c), b], 1))
        e = F.interpolate(d, scale_factor=2, mode="bilinear", align_corners=False)
        return self.answer(self.fifth(torch.cat([e, a], 1)))


class Residual(nn.Module):
    """Residual blocks with strides, grouped convolutions, squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
        self.conv1, self.norm1 = nn.Conv2d(16, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32)
        self.conv2, self.norm2 = nn.Conv2d(32, 32, 3, 1, 1, groups=4, bias=False), nn.BatchNorm2d(32)
        self.short = nn.Conv2d(16, 32, 1, 2)
        self.squeeze, self.excite = nn.Conv2d(32, 8, 1), nn.Conv2d(8, 32, 1)
        self.answer = nn.Linear(32, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(self.stem(image), 3, 2, 1)
        y = self.norm2(self.conv2(F.hardswish(self.norm1(self.conv1(x)))))
        scale = torch.sigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(y, 1)))))
        z = F.relu(y * scale + self.short(x))
        return self.answer(torch.flatten(F.adaptive_avg_pool2d(z, (1, 1)), 1))


class Recurrent(nn.Module):
    """A classifier of sequences: two LSTM layers in both directions, and a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 12)
        self.lstm = nn.LSTM(12, 16, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(32, 8, batch_first=True)
        self.answer = nn.Linear(8, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x, _ = self.lstm(self.embedding(ids))
        _, last = self.gru(x)
        return self.answer(last[-1]).log_softmax(-1)


@dataclass(frozen=True)
class Network:
    """`make` builds the module; `arguments` gives its arguments for sizes of the dims; `dims` is `dynamic_shapes`."""

    make: Callable[[], nn.Module]
    arguments: Callable[..., tuple[Any, ...]]
    dims: Any
    sizes: tuple[Mapping[str, int], ...]
    tolerance: float = 2e-5


def _batch(high: int = 8) -> Any:
    return torch.export.Dim("B", min=1, max=high)


def _length(high: int = 64) -> Any:
    return torch.export.Dim("T", min=1, max=high)


def ids(b: int, t: int, vocabulary: int = 50) -> torch.Tensor:
    return torch.randint(0, vocabulary, (b, t))


def _masked(b: int, t: int) -> torch.Tensor:
    return torch.arange(t)[None] >= torch.randint(1, t + 1, (b, 1))


NETWORKS: Mapping[str, Network] = {
    "encoder": Network(
        Encoder,
        lambda B, T: (ids(B, T), _masked(B, T)),  # noqa: N803  # names of dims
        {"ids": {0: _batch(), 1: _length()}, "mask": {0: _batch(), 1: _length()}},
        ({"B": 2, "T": 7}, {"B": 1, "T": 1}, {"B": 5, "T": 33}),
    ),
    "decoder": Network(
        Decoder,
        lambda B, T, S: (torch.randn(B, T, 32), torch.randn(B, S, 32)),  # noqa: N803
        {"x": {0: _batch(), 1: _length()}, "memory": {0: _batch(), 1: torch.export.Dim("S", min=1, max=64)}},
        ({"B": 2, "T": 7, "S": 5}, {"B": 1, "T": 1, "S": 1}, {"B": 3, "T": 17, "S": 40}),
    ),
    "vision": Network(
        VisionTransformer,
        lambda B: (torch.randn(B, 3, 32, 32),),  # noqa: N803
        {"image": {0: _batch()}},
        ({"B": 2}, {"B": 1}, {"B": 5}),
    ),
    "unet": Network(
        UNet,
        lambda B: (torch.randn(B, 3, 32, 40),),  # noqa: N803
        {"x": {0: _batch()}},
        ({"B": 2}, {"B": 1}),
        1e-4,
    ),
    "residual": Network(
        Residual,
        lambda B: (torch.randn(B, 3, 64, 48),),  # noqa: N803
        {"image": {0: _batch()}},
        ({"B": 2}, {"B": 1}, {"B": 3}),
    ),
    "recurrent": Network(
        Recurrent,
        lambda B, T: (ids(B, T),),  # noqa: N803
        {"ids": {0: _batch(), 1: _length()}},
        ({"B": 3, "T": 7}, {"B": 1, "T": 1}, {"B": 2, "T": 30}),
    ),
}
