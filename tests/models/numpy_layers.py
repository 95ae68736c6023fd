"""Layers in plain numpy, written down from their formulas, for comparison."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = Any
_erf = np.vectorize(math.erf, otypes=[np.float64])


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True, initial=-np.inf))
    return e / e.sum(axis=-1, keepdims=True)


def gelu(x: Array) -> Array:
    return x * (1 + _erf(x / math.sqrt(2))) / 2


def gelu_by_tanh(x: Array) -> Array:
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def sigmoid(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def layer_norm(x: Array, weight: Array = 1, bias: Array = 0) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * weight + bias


def rms_norm(x: Array, weight: Array) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight


def batch_norm(x: Array, mean: Array, variance: Array, weight: Array, bias: Array) -> Array:
    scale = weight / np.sqrt(variance + 1e-5)
    return x * scale[:, None, None] + (bias - mean * scale)[:, None, None]


def group_norm(x: Array, groups: int) -> Array:
    parts = x.reshape(len(x), groups, -1)
    normal = (parts - parts.mean(-1, keepdims=True)) / np.sqrt(parts.var(-1, keepdims=True) + 1e-5)
    return normal.reshape(x.shape)


def convolve(x: Array, weight: Array, stride: int = 1, groups: int = 1) -> Array:
    """A convolution that is padded by half of its kernel."""
    outputs, inputs, size, _ = weight.shape
    pad = size // 2
    rows, columns = (x.shape[2] - 1) // stride + 1, (x.shape[3] - 1) // stride + 1
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    result = np.zeros((len(x), groups, outputs // groups, rows, columns))
    kernel = weight.reshape(groups, outputs // groups, inputs, size, size)
    for i in range(size):
        for j in range(size):
            window = padded[:, :, i : i + (rows - 1) * stride + 1 : stride, j : j + (columns - 1) * stride + 1 : stride]
            window = window.reshape(len(x), groups, inputs, rows, columns)
            result += np.einsum("ngirc,goi->ngorc", window, kernel[..., i, j])
    return result.reshape(len(x), outputs, rows, columns)


def enlarge(x: Array) -> Array:
    """Both last axes twice as long, linearly between the centres of pixels."""

    def weights(size: int) -> Array:
        matrix = np.zeros((2 * size, size))
        for i in range(2 * size):
            at = min(max((i + 0.5) / 2 - 0.5, 0), size - 1)
            low = int(at)
            matrix[i, low] += 1 - (at - low)
            matrix[i, min(low + 1, size - 1)] += at - low
        return matrix

    return np.einsum("nchw,ih,jw->ncij", x, weights(x.shape[2]), weights(x.shape[3]))
