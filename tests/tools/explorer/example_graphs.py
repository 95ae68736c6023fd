"""Graphs that the tests of `nacre.graph` ask and change: a chain with a branch, and a loop over blocks."""

import nacre
from nacre.graph import Graph

LOOP = """
language 1
dim B in 1..8

block Linear<n>(x: f32[B, n]) -> f32[B, n] {
  param weight: f32[n, n]
  param bias: f32[n]
  return x @ weight.T + bias
}

block Layer<n>(x: f32[B, n]) -> f32[B, n] {
  use dense = Linear<n>
  return gelu(dense(x)) + x
}

model f(x: f32[B, 16]) -> y: f32[B, 16] {
  use first = Linear<16>
  use layer[3] = Layer<16>
  h = first(x)
  repeat i in 0..3 { h = layer[i](h) }
  return softmax(h)
}
"""

BRANCH = """
module branch

dim B in 1..8

func f(%x: f32[B, 4], %z: f32[B, 4]) -> (out: f32[B, 4], other: f32[B, 4]) {
  %a = relu(%x) : f32[B, 4] @left
  %b = exp(%a) : f32[B, 4] @left.inner
  %c = tanh(%z) : f32[B, 4] @right
  %d = add(%b, %c) : f32[B, 4]
  %e = multiply(%d, %a) : f32[B, 4]
  return %e, %c
}

func g(%x: f32[B, 4]) -> (f32[B, 4], f32[B]) {
  %s = sum(%x) {axis = 1} : f32[B]
  return %x, %s
}
"""


def loop() -> Graph:
    return nacre.graph.read(LOOP)


def branch() -> Graph:
    return nacre.graph.read(BRANCH)
