"""Convolutions of the networks that people use, for one image: 3x3, 1x1, depthwise, and chains of them.

Peers and we get and give images as [channels, height, width]. A chain shows what a convolution costs inside a network,
where the layout is the compiler's own. What is strict is summed as it is written, without Winograd's transforms.
"""

from __future__ import annotations

from collections.abc import Iterator

from .workload import Bound, Workload

SQUARE = ((56, 64), (28, 128), (14, 256), (7, 512))
"""Side of the image, channels."""
POINTWISE = ((56, 64, 256), (28, 512, 128), (14, 256, 1024), (7, 2048, 512))
DEPTHWISE = ((112, 32), (56, 128), (14, 512))
LAYERS = 4


def workloads() -> Iterator[Workload]:
    for side, channels in SQUARE:
        text = single(side, channels, channels, 3, 1)
        yield Workload(f"conv3x3-{side}x{channels}", text, bound=Bound.COMPUTE)
        yield Workload(f"conv3x3-{side}x{channels}-strict", text, bound=Bound.COMPUTE, strict=True)
        yield Workload(f"conv3x3-chain-{side}x{channels}", chain(side, channels, 1), bound=Bound.COMPUTE)
        yield any_side(side, channels)
    for side, inputs, outputs in POINTWISE:
        yield Workload(f"conv1x1-{side}x{inputs}x{outputs}", single(side, inputs, outputs, 1, 1), bound=Bound.COMPUTE)
    for side, channels in DEPTHWISE:
        text = single(side, channels, channels, 3, channels)
        yield Workload(f"depthwise-{side}x{channels}", text, bound=Bound.COMPUTE)
        yield Workload(f"depthwise-chain-{side}x{channels}", chain(side, channels, channels), bound=Bound.COMPUTE)


def single(side: int, inputs: int, outputs: int, size: int, groups: int) -> str:
    return f"""model m(x: f32[1, {inputs}, {side}, {side}]) -> f32[1, {outputs}, {side}, {side}] {{
  param weight: f32[{outputs}, {inputs // groups}, {size}, {size}]
  return conv2d(x, weight, padding={size // 2}, groups={groups})
}}
"""


def any_side(side: int, channels: int) -> Workload:
    """For images of any height and width, and beside it ours for images of this one."""
    text = single(side, channels, channels, 3, 1)
    shape = f"f32[1, {channels}, {side}, {side}]"
    symbolic = "dim H in 1..1024\ndim W in 1..1024\n\n" + text.replace(shape, f"f32[1, {channels}, H, W]")
    return Workload(
        f"conv3x3-any-{side}x{channels}",
        symbolic,
        dims={"H": side, "W": side},
        bound=Bound.COMPUTE,
        variants={"nacre, static sizes": text},
    )


def chain(side: int, channels: int, groups: int) -> str:
    """Layers of 3x3 with bias and relu."""
    shape = f"f32[1, {channels}, {side}, {side}]"
    return f"""block Layer(x: {shape}) -> {shape} {{
  param weight: f32[{channels}, {channels // groups}, 3, 3]
  param bias: f32[{channels}]
  return relu(conv2d(x, weight, bias, padding=1, groups={groups}))
}}

model m(x: {shape}) -> {shape} {{
  use layer[{LAYERS}] = Layer
  repeat i in 0..{LAYERS} {{ x = layer[i](x) }}
  return x
}}
"""
