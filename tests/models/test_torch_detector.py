"""A whole detector against PyTorch: features at two scales, boxes, and suppression within each class."""

from __future__ import annotations

from functools import partial
from typing import Any

import nacre
import numpy as np
import pytest
from test_torch_models import FOLDER, LEVELS, check, compiled, random, suppressed, torch, weights_of

nn, functional = torch.nn, torch.nn.functional


class Conv(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel: int = 3, step: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, step, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, x: Any) -> Any:
        return functional.silu(self.bn(self.conv(x)))


class Bottleneck(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.cv1, self.cv2 = Conv(width, width), Conv(width, width)

    def forward(self, x: Any) -> Any:
        return x + self.cv2(self.cv1(x))


class Stage(nn.Module):
    def __init__(self, inputs: int, width: int, count: int) -> None:
        super().__init__()
        self.cv1 = Conv(inputs, width, 1)
        self.m = nn.ModuleList(Bottleneck(width // 2) for _ in range(count))
        self.cv2 = Conv((2 + count) * width // 2, width, 1)

    def forward(self, x: Any) -> Any:
        parts = list(self.cv1(x).chunk(2, 1))
        for layer in self.m:
            parts.append(layer(parts[-1]))
        return self.cv2(torch.cat(parts, 1))


class Pyramid(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.cv = Conv(4 * width, width, 1)

    def forward(self, x: Any) -> Any:
        parts = [x]
        for _ in range(3):
            parts.append(functional.max_pool2d(parts[-1], 5, 1, 2))
        return self.cv(torch.cat(parts, 1))


class Detector(nn.Module):
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.stem = Conv(3, width, step=2)
        self.down = nn.ModuleList(Conv(width, width, step=2) for _ in range(2))
        self.fine, self.coarse = Stage(width, width, 2), Stage(width, width, 1)
        self.pyramid, self.joined = Pyramid(width), Stage(2 * width, width, 1)
        self.last = Conv(width, width, step=2)
        self.near, self.far = nn.Conv2d(width, 4 + classes, 1), nn.Conv2d(width, 4 + classes, 1)

    def forward(self, image: Any) -> tuple[Any, Any]:
        a = self.fine(self.down[0](self.stem(image)))
        b = self.pyramid(self.coarse(self.down[1](a)))
        a = self.joined(torch.cat([a, functional.interpolate(b, scale_factor=2)], 1))
        sides = [(self.near(a), 4), (self.far(self.last(a) + b), 8)]
        found = [boxes_of(rows, step) for rows, step in sides]
        return torch.cat([boxes for boxes, _ in found], 1), torch.cat([scores for _, scores in found], 1)


def boxes_of(rows: Any, step: int) -> tuple[Any, Any]:
    down, right = torch.meshgrid(torch.arange(rows.shape[2]), torch.arange(rows.shape[3]), indexing="ij")
    centres = torch.stack([right, down], -1).reshape(-1, 2) + 0.5
    rows = rows.flatten(2).mT
    low, high = functional.softplus(rows[..., :4]).chunk(2, -1)
    return torch.cat([centres - low, centres + high], -1) * step, rows[..., 4:].sigmoid()


@pytest.mark.parametrize("level", [None, *LEVELS])
def test_yolo(level: int | None, pytestconfig: pytest.Config) -> None:
    """By default, the reference interpreter computes the results."""
    if level is not None and not pytestconfig.getoption("--variants"):
        pytest.skip("compiled with --variants alone")
    module = Detector(8, 3).eval()
    weights = weights_of(module)
    for number, (name, value) in enumerate(module.named_buffers()):
        if value.ndim:
            value.copy_(random(*value.shape, seed=90 + number).abs() + 0.1 if "var" in name else value)
            weights[name] = value
    weights = {name: value.numpy() for name, value in weights.items() if value.ndim}
    model: Any
    if level is None:
        graph = nacre.graph.read(FOLDER / "yolo.nacre")
        model = partial(graph.run, weights=weights)
    else:
        model = compiled("yolo", weights, level)
    kept_in_all, rejected = 0, 0
    for batch, height, width in ((0, 16, 16), (1, 16, 32), (3, 48, 32), (2, 64, 64)):
        image = random(batch, 3, height, width, seed=height) * 2
        with torch.no_grad():
            boxes, scores = module(image)
        found, found_scores, labels, counts = model(image.numpy())
        assert found.shape == (batch, 8, 4)
        for n in range(batch):
            best, kind = scores[n].max(-1)
            wanted = best > 0.3
            chosen = boxes[n][wanted]
            kept = suppressed(chosen + kind[wanted, None] * 1000, best[wanted])[:8]
            kept_in_all, rejected = kept_in_all + len(kept), rejected + len(chosen) - len(kept)
            assert counts[n] == len(kept)
            check(found[n, : len(kept)], chosen[kept])
            check(found_scores[n, : len(kept)], best[wanted][kept])
            np.testing.assert_array_equal(labels[n, : len(kept)], kind[wanted][kept])
    assert kept_in_all > 10 and rejected > 10  # the images have boxes of both kinds
