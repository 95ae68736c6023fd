"""Single operators and short chains: matrix products, softmax, norms, attention, elementwise."""

from __future__ import annotations

from collections.abc import Iterator
from math import pi

from .workload import Bound, Workload

GEMM = (
    (128, 384, 384),
    (128, 384, 1536),
    (128, 1536, 384),
    (512, 512, 512),
    (1024, 1024, 1024),
    (37, 200, 129),
    (1, 384, 384),
    (7, 384, 1536),
    (197, 768, 768),
)
"""Rows, sum, columns; the weight is a parameter."""
BENT = ((128, 384, 1536), (37, 200, 129), (1, 384, 1536))
SOFTMAX = ((1536, 128), (128, 4096), (8, 32000))
NORMS = ((128, 384), (1, 384), (512, 768))
TIMES = (128, 512, 2048)
HEADS = ((12, 32), (8, 64))
TURNED = ((128, 1024, 4096), (16, 1024, 4096), (1, 1024, 4096))
"""Rows, sum, columns; what is transposed is an argument."""
DECODED = ((2048, 8, 8, 64), (2048, 32, 8, 128))
"""Keys, heads, heads of keys, their width; one query."""


def workloads() -> Iterator[Workload]:
    yield from (gemm(*sizes) for sizes in GEMM)
    yield from (gemm_gelu(*sizes) for sizes in BENT)
    yield gemv_chain(16, 768, 3072)
    yield from (softmax(*sizes) for sizes in SOFTMAX)
    yield from (layer_norm(*sizes) for sizes in NORMS)
    for time in TIMES:
        for heads, width in HEADS:
            yield attention(time, heads, width, causal=False)
            yield attention(time, heads, width, causal=True)
            yield attention_operator(time, heads, width, causal=False)
            yield attention_operator(time, heads, width, causal=True)
    yield attention_heads(2048, 2048, 8, 2, 64, causal=True)
    yield from (attention_heads(1, *sizes, causal=False) for sizes in DECODED)
    yield from (gemm_turned(*sizes) for sizes in TURNED)
    yield scores(512, 8, 64)
    yield spectrum(16000, 512, 128)
    yield elementwise(1024)


def gemm(m: int, k: int, n: int) -> Workload:
    text = f"""model product(x: f32[{m}, {k}]) -> f32[{m}, {n}] {{
  param weight: f32[{k}, {n}]
  return x @ weight
}}
"""
    return Workload(f"gemm-{m}x{k}x{n}", text, bound=Bound.COMPUTE)


def gemm_gelu(m: int, k: int, n: int) -> Workload:
    text = f"""model layer(x: f32[{m}, {k}]) -> f32[{m}, {n}] {{
  param weight: f32[{k}, {n}]
  param bias: f32[{n}]
  return gelu(x @ weight + bias)
}}
"""
    return Workload(f"gemm-gelu-{m}x{k}x{n}", text, bound=Bound.COMPUTE)


def gemm_turned(m: int, k: int, n: int) -> Workload:
    """By the transpose of an argument."""
    text = f"""model product(x: f32[{m}, {k}], w: f32[{n}, {k}]) -> f32[{m}, {n}] {{
  return x @ w.T
}}
"""
    return Workload(f"gemm-turned-{m}x{k}x{n}", text, bound=Bound.COMPUTE)


def gemv_chain(layers: int, width: int, inner: int) -> Workload:
    """One row through more weights than any cache holds."""
    text = f"""block Layer(x: f32[1, {width}]) -> f32[1, {width}] {{
  param up: f32[{width}, {inner}]
  param down: f32[{inner}, {width}]
  return relu(x @ up) @ down
}}

model chain(x: f32[1, {width}]) -> f32[1, {width}] {{
  use layer[{layers}] = Layer
  repeat i in 0..{layers} {{ x = layer[i](x) }}
  return x
}}
"""
    return Workload(f"gemv-chain-{layers}x{width}x{inner}", text, bound=Bound.MEMORY)


def softmax(rows: int, columns: int) -> Workload:
    shape = f"f32[{rows}, {columns}]"
    return Workload(f"softmax-{rows}x{columns}", f"model m(x: {shape}) -> {shape} {{ return softmax(x) }}\n")


def layer_norm(rows: int, columns: int) -> Workload:
    """With the residual before it, as transformers have it."""
    shape = f"f32[{rows}, {columns}]"
    text = f"""model m(x: {shape}, skip: {shape}) -> {shape} {{
  param weight: f32[{columns}]
  param bias: f32[{columns}]
  return layer_norm(x + skip, weight, bias)
}}
"""
    return Workload(f"layernorm-{rows}x{columns}", text)


def attention(time: int, heads: int, width: int, *, causal: bool) -> Workload:
    """Written with the operators that exporters write."""
    shape = f"f32[1, {heads}, {time}, {width}]"
    masked = f"where(triangular_mask({time}, {time}), score, -1e9)" if causal else "score"
    text = f"""model m(q: {shape}, k: {shape}, v: {shape}) -> {shape} {{
  score = q @ k.mT / sqrt({width})
  return softmax({masked}) @ v
}}
"""
    return Workload(f"attention-{_attention(time, heads, width, causal)}", text, bound=Bound.COMPUTE)


def attention_operator(time: int, heads: int, width: int, *, causal: bool) -> Workload:
    """As the one operator that Nacre, ONNX and PyTorch have for it."""
    shape = f"f32[1, {heads}, {time}, {width}]"
    text = f"""model m(q: {shape}, k: {shape}, v: {shape}) -> {shape} {{
  return attention(q, k, v{", causal=true" if causal else ""})
}}
"""
    return Workload(f"attention-operator-{_attention(time, heads, width, causal)}", text, bound=Bound.COMPUTE)


def attention_heads(queries: int, keys: int, heads: int, shared: int, width: int, *, causal: bool) -> Workload:
    """With fewer heads of keys and values, or with other numbers of queries and keys."""
    one, both = f"f32[1, {heads}, {queries}, {width}]", f"f32[1, {shared}, {keys}, {width}]"
    text = f"""model m(q: {one}, k: {both}, v: {both}) -> {one} {{
  return attention(q, k, v{", causal=true" if causal else ""})
}}
"""
    name = f"attention-operator-t{queries}-s{keys}-{heads}of{shared}x{width}{'-causal' if causal else ''}"
    return Workload(name, text)


def scores(time: int, heads: int, width: int) -> Workload:
    """Scores of attention with the heads behind the positions."""
    shape = f"f32[1, {time}, {heads}, {width}]"
    text = f"""model m(q: {shape}, k: {shape}) -> f32[1, {heads}, {time}, {time}] {{
  return einsum("bqhd,bkhd->bhqk", q, k)
}}
"""
    return Workload(f"scores-t{time}-{heads}x{width}", text, bound=Bound.COMPUTE)


def spectrum(samples: int, window: int, hop: int) -> Workload:
    """The Fourier transforms of windows, as a convolution with a basis that the text computes from indices alone. Peers
    get the numbers of the basis."""
    bins = window // 2 + 1
    text = f"""model m(x: f32[1, 1, 1, {samples}]) -> f32[1, {2 * bins}, 1, {(samples - window) // hop + 1}] {{
  angle = iota({bins}, f32)[:, None] * iota({window}, f32) * {2 * pi / window!r}
  hann = 0.5 - 0.5 * cos(iota({window}, f32) * {2 * pi / window!r})
  basis = concat(cos(angle) * hann, -sin(angle) * hann, axis=0)
  return conv2d(x, basis[:, None, None, :], stride=(1, {hop}))
}}
"""
    return Workload(f"spectrum-{samples}-{window}-{hop}", text, bound=Bound.COMPUTE)


def _attention(time: int, heads: int, width: int, causal: bool) -> str:
    return f"t{time}-{heads}x{width}{'-causal' if causal else ''}"


def elementwise(side: int) -> Workload:
    """A transpose and two broadcasts, of which every element is used once."""
    text = f"""model m(x: f32[{side}, {side}], row: f32[{side}], column: f32[{side}, 1]) -> f32[{side}, {side}] {{
  return tanh(x.T * row + column)
}}
"""
    return Workload(f"elementwise-{side}x{side}", text)
