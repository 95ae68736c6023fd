"""A detector in two stages: boxes from features, suppression, the features of each box, and a class for each.

The operators are those of torchvision. They are defined here by operators of PyTorch if the package is not installed,
or if its compiled part does not load: wheels for GPUs beside a build of PyTorch for CPUs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def overlap(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The intersection over the union of boxes [N, 4] and [M, 4]."""
    low, high = torch.maximum(a[:, None, :2], b[:, :2]), torch.minimum(a[:, None, 2:], b[:, 2:])
    sides = (high - low).clamp(min=0)
    shared = sides[..., 0] * sides[..., 1]
    areas = [(each[:, 2] - each[:, 0]) * (each[:, 3] - each[:, 1]) for each in (a, b)]
    return shared / (areas[0][:, None] + areas[1] - shared)


def suppress(boxes: torch.Tensor, scores: torch.Tensor, limit: float) -> torch.Tensor:
    overlaps = overlap(boxes, boxes)
    kept: list[int] = []
    for index in torch.argsort(-scores, stable=True).tolist():
        if all(overlaps[index, other] <= limit for other in kept):
            kept.append(index)
    return torch.tensor(kept, dtype=torch.int64)


def align(
    x: torch.Tensor, rois: torch.Tensor, scale: float, height: int, width: int, samples: int, aligned: bool
) -> torch.Tensor:
    """Means of samples in each cell of each box, with the bilinear samples of `grid_sample`."""
    found = []
    for image, *corners in rois.tolist():
        x1, y1, x2, y2 = (corner * scale - (0.5 if aligned else 0.0) for corner in corners)
        if not aligned:
            x2, y2 = max(x2, x1 + 1), max(y2, y1 + 1)
        rows = y1 + (torch.arange(height * samples) + 0.5) * (y2 - y1) / (height * samples)
        columns = x1 + (torch.arange(width * samples) + 0.5) * (x2 - x1) / (width * samples)
        h, w = x.shape[2:]
        inside = ((rows >= -1) & (rows <= h))[:, None] & ((columns >= -1) & (columns <= w))
        rows, columns = rows.clamp(0, h - 1), columns.clamp(0, w - 1)
        grid = torch.stack(torch.meshgrid(rows * 2 / (h - 1) - 1, columns * 2 / (w - 1) - 1, indexing="ij")[::-1], -1)
        taken = nn.functional.grid_sample(x[int(image)][None], grid[None], align_corners=True)[0] * inside
        found.append(nn.functional.avg_pool2d(taken, samples))
    return torch.stack(found) if found else x.new_empty(0, x.shape[1], height, width)


def define_operators() -> Any:
    """Returns the library with the operators, which must stay alive; None if torchvision defines them."""
    try:
        import torchvision  # noqa: F401, PLC0415  # it defines its operators

        return None
    except ImportError:
        pass
    except RuntimeError as error:
        # Its Python modules describe operators, which nothing has defined.
        if "torchvision::" not in str(error):
            raise
    library = torch.library.Library("torchvision", "FRAGMENT")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define(
        "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
        "int sampling_ratio, bool aligned) -> Tensor"
    )
    library.impl("nms", suppress, "CPU")
    library.impl("roi_align", align, "CPU")

    def describe_align(x: Any, rois: Any, scale: float, height: Any, width: Any, *rest: Any) -> Any:
        return x.new_empty(rois.shape[0], x.shape[1], height, width)

    def describe_nms(dets: Any, scores: Any, limit: float) -> Any:
        return dets.new_empty([torch.library.get_ctx().new_dynamic_size()], dtype=torch.int64)

    torch.library.register_fake("torchvision::nms", describe_nms, lib=library)
    torch.library.register_fake("torchvision::roi_align", describe_align, lib=library)
    return library


class Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU())
        self.objects, self.sides = nn.Conv2d(8, 1, 1), nn.Conv2d(8, 4, 1)
        self.classes = nn.Linear(8 * 9, 5)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        features = self.body(image)
        height, width = features.shape[-2:]
        scores = self.objects(features).flatten()
        offsets = self.sides(features)[0].permute(1, 2, 0).reshape(-1, 4).tanh()
        rows, columns = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
        centres = torch.stack([columns, rows], -1).reshape(-1, 2) * 4 + offsets[:, :2] * 4
        half = 6 + 3 * offsets[:, 2:]
        boxes = torch.cat([centres - half, centres + half], 1)
        boxes = boxes[torch.ops.torchvision.nms(boxes, scores, 0.4)]
        places = torch.cat([torch.zeros_like(boxes[:, :1]), boxes], 1)
        parts = torch.ops.torchvision.roi_align(features, places, 0.25, 3, 3, 2, True)
        chances, labels = self.classes(parts.flatten(1)).softmax(-1)[:, 1:].max(1)
        good = chances > 0.21
        boxes, chances, labels = boxes[good], chances[good], labels[good]
        # Suppression among the boxes that are left, whose number is not known either.
        last = torch.ops.torchvision.nms(boxes, chances, 0.1)
        return boxes[last], chances[last], labels[last]
