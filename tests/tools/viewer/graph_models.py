"""Models for the tests of pictures: blocks in blocks, loops, what is read far away, and one of two thousand nodes."""

from __future__ import annotations

import json
from pathlib import Path

from nacre.compiler.checking import read_model
from nacre.compiler.lower.cost import count_operations
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.tools.viewer.tree import Body, Item
from nacre.dialect.dims import evaluate
from nacre.dialect.graph import Module, Node, walk
from nacre.dialect.parser import parse_module

DIGITS = Path(__file__).parents[3] / "samples" / "digits" / "digits.nacre"

DECODER = """dim T in 1..64

block Linear<inputs, outputs>(x: f32[..., inputs]) -> f32[..., outputs] {
  param weight: f32[outputs, inputs]
  param bias: f32[outputs]
  return x @ weight.T + bias
}

block Attention<width>(x: f32[T, width], mask: f32[T, T]) -> f32[T, width] {
  use query, key, value, output = Linear<width, width>
  return output(softmax(query(x) @ key(x).T / 4 + mask) @ value(x))
}

block Layer<width>(x: f32[T, width], mask: f32[T, T]) -> f32[T, width] {
  use attention = Attention<width>
  use first = Linear<width, width * 4>
  use second = Linear<width * 4, width>
  h = x + attention(x, mask)
  return h + second(gelu(first(h)))
}

model decode(x: f32[T, 16], mask: f32[T, T]) -> y: f32[T, 16] {
  use layer[LAYERS] = Layer<16>
  repeat i in 0..LAYERS { x = layer[i](x, mask) }
  return x
}
"""


def decoder(layers: int) -> str:
    """A transformer with so many layers; unrolled, each has some thirty nodes, of which ten are parameters."""
    return DECODER.replace("LAYERS", str(layers))


def build(source: str | Path, level: int = 2) -> Build:
    """The build of a model, its graph optimized."""
    made = Build(read_model(source), Options(level=level))
    made.optimize()
    return made


def parse(text: str) -> Module:
    return parse_module(text)


def measured(build: Build, path: Path) -> dict[int, float]:
    """Writes a profile as `nacre profile --json` does: kernel number i of the last graph takes i + 1 microseconds."""
    function = build.stages[-1].module.functions[0]
    kernels = [node for node in function.body if node.op == "fusion"]
    calls = [
        {
            "seconds": (i + 1) * 1e-6,
            "flops": evaluate(count_operations([node]), {"T": 32}),
            "values": [node.outputs[0].name],
            "ideal_seconds": 1e-9,
        }
        for i, node in enumerate(kernels)
    ]
    message = {
        "entry": function.name,
        "dims": {"T": 32},
        "threads": 1,
        "processor": "a processor",
        "peak": {"flops_per_second": 1e11, "bytes_per_second": 2e10, "products_per_second": {"i8": 4e11}},
        "runs": 10,
        "seconds": 1e-3,
        "calls": calls,
    }
    path.write_text(json.dumps(message))
    return {i: (i + 1) * 1e-6 for i in range(len(kernels))}


def items_of(body: Body) -> list[Item]:
    """Every box, those inside others included."""
    return [item for outer in body.items for item in (outer, *(items_of(outer.body) if outer.body else ()))]


def nodes_of(module: Module) -> list[Node]:
    return [node for function in module.functions for node in walk(function.body)]
