"""Blocks of several operators as models have them, and the calls of PyTorch that compute the same.

Single operators are in `operators.py`; a block shows what its fusion costs or saves. A name in a shape is a size that
calls have as `SIZES` says. In a symbolic sweep, the model is for all sizes up to `BOUND` times as large.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch.nn import functional as f

SIZES = {"L": 128, "S": 256, "N": 64, "H": 28}
BOUND = 4
TRAINED = "trained_"
"""The prefix of the names of parameters in a training step."""
Shapes = Mapping[str, str]


@dataclass(frozen=True)
class Block:
    """`text` is what the block returns, in terms of its inputs and weights; `torch` takes these in order. Shapes are
    texts such as `L, 768`."""

    inputs: Shapes
    weights: Shapes
    text: str
    result: str
    torch: Callable[..., Any]

    def write(self, dtype: str, *, symbolic: bool) -> str:
        """Returns the text of the model `block`."""
        inputs = ", ".join(f"{name}: {dtype}[{shape}]" for name, shape in self.inputs.items())
        weights = "".join(f"  param {name}: {dtype}[{shape}]\n" for name, shape in self.weights.items())
        return self._sized(
            f"model block({inputs}) -> {dtype}[{self.result}] {{\n{weights}  return {self.text}\n}}\n", symbolic
        )

    def write_step(self, dtype: str, *, symbolic: bool) -> str:
        """Returns the text of the training step `block`, whose loss is the sum of the result times the last but one
        argument. It trains the weights, and a factor of the square that is added to each input, so that gradients reach
        the inputs as well, those of normalized rows too. Parameters are in f32, and converted to the dtype."""
        inputs = "".join(f"given_{name}: {dtype}[{shape}], " for name, shape in self.inputs.items())
        trained = {**{name: "f32" for name in self.inputs}, **{n: f"f32[{shape}]" for n, shape in self.weights.items()}}
        lines = [f"param {TRAINED}{name}: {type}" for name, type in trained.items()]
        lines += [
            f"{name} = given_{name} + cast({TRAINED}{name}, {dtype}) * given_{name} * given_{name}"
            for name in self.inputs
        ]
        lines += [f"{name} = cast({TRAINED}{name}, {dtype})" for name in self.weights]
        lines += [f"y = {self.text}", "loss = cast(sum(y * upstream), f32)", "minimize loss with sgd(lr=lr)"]
        body = "".join(f"  {line}\n" for line in lines)
        head = f"train block({inputs}upstream: {dtype}[{self.result}], lr: f32) -> loss: f32"
        return self._sized(f"{head} {{\n{body}}}\n", symbolic)

    def _sized(self, text: str, symbolic: bool) -> str:
        if not symbolic:
            return f"language 1\n\n{at_sizes(text)}"
        dims = "".join(f"dim {name} in 1..{BOUND * size}\n" for name, size in SIZES.items() if name in self.sizes)
        return f"language 1\n\n{dims}\n{text}"

    @property
    def sizes(self) -> set[str]:
        """The names of sizes in the shapes of the inputs."""
        return {size for shape in self.inputs.values() for size in re.findall(r"[A-Z]", shape)}


def at_sizes(text: str) -> str:
    """Returns the text with a number for each size."""
    return re.sub(rf"\b({'|'.join(SIZES)})\b", lambda match: str(SIZES[match[1]]), text)


def shape_of(text: str) -> tuple[int, ...]:
    return tuple(prod(map(int, size.split("*"))) for size in at_sizes(text).split(",") if size.strip())


def _normalize(x: Any, axes: tuple[int, ...]) -> Any:
    mean = x.mean(axes, keepdim=True)
    return (x - mean) / torch.sqrt(((x - mean) ** 2).mean(axes, keepdim=True) + 1e-5)


def _normalized(axes: str) -> str:
    mean = f"mean(x, axis={axes}, keepdims=true)"
    return f"(x - {mean}) / sqrt(mean((x - {mean}) ** 2.0, axis={axes}, keepdims=true) + 1e-5)"


def _attend(q: Any, k: Any, v: Any) -> Any:
    return f.scaled_dot_product_attention(q[None], k[None], v[None])[0]


_QKV = {"q": "8, S, 64", "k": "8, S, 64", "v": "8, S, 64"}
_SCORES = "q @ k.mT * 0.125"
_IMAGE, _PATCH = {"x": "1, 64, H, H"}, {"x": "1, 96, 2*H, 2*H"}
_NORM = {"g": "768", "h": "768"}

PRODUCTS = {
    "linear": Block(
        {"x": "L, 768"},
        {"w": "3072, 768", "b": "3072"},
        "x @ w.T + b",
        "L, 3072",
        f.linear,
    ),
    "linear, gelu": Block(
        {"x": "L, 768"},
        {"w": "3072, 768", "b": "3072"},
        "gelu(x @ w.T + b)",
        "L, 3072",
        lambda x, w, b: f.gelu(f.linear(x, w, b)),
    ),
    "linear, one row": Block({"x": "1, 2048"}, {"w": "2048, 2048"}, "x @ w.T", "1, 2048", f.linear),
    "linear, residual, layer norm": Block(
        {"x": "L, 768", "y": "L, 768", **_NORM},
        {"w": "768, 768", "b": "768"},
        "layer_norm(x @ w.T + b + y, g, h)",
        "L, 768",
        lambda x, y, g, h, w, b: f.layer_norm(f.linear(x, w, b) + y, (768,), g, h),
    ),
    "layer norm, linear, gelu": Block(
        {"x": "L, 768", **_NORM},
        {"w": "3072, 768", "b": "3072"},
        "gelu(layer_norm(x, g, h) @ w.T + b)",
        "L, 3072",
        lambda x, g, h, w, b: f.gelu(f.linear(f.layer_norm(x, (768,), g, h), w, b)),
    ),
    "swiglu": Block(
        {"x": "N, 512"},
        {"w": "1376, 512", "v": "1376, 512", "u": "512, 1376"},
        "(silu(x @ w.T) * (x @ v.T)) @ u.T",
        "N, 512",
        lambda x, w, v, u: (f.silu(x @ w.T) * (x @ v.T)) @ u.T,
    ),
    "swiglu, one row": Block(
        {"x": "1, 512"},
        {"w": "1376, 512", "v": "1376, 512", "u": "512, 1376"},
        "(silu(x @ w.T) * (x @ v.T)) @ u.T",
        "1, 512",
        lambda x, w, v, u: (f.silu(x @ w.T) * (x @ v.T)) @ u.T,
    ),
    "two products, tanh": Block(
        {"x": "N, 256", "y": "N, 256"},
        {"w": "256, 256", "v": "256, 256"},
        "tanh(x @ w.T + y @ v.T)",
        "N, 256",
        lambda x, y, w, v: torch.tanh(x @ w.T + y @ v.T),
    ),
    "mlp mixer": Block(
        {"x": "1, 196, 512"},
        {"w": "256, 196", "v": "196, 256"},
        "x + (gelu(x.mT @ w.T) @ v.T).mT",
        "1, 196, 512",
        lambda x, w, v: x + (f.gelu(x.mT @ w.T) @ v.T).mT,
    ),
    "lora": Block(
        {"x": "L, 512"},
        {"w": "512, 512", "a": "8, 512", "b": "512, 8"},
        "x @ w.T + (x @ a.T) @ b.T * 2.0",
        "L, 512",
        lambda x, w, a, b: x @ w.T + (x @ a.T) @ b.T * 2.0,
    ),
    "gate of experts": Block(
        {"x": "N, 512"},
        {"w": "8, 512"},
        "softmax(x @ w.T)",
        "N, 8",
        lambda x, w: torch.softmax(x @ w.T, -1),
    ),
    "batches, three products": Block(
        {"x": "32, N, 64", "y": "32, 64, 64", "z": "32, 64, 64"},
        {},
        "x @ y @ z",
        "32, N, 64",
        lambda x, y, z: x @ y @ z,
    ),
    "bilinear": Block(
        {"x": "N, 256", "y": "N, 256"},
        {"w": "256, 256"},
        "sum((x @ w) * y, axis=1)",
        "N",
        lambda x, y, w: ((x @ w) * y).sum(1),
    ),
    "matrix by a vector": Block({"x": "1024", "w": "S, 1024"}, {}, "w @ x", "S", lambda x, w: w @ x),
    "transpose by a vector": Block({"x": "S", "w": "S, 1024"}, {}, "w.T @ x", "1024", lambda x, w: w.T @ x),
    "transpose by a matrix": Block({"x": "S, 256", "w": "S, 384"}, {}, "w.T @ x", "384, 256", lambda x, w: w.T @ x),
    "matrix by a transpose, bias, relu": Block(
        {"x": "S, 512", "y": "384, 512", "b": "384"},
        {},
        "relu(x @ y.T + b)",
        "S, 384",
        lambda x, y, b: f.relu(x @ y.T + b),
    ),
    "outer product": Block(
        {"x": "S", "y": "1024"},
        {},
        "x[:, None] * y[None, :]",
        "S, 1024",
        torch.outer,
    ),
    "cosine similarities": Block(
        {"x": "S, 384", "y": "S, 384"},
        {},
        "(x / sqrt(sum(x * x, axis=1, keepdims=true))) @ (y / sqrt(sum(y * y, axis=1, keepdims=true))).T",
        "S, S",
        lambda x, y: f.normalize(x) @ f.normalize(y).T,
    ),
    "squared distances": Block(
        {"x": "S, 64", "y": "S, 64"},
        {},
        "sum((x[:, None, :] - y[None, :, :]) ** 2.0, axis=2)",
        "S, S",
        lambda x, y: ((x[:, None] - y[None]) ** 2).sum(2),
    ),
}

ATTENTION = {
    "attention": Block(_QKV, {}, f"softmax({_SCORES}) @ v", "8, S, 64", _attend),
    "attention, causal": Block(
        _QKV,
        {},
        "attention(q, k, v, causal=true)",
        "8, S, 64",
        lambda q, k, v: f.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0],
    ),
    "attention, one query": Block({**_QKV, "q": "8, 1, 64"}, {}, f"softmax({_SCORES}) @ v", "8, 1, 64", _attend),
    "attention, relative positions": Block(
        {**_QKV, "b": "8, S, S"},
        {},
        f"softmax({_SCORES} + b) @ v",
        "8, S, 64",
        lambda q, k, v, b: f.scaled_dot_product_attention(q, k, v, b),
    ),
    "attention, soft cap": Block(
        _QKV,
        {},
        "softmax(tanh(q @ k.mT * 0.01) * 30.0) @ v",
        "8, S, 64",
        lambda q, k, v: torch.softmax(torch.tanh(q @ k.mT * 0.01) * 30, -1) @ v,
    ),
    "attention, windows": Block(
        {"q": "N, 4, 49, 32", "k": "N, 4, 49, 32", "v": "N, 4, 49, 32", "b": "4, 49, 49"},
        {},
        "softmax(q @ k.mT * 0.18 + b) @ v",
        "N, 4, 49, 32",
        lambda q, k, v, b: torch.softmax(q @ k.mT * 0.18 + b, -1) @ v,
    ),
    "attention, linear": Block(
        _QKV,
        {},
        "relu(q) @ (relu(k).mT @ v)",
        "8, S, 64",
        lambda q, k, v: f.relu(q) @ (f.relu(k).mT @ v),
    ),
    "attention, normalized queries and keys": Block(
        {**_QKV, "g": "64", "h": "64"},
        {},
        "softmax(rms_norm(q, g, eps=1e-5) @ rms_norm(k, h, eps=1e-5).mT * 0.125) @ v",
        "8, S, 64",
        lambda q, k, v, g, h: _attend(f.rms_norm(q, (64,), g, 1e-5), f.rms_norm(k, (64,), h, 1e-5), v),
    ),
    "projection, heads": Block(
        {"x": "S, 512"},
        {"w": "512, 512", "b": "512"},
        'rearrange(x @ w.T + b, "t (h d) -> h t d", h=8)',
        "8, S, 64",
        lambda x, w, b: f.linear(x, w, b).view(-1, 8, 64).transpose(0, 1).contiguous(),
    ),
    "heads, projection": Block(
        {"x": "8, S, 64"},
        {"w": "512, 512", "b": "512"},
        'rearrange(x, "h t d -> t (h d)") @ w.T + b',
        "S, 512",
        lambda x, w, b: f.linear(x.transpose(0, 1).reshape(-1, 512), w, b),
    ),
    "rotary positions": Block(
        {"x": "8, S, 64", "c": "S, 64", "s": "S, 64"},
        {},
        "x * c + concat((-x[..., 32:], x[..., :32]), axis=-1) * s",
        "8, S, 64",
        lambda x, c, s: x * c + torch.cat((-x[..., 32:], x[..., :32]), -1) * s,
    ),
}

ROWS = {
    "layer norm": Block(
        {"x": "S, 768", **_NORM}, {}, "layer_norm(x, g, h)", "S, 768", lambda x, g, h: f.layer_norm(x, (768,), g, h)
    ),
    "rms norm": Block(
        {"x": "S, 768", "g": "768"},
        {},
        "rms_norm(x, g, eps=1e-5)",
        "S, 768",
        lambda x, g: f.rms_norm(x, (768,), g, 1e-5),
    ),
    "residual, rms norm": Block(
        {"x": "S, 768", "y": "S, 768", "g": "768"},
        {},
        "rms_norm(x + y, g, eps=1e-5)",
        "S, 768",
        lambda x, y, g: f.rms_norm(x + y, (768,), g, 1e-5),
    ),
    "normalized rows": Block({"x": "S, 1024"}, {}, _normalized("1"), "S, 1024", lambda x: _normalize(x, (1,))),
    "unit rows": Block(
        {"x": "S, 384"},
        {},
        "x / sqrt(sum(x * x, axis=1, keepdims=true))",
        "S, 384",
        f.normalize,
    ),
    "scaled to [0, 1]": Block(
        {"x": "S, 768"},
        {},
        "(x - min(x, axis=1, keepdims=true)) / (max(x, axis=1, keepdims=true) - min(x, axis=1, keepdims=true))",
        "S, 768",
        lambda x: (x - x.amin(1, True)) / (x.amax(1, True) - x.amin(1, True)),
    ),
    "variance of rows": Block(
        {"x": "S, 768"},
        {},
        "mean((x - mean(x, axis=1, keepdims=true)) ** 2.0, axis=1)",
        "S",
        lambda x: x.var(1, unbiased=False),
    ),
    "variance of columns": Block(
        {"x": "S, 768"},
        {},
        "mean((x - mean(x, axis=0, keepdims=true)) ** 2.0, axis=0)",
        "768",
        lambda x: x.var(0, unbiased=False),
    ),
    "masked softmax": Block(
        {"x": "8, L, L", "m": "L, L"},
        {},
        "softmax(x * 0.125 + m)",
        "8, L, L",
        lambda x, m: torch.softmax(x * 0.125 + m, -1),
    ),
    "softmax of columns": Block({"x": "S, 512"}, {}, "softmax(x, axis=0)", "S, 512", lambda x: torch.softmax(x, 0)),
    "log softmax": Block({"x": "N, 8000"}, {}, "log_softmax(x)", "N, 8000", lambda x: f.log_softmax(x, -1)),
    "cross entropy": Block(
        {"x": "N, 8000", "t": "N, 8000"},
        {},
        "mean(sum(-t * log_softmax(x), axis=1))",
        "",
        lambda x, t: (-t * f.log_softmax(x, -1)).sum(1).mean(),
    ),
    "mean of unmasked rows": Block(
        {"x": "8, L, 384", "m": "8, L"},
        {},
        "sum(x * m[:, :, None], axis=1) / (sum(m, axis=1, keepdims=true) + 1000.0)",
        "8, 384",
        lambda x, m: (x * m[:, :, None]).sum(1) / (m.sum(1, True) + 1000.0),
    ),
    "cumulative product": Block(
        {"x": "N, 1000"},
        {},
        "exp(cumsum(log(x * x + 1.0), axis=1) * 0.01)",
        "N, 1000",
        lambda x: torch.exp(torch.cumsum(torch.log(x * x + 1.0), 1) * 0.01),
    ),
    "gated halves": Block({"x": "L, 1024"}, {}, "x[:, :512] * sigmoid(x[:, 512:])", "L, 512", lambda x: f.glu(x, -1)),
    "sampling among the greatest": Block(
        {"x": "N, 1000"},
        {},
        "softmax(where(x >= top_k(x, 10)[0][:, -1:], x, -inf))",
        "N, 1000",
        lambda x: torch.softmax(torch.where(x >= x.topk(10)[0][:, -1:], x, float("-inf")), -1),
    ),
    "sum of three, relu": Block(
        {"x": "S, 1024", "y": "S, 1024", "z": "1024"},
        {},
        "relu(x + y + z)",
        "S, 1024",
        lambda x, y, z: f.relu(x + y + z),
    ),
}

IMAGES = {
    "conv 3x3, bias, relu": Block(
        _IMAGE,
        {"w": "64, 64, 3, 3", "b": "64"},
        "relu(conv2d(x, w, b, padding=1))",
        "1, 64, H, H",
        lambda x, w, b: f.relu(f.conv2d(x, w, b, padding=1)),
    ),
    "conv 1x1, bias, relu": Block(
        {"x": "1, 256, H, H"},
        {"w": "128, 256, 1, 1", "b": "128"},
        "relu(conv2d(x, w, b))",
        "1, 128, H, H",
        lambda x, w, b: f.relu(f.conv2d(x, w, b)),
    ),
    "conv 7x7 of stride 2, bias, relu": Block(
        {"x": "1, 3, 224, 224"},
        {"w": "64, 3, 7, 7", "b": "64"},
        "relu(conv2d(x, w, b, padding=3, stride=2))",
        "1, 64, 112, 112",
        lambda x, w, b: f.relu(f.conv2d(x, w, b, padding=3, stride=2)),
    ),
    "conv 3x3 of stride 2, bias, silu": Block(
        {"x": "1, 64, 2*H, 2*H"},
        {"w": "128, 64, 3, 3", "b": "128"},
        "silu(conv2d(x, w, b, padding=1, stride=2))",
        "1, 128, H, H",
        lambda x, w, b: f.silu(f.conv2d(x, w, b, padding=1, stride=2)),
    ),
    "conv 3x3, dilated": Block(
        _IMAGE,
        {"w": "64, 64, 3, 3"},
        "conv2d(x, w, padding=2, dilation=2)",
        "1, 64, H, H",
        lambda x, w: f.conv2d(x, w, padding=2, dilation=2),
    ),
    "conv 3x3 of 4 groups": Block(
        _IMAGE,
        {"w": "64, 16, 3, 3"},
        "conv2d(x, w, padding=1, groups=4)",
        "1, 64, H, H",
        lambda x, w: f.conv2d(x, w, padding=1, groups=4),
    ),
    "conv, norm, residual, relu": Block(
        {"x": "1, 64, H, H", "y": "1, 64, H, H", "g": "64", "h": "64"},
        {"w": "64, 64, 3, 3"},
        "relu(conv2d(x, w, padding=1) * g[:, None, None] + h[:, None, None] + y)",
        "1, 64, H, H",
        lambda x, y, g, h, w: f.relu(f.conv2d(x, w, padding=1) * g[:, None, None] + h[:, None, None] + y),
    ),
    "bottleneck": Block(
        {"x": "1, 256, H, H"},
        {"w": "64, 256, 1, 1", "v": "64, 64, 3, 3", "u": "256, 64, 1, 1"},
        "relu(conv2d(relu(conv2d(relu(conv2d(x, w)), v, padding=1)), u) + x)",
        "1, 256, H, H",
        lambda x, w, v, u: f.relu(f.conv2d(f.relu(f.conv2d(f.relu(f.conv2d(x, w)), v, padding=1)), u) + x),
    ),
    "inverted bottleneck": Block(
        {"x": "1, 32, 2*H, 2*H"},
        {"w": "192, 32, 1, 1", "v": "192, 1, 3, 3", "u": "32, 192, 1, 1"},
        "conv2d(relu6(conv2d(relu6(conv2d(x, w)), v, padding=1, groups=192)), u) + x",
        "1, 32, 2*H, 2*H",
        lambda x, w, v, u: f.conv2d(f.relu6(f.conv2d(f.relu6(f.conv2d(x, w)), v, padding=1, groups=192)), u) + x,
    ),
    "convnext": Block(
        {**_PATCH, "g": "96", "h": "96"},
        {"w": "96, 1, 7, 7", "v": "384, 96", "u": "96, 384"},
        "x + transpose(gelu(layer_norm(transpose(conv2d(x, w, padding=3, groups=96), (0, 2, 3, 1)), g, h) @ v.T) @ u.T,"
        " (0, 3, 1, 2))",
        "1, 96, 2*H, 2*H",
        lambda x, g, h, w, v, u: (
            x
            + (
                f.gelu(f.layer_norm(f.conv2d(x, w, padding=3, groups=96).permute(0, 2, 3, 1), (96,), g, h) @ v.T) @ u.T
            ).permute(0, 3, 1, 2)
        ),
    ),
    "squeeze and excitation": Block(
        {"x": "1, 128, H, H"},
        {"w": "32, 128", "v": "128, 32"},
        "x * sigmoid(relu(mean(x, axis=(2, 3)) @ w.T) @ v.T)[:, :, None, None]",
        "1, 128, H, H",
        lambda x, w, v: x * torch.sigmoid(f.relu(x.mean((2, 3)) @ w.T) @ v.T)[:, :, None, None],
    ),
    "norm, relu, max pool": Block(
        {"x": "1, 64, 112, 112", "g": "64", "h": "64"},
        {},
        "max_pool2d(relu(x * g[:, None, None] + h[:, None, None]), 3, stride=2, padding=1)",
        "1, 64, 56, 56",
        lambda x, g, h: f.max_pool2d(f.relu(x * g[:, None, None] + h[:, None, None]), 3, 2, 1),
    ),
    "group norm, silu": Block(
        {"x": "1, 256, H, H", "g": "256", "h": "256"},
        {},
        "silu(group_norm(x, g, h, groups=32))",
        "1, 256, H, H",
        lambda x, g, h: f.silu(f.group_norm(x, 32, g, h)),
    ),
    "instance norm": Block(
        {"x": "4, 64, H, H"},
        {},
        _normalized("(2, 3)"),
        "4, 64, H, H",
        lambda x: _normalize(x, (2, 3)),
    ),
    "batch norm of the batch": Block(
        {"x": "16, 64, H, H"},
        {},
        _normalized("(0, 2, 3)"),
        "16, 64, H, H",
        lambda x: _normalize(x, (0, 2, 3)),
    ),
    "layer norm of channels": Block(
        {"x": "1, 96, H, H"},
        {},
        _normalized("1"),
        "1, 96, H, H",
        lambda x: _normalize(x, (1,)),
    ),
    "upsampling, conv": Block(
        {"x": "1, 32, H, H"},
        {"w": "32, 32, 3, 3"},
        "conv2d(resize(x, scales=(2, 2)), w, padding=1)",
        "1, 32, 2*H, 2*H",
        lambda x, w: f.conv2d(f.interpolate(x, scale_factor=2), w, padding=1),
    ),
    "concat, conv": Block(
        {"x": "1, 32, H, H", "y": "1, 32, H, H"},
        {"w": "64, 64, 3, 3"},
        "relu(conv2d(concat((x, y), axis=1), w, padding=1))",
        "1, 64, H, H",
        lambda x, y, w: f.relu(f.conv2d(torch.cat((x, y), 1), w, padding=1)),
    ),
    "transposed conv, relu": Block(
        _IMAGE,
        {"w": "64, 32, 2, 2", "b": "32"},
        "relu(conv_transpose2d(x, w, b, stride=2))",
        "1, 32, 2*H, 2*H",
        lambda x, w, b: f.relu(f.conv_transpose2d(x, w, b, stride=2)),
    ),
    "pixel shuffle": Block(
        {"x": "1, 64, 2*H, 2*H"},
        {},
        'rearrange(x, "b (c p q) h w -> b c (h p) (w q)", p=2, q=2)',
        "1, 16, 4*H, 4*H",
        lambda x: f.pixel_shuffle(x, 2),
    ),
    "patches": Block(
        {"x": "1, 3, 224, 224"},
        {"w": "768, 768"},
        'rearrange(x, "b c (h p) (w q) -> b (h w) (c p q)", p=16, q=16) @ w.T',
        "1, 196, 768",
        lambda x, w: f.unfold(x, 16, stride=16).mT @ w.T,
    ),
    "conv 1d, gelu": Block(
        {"x": "1, 80, S"},
        {"w": "384, 80, 3", "b": "384"},
        "gelu(conv1d(x, w, b, padding=1))",
        "1, 384, S",
        lambda x, w, b: f.gelu(f.conv1d(x, w, b, padding=1)),
    ),
    "causal depthwise conv 1d, silu": Block(
        {"x": "1, 512, S"},
        {"w": "512, 1, 4"},
        "silu(conv1d(pad(x, ((0, 0), (0, 0), (3, 0))), w, groups=512))",
        "1, 512, S",
        lambda x, w: f.silu(f.conv1d(f.pad(x, (3, 0)), w, groups=512)),
    ),
    "gated conv 1d": Block(
        {"x": "1, 64, S"},
        {"w": "128, 64, 3"},
        "conv1d(x, w, padding=1)[:, :64] * sigmoid(conv1d(x, w, padding=1)[:, 64:])",
        "1, 64, S",
        lambda x, w: f.glu(f.conv1d(x, w, padding=1), 1),
    ),
}
BLOCKS: Mapping[str, Block] = {**PRODUCTS, **ATTENTION, **ROWS, **IMAGES}
