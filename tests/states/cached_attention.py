"""A GPT-2 block in two forms: with a cache of keys and values, and whole, from the same parameters."""

from __future__ import annotations

import numpy as np
from nacre.dialect.types import Array

WIDTH, HEADS = 24, 3

TEXT = f"""language 1
dim B in 1..4
dim T in 0..64
dim S in 1..128

block Linear<inputs, outputs>(x: f32[..., inputs]) -> f32[..., outputs] {{
  param weight: f32[outputs, inputs]
  param bias: f32[outputs]
  return x @ weight.T + bias
}}

block Norm<width>(x: f32[..., width]) -> f32[..., width] {{
  param weight: f32[width]
  param bias: f32[width]
  return layer_norm(x, weight, bias)
}}

block Cached<width, heads>(
  q: f32[B, heads, T, width], k: f32[B, heads, T, width], v: f32[B, heads, T, width], at: i64
) -> f32[B, heads, T, width] {{
  state keys: f32[B, heads, S, width]
  state values: f32[B, heads, S, width]
  keys[:, :, at : at + T] = k
  values[:, :, at : at + T] = v
  seen = iota((S,), dtype=i64)[None, :] <= at + iota((T,), dtype=i64)[:, None]
  return softmax(where(seen, q @ keys.mT / sqrt(width), -inf)) @ values
}}

block Whole<width, heads>(
  q: f32[B, heads, T, width], k: f32[B, heads, T, width], v: f32[B, heads, T, width]
) -> f32[B, heads, T, width] {{
  seen = iota((T,), dtype=i64)[None, :] <= iota((T,), dtype=i64)[:, None]
  return softmax(where(seen, q @ k.mT / sqrt(width), -inf)) @ v
}}

block Projections<width, heads>(
  x: f32[B, T, heads * width]
) -> f32[B, heads, T, width], f32[B, heads, T, width], f32[B, heads, T, width] {{
  use query, key, value = Linear<heads * width, heads * width>
  q = query(x) |> rearrange("b t (h d) -> b h t d", h=heads)
  k = key(x) |> rearrange("b t (h d) -> b h t d", h=heads)
  v = value(x) |> rearrange("b t (h d) -> b h t d", h=heads)
  return q, k, v
}}

block Feed<width>(x: f32[B, T, width]) -> f32[B, T, width] {{
  use norm = Norm<width>
  use wide = Linear<width, 4*width>
  use narrow = Linear<4*width, width>
  return x + narrow(gelu(wide(norm(x))))
}}

block Layer<width, heads>(x: f32[B, T, width], at: i64) -> f32[B, T, width] {{
  use norm = Norm<width>
  use attention = Projections<width // heads, heads>
  use cache = Cached<width // heads, heads>
  use out = Linear<width, width>
  use feed = Feed<width>
  q, k, v = attention(norm(x))
  return feed(x + out(cache(q, k, v, at) |> rearrange("b h t d -> b t (h d)")))
}}

block WholeLayer<width, heads>(x: f32[B, T, width]) -> f32[B, T, width] {{
  use norm = Norm<width>
  use attention = Projections<width // heads, heads>
  use mixed = Whole<width // heads, heads>
  use out = Linear<width, width>
  use feed = Feed<width>
  q, k, v = attention(norm(x))
  return feed(x + out(mixed(q, k, v) |> rearrange("b h t d -> b t (h d)")))
}}

model prefill(x: f32[B, T, {WIDTH}]) -> y: f32[B, T, {WIDTH}] {{
  state length: i64
  use layer[2] = Layer<{WIDTH}, {HEADS}>
  repeat i in 0..2 {{ x = layer[i](x, length) }}
  length = length + T
  return x
}}

model whole(x: f32[B, T, {WIDTH}]) -> y: f32[B, T, {WIDTH}] {{
  use layer[2] = WholeLayer<{WIDTH}, {HEADS}>
  repeat i in 0..2 {{ x = layer[i](x) }}
  return x
}}
"""


def make_weights() -> dict[str, Array]:
    """Returns random parameters of both layers."""
    rng = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in ("layer.0", "layer.1"):
        for name in ("attention.query", "attention.key", "attention.value", "out"):
            shapes |= {f"{layer}.{name}.weight": (WIDTH, WIDTH), f"{layer}.{name}.bias": (WIDTH,)}
        for name in ("norm", "feed.norm"):
            shapes |= {f"{layer}.{name}.weight": (WIDTH,), f"{layer}.{name}.bias": (WIDTH,)}
        shapes |= {f"{layer}.feed.wide.weight": (4 * WIDTH, WIDTH), f"{layer}.feed.wide.bias": (4 * WIDTH,)}
        shapes |= {f"{layer}.feed.narrow.weight": (WIDTH, 4 * WIDTH), f"{layer}.feed.narrow.bias": (WIDTH,)}
    return {name: (rng.standard_normal(shape) * 0.2).astype(np.float32) for name, shape in shapes.items()}
