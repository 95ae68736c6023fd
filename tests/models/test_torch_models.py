"""Models as a user writes them, against the same models in PyTorch with random weights, at -O0 and -O2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional

FOLDER = Path(__file__).parent
LEVELS = (0, 2)
TOLERANCE = 2e-5
"""Some hundred roundings of f32, relative to numbers near 1."""


def compiled(name: str, weights: dict[str, Any], level: int, **settings: Any) -> nacre.Model:
    return nacre.compile(FOLDER / f"{name}.nacre", weights=weights, opt_level=level, settings=settings)


def random(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def weights_of(module: Any, prefix: str = "") -> dict[str, Any]:
    for number, parameter in enumerate(module.parameters()):
        count = parameter[0].numel() if parameter.ndim > 1 else 1
        parameter.data = random(*parameter.shape, seed=number + 1) / count**0.5
    return {prefix + key: value.detach() for key, value in module.state_dict().items()}


def check(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected.detach().numpy(), rtol=TOLERANCE, atol=TOLERANCE)


class Double(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.second(torch.relu(self.first(x))))


class Up(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(inputs, outputs, 2, stride=2)
        self.both = Double(2 * outputs, outputs)

    def forward(self, x: Any, side: Any) -> Any:
        return self.both(torch.cat([side, self.up(x)], dim=1))


class UNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.enter, self.down1, self.down2 = Double(3, width), Double(width, 2 * width), Double(2 * width, 4 * width)
        self.up1, self.up2 = Up(4 * width, 2 * width), Up(2 * width, width)
        self.leave = nn.Conv2d(width, 2, 1)

    def forward(self, image: Any) -> Any:
        a = self.enter(image)
        b = self.down1(functional.max_pool2d(a, 2))
        c = self.down2(functional.max_pool2d(b, 2))
        return self.leave(self.up2(self.up1(c, b), a))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("width", "side"), [(4, 16), (3, 20)])
def test_unet(level: int, width: int, side: int) -> None:
    module = UNet(width)
    model = compiled("unet", weights_of(module, "module."), level, width=width, side=side)
    for batch in (1, 3):
        image = random(batch, 3, side, side)
        check(model(image), module(image))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("layers", [1, 3])
def test_vision_transformer(level: int, layers: int) -> None:
    width = 16
    made = [
        nn.TransformerEncoderLayer(width, 4, 64, 0, "gelu", batch_first=True, norm_first=True) for _ in range(layers)
    ]
    blocks, embed, head = nn.ModuleList(made).eval(), nn.Linear(48, width, bias=False), nn.Linear(width, 10)
    weights = weights_of(nn.ModuleDict({"blocks": blocks, "embed": embed, "head": head}))
    weights |= {"token": random(1, 1, width, seed=50), "positions": random(1, 5, width, seed=51)}
    model = compiled("vit", weights, level, layers=layers)
    for batch in (1, 3):
        image = random(batch, 3, 8, 8, seed=batch)
        patches = image.reshape(batch, 3, 2, 4, 2, 4).permute(0, 2, 4, 1, 3, 5).reshape(batch, 4, 48)
        h = torch.cat([weights["token"].expand(batch, 1, width), embed(patches)], dim=1) + weights["positions"]
        states = []
        for block in blocks:
            h = block(h)
            states.append(h[:, 0])
        logits, found = model(image)
        check(logits, head(h[:, 0]))
        check(found, torch.stack(states))


@pytest.mark.parametrize("level", LEVELS)
def test_mixture_of_experts(level: int) -> None:
    weights = {"gate": random(4, 8, seed=1)}
    for i in range(4):
        weights[f"experts.{i}.w1"] = random(32, 8, seed=2 + i) / 3
        weights[f"experts.{i}.w2"] = random(8, 32, seed=9 + i) / 6
    model = compiled("experts", weights, level)
    for count in (0, 1, 7):
        x = random(count, 8, seed=count)
        values, places = (x @ weights["gate"].T).topk(2)
        shares = values.softmax(-1)
        expected = torch.zeros(count, 8)
        for token in range(count):
            for share, i in zip(shares[token], places[token], strict=True):
                h = functional.silu(x[token] @ weights[f"experts.{i}.w1"].T)
                expected[token] += share * (h @ weights[f"experts.{i}.w2"].T)
        found, numbers = model(x)
        check(found, expected)
        np.testing.assert_array_equal(numbers, torch.bincount(places.flatten(), minlength=4))


@pytest.mark.parametrize("level", LEVELS)
def test_an_expert_without_tokens_is_skipped(level: int) -> None:
    """Its weights are NaN, so that a product with them would show, also one that is multiplied by zero."""
    weights = {"gate": random(4, 8, seed=1).abs()}
    weights["gate"][3] = -1
    for i in range(4):
        weights[f"experts.{i}.w1"] = random(32, 8, seed=2 + i) if i < 3 else torch.full((32, 8), torch.nan)
        weights[f"experts.{i}.w2"] = random(8, 32, seed=9 + i) if i < 3 else torch.full((8, 32), torch.nan)
    found, numbers = compiled("experts", weights, level)(random(7, 8, seed=7).abs())
    assert np.isfinite(found).all() and numbers[3] == 0 and numbers.sum() == 14


def suppressed(boxes: Any, scores: Any) -> list[int]:
    """Non-maximum suppression, box by box."""
    kept: list[int] = []
    for i in scores.argsort(descending=True).tolist():
        area = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
        both = (
            (torch.minimum(boxes[i, 2:], boxes[kept, 2:]) - torch.maximum(boxes[i, :2], boxes[kept, :2]))
            .relu()
            .prod(-1)
        )
        if not (both / (area[i] + area[kept] - both + 1e-9) > 0.5).any():
            kept.append(i)
    return kept


@pytest.mark.parametrize("level", LEVELS)
def test_detector(level: int) -> None:
    model = compiled("detector", {}, level)
    for count in (0, 1, 25):
        corner, scores = random(count, 2, seed=count), random(count, seed=3).sigmoid()
        boxes = torch.cat([corner, corner + random(count, 2, seed=5).abs() + 0.5], dim=1)
        wanted = scores > 0.5
        boxes_of, scores_of = boxes[wanted], scores[wanted]
        kept = suppressed(boxes_of, scores_of)
        found, found_scores, total = model(boxes, scores)
        assert total == len(kept)
        check(found[:total], boxes_of[kept])
        check(found_scores[:total], scores_of[kept])
    with pytest.raises(nacre.NacreError, match="out of range"):
        model(np.zeros((17, 4), np.float32), np.ones(17, np.float32))


@pytest.mark.parametrize("level", LEVELS)
def test_recommender(level: int) -> None:
    weights = {"bottom.weight": random(4, 6), "bottom.bias": random(4), "weight": random(3, 5, seed=8)}
    weights |= {f"emb_l.{i}.weight": random(10, 4, seed=i) for i in range(3)}
    weights |= {"top.weight": random(1, 10) / 3, "top.bias": random(1)}
    model = compiled("recommender", weights, level)
    for batch in (0, 1, 5):
        dense, ids = random(batch, 6), torch.randint(0, 10, (batch, 3))
        x = torch.relu(functional.linear(dense, weights["bottom.weight"], weights["bottom.bias"]))
        z = torch.stack([x, *(weights[f"emb_l.{i}.weight"][ids[:, i]] for i in range(3))], dim=1)
        rows, columns = torch.tril_indices(4, 4, offset=-1)
        features = torch.cat([x, torch.bmm(z, z.mT)[:, rows, columns]], dim=1)
        expected = torch.relu(functional.linear(features, weights["top.weight"], weights["top.bias"]))[:, 0]
        check(model.entries["recommend"](dense, ids), expected)
    for edges in (0, 1, 13):
        x, (source, target) = random(7, 5), torch.randint(0, 7, (2, edges))
        adjacency = torch.zeros(7, 7)
        for s, t in zip(source, target, strict=True):
            adjacency[t, s] += 1
        scale = torch.where(adjacency.sum(1) > 0, adjacency.sum(1).clamp(min=1).rsqrt(), 0)
        expected = (adjacency * scale[:, None] * scale[None]) @ x @ weights["weight"].T
        check(model.entries["convolve"](x, source.contiguous(), target.contiguous()), expected)
