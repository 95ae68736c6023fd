"""The timed models in PyTorch, with random weights: MiniLM and ResNet-50, of the same shapes as those that are packed.

PyTorch is imported by the caller, since it may not be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .timing import Timing

Call = Callable[..., Any]
WIDTH, HEADS, INNER, LAYERS, WORDS, POSITIONS = 384, 12, 1536, 6, 500, 512
STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""The width and the blocks of each stage of ResNet-50."""


def make_encoder(torch: Any) -> Any:
    """Returns MiniLM, which maps token ids and a mask to unit vectors."""
    nn, functional = torch.nn, torch.nn.functional

    class Layer(nn.Module):  # type: ignore[misc]  # PyTorch is unknown here
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
            self.first, self.second = nn.LayerNorm(WIDTH, eps=1e-12), nn.LayerNorm(WIDTH, eps=1e-12)

        def forward(self, x: Any, mask: Any) -> Any:
            batch, length, _ = x.shape
            q, k, v = self.qkv(x).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            x = self.first(x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH)))
            return self.second(x + self.down(functional.gelu(self.up(x))))

    class Encoder(nn.Module):  # type: ignore[misc]  # PyTorch is unknown here
        def __init__(self) -> None:
            super().__init__()
            self.words, self.positions = nn.Embedding(WORDS, WIDTH), nn.Embedding(POSITIONS, WIDTH)
            self.types, self.norm = nn.Embedding(2, WIDTH), nn.LayerNorm(WIDTH, eps=1e-12)
            self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

        def forward(self, ids: Any, kept: Any) -> Any:
            x = self.words(ids) + self.positions.weight[: ids.shape[1]] + self.types(ids * 0)
            x = self.norm(x)
            keep = kept.to(x.dtype)
            mask = (1 - keep[:, None, None, :]) * -1e9
            for layer in self.layers:
                x = layer(x, mask)
            pooled = (x * keep[:, :, None]).sum(1) / keep.sum(1, keepdim=True)
            return pooled / pooled.norm(dim=-1, keepdim=True)

    return Encoder()


def make_resnet(torch: Any) -> Any:
    """Returns ResNet-50, which maps images to the scores of 1000 classes."""
    nn = torch.nn

    def convolve(inputs: int, outputs: int, size: int, stride: int = 1) -> list[Any]:
        layer = nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)
        return [layer, nn.BatchNorm2d(outputs)]

    class Bottleneck(nn.Module):  # type: ignore[misc]  # PyTorch is unknown here
        def __init__(self, inputs: int, width: int, stride: int) -> None:
            super().__init__()
            own = [*convolve(inputs, width, 1), nn.ReLU(), *convolve(width, width, 3, stride), nn.ReLU()]
            self.own = nn.Sequential(*own, *convolve(width, 4 * width, 1))
            fits = inputs == 4 * width and stride == 1
            self.shortcut = nn.Identity() if fits else nn.Sequential(*convolve(inputs, 4 * width, 1, stride))

        def forward(self, x: Any) -> Any:
            return torch.relu(self.own(x) + self.shortcut(x))

    layers: list[Any] = [*convolve(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1)]
    inputs = 64
    for stage, (width, count) in enumerate(STAGES):
        for block in range(count):
            layers.append(Bottleneck(inputs, width, 2 if stage and not block else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def make_model(torch: Any, timing: Timing, device: str) -> Call | None:
    """Returns the call of a timed model in bf16 without gradients; None if the timing is that of an operation. Images
    are laid out by channels last, which is PyTorch's faster layout."""
    makers: dict[str, Callable[[Any], Any]] = {"minilm": make_encoder, "resnet50": make_resnet}
    if timing.peer not in makers:
        return None
    model = makers[timing.peer](torch).to(device=device, dtype=torch.bfloat16).eval().requires_grad_(False)
    if timing.peer == "resnet50":
        model = model.to(memory_format=torch.channels_last)
    return model  # type: ignore[no-any-return]  # a module of PyTorch


def make_arguments(torch: Any, timing: Timing, device: str) -> Sequence[Any]:
    """Returns random arguments; floats of models are bf16, indices and masks are 1."""
    dtypes = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
    made = []
    for dtype, shape in timing.arguments:
        if dtype == "i64":
            made.append(torch.ones(shape, device=device, dtype=torch.int64))
            continue
        x = torch.randn(shape, device=device, dtype=dtypes[dtype])
        if timing.peer == "resnet50":
            x = x.to(dtype=torch.bfloat16, memory_format=torch.channels_last)
        made.append(x)
    return made
