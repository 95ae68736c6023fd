"""Model text with blocks: a graph that is saved keeps its instances, loops, keys and numbers."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.readers.language import load_module
from nacre.compiler.readers.language.model_writer import write_model
from nacre.dialect.graph import Function, Module, Node, Parameter, walk
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.states import stateless

ROOT = Path(__file__).parents[3]
NAMES = (
    "samples/digits/digits",
    "samples/vision/resnet18",
    "tests/models/gpt2",
    "tests/models/experts",
    "tests/models/speech",
    "tests/models/whisper",
)
MODELS = [ROOT / f"{name}.nacre" for name in NAMES]

TWICE = """
block Linear<n>(x: f32[n]) -> f32[n] {
  param weight: f32[n, n]
  return x @ weight.T
}

block Pair<n>(x: f32[n]) -> f32[n], f32[n] {
  use first, second = Linear<n>
  y = first(x) * 2
  return second(y), y
}

model twice(x: f32[4]) -> f32[4], f32[4] {
  use shared = Linear<4>
  use pair = Pair<4>
  use tower[3] = Linear<4>
  y, z = pair(shared(relu(shared(x))))
  repeat i in 0..2 { y = tower[i + 1](y) }
  return y * 2, z @ shared.weight
}
"""


def _path(text: str) -> str:
    """Returns a path as the text writes it: `layer.0` is `layer.v0`, since a name begins with no digit."""
    return re.sub(r"\.(?=\d)", ".v", text)


def scopes(module: Module) -> Counter[tuple[str, str]]:
    free = ("parameter", "constant", "size_value")
    return Counter(
        (n.op.removeprefix("dynamic_"), _path(n.scope))
        for f in module.functions
        for n in walk(f.body)
        if n.op not in free
    )


def assert_same_results(before: Module, after: Module) -> None:
    """Runs the first functions of both on random parameters and arguments; every dim is 3."""
    rng = np.random.default_rng(0)
    stored = {p.key: rng.normal(size=(*p.counts, *p.type.shape)).astype(np.float32) for p in before.parameters}
    function, sizes = before.functions[0], {dim.name: 3 for dim in before.dims}
    arguments = [rng.normal(size=a.type.concrete(sizes)).astype(np.float32) for a in function.inputs]

    def run(module: Module) -> list[np.ndarray]:
        def load(parameter: Parameter) -> np.ndarray:
            key = parameter.key
            if key in stored:
                return stored[key]
            prefix, number, rest = key.split(".", 2)
            return stored[f"{prefix}.{{}}.{rest}"][int(number)]

        return [np.asarray(a) for a in Interpreter(stateless(module), load).run(module.functions[0], arguments)]

    for one, other in zip(run(before), run(after), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_saved_models_keep_their_blocks(path: Path, tmp_path: Path) -> None:
    before = nacre.graph.read(path).module
    after = load_module(write_model(before, blocks=True), text=True).module
    assert sorted(p.key for p in after.parameters) == sorted(p.key for p in before.parameters)
    if not before.states:
        assert sorted(_path(p.name) for p in after.parameters) == sorted(_path(p.name) for p in before.parameters)
        assert scopes(after) == scopes(before)


def test_instances_that_are_called_twice() -> None:
    before = load_module(TWICE, text=True).module
    text = write_model(before, blocks=True)
    after = load_module(text, text=True).module
    assert re.findall(r"^\s*use (.*)$", text, re.MULTILINE) == [
        "first = Shared",
        "second = Shared",
        "shared = Shared",
        "pair = Pair",
        "tower[3] = Shared",
    ]
    assert "v3 = shared(x)" in text and "v8 = shared(v4)" in text and "tower[i+1](y_3)" in text
    assert scopes(after) == scopes(before)
    assert_same_results(before, after)


def test_equal_blocks_are_written_once() -> None:
    text = """
block Linear<n>(x: f32[n]) -> f32[n] {
  param weight: f32[n, n]
  return x @ weight.T
}

model two(x: f32[4]) -> f32[4] {
  use query, key = Linear<4>
  return key(query(x))
}
"""
    written = write_model(load_module(text, text=True).module, blocks=True)
    assert written.count("block ") == 1 and written.count("use ") == 2


SIZES = """
dim B in 1..8

block Down(x: f32[B, 4, H, W]) -> f32[B, 4, (H+1) // 2, (W+1) // 2] {
  param weight: f32[4, 4, 3, 3]
  return conv2d(x, weight, padding=1, stride=2) + x[:, :, ::2, ::2]
}

block Mix(x: f32[B, 4, H, W], side: f32[B, D, 2*H, W]) -> f32[B, (4+D)*H, W] {
  use down = Down
  use stem[2] = Down
  y = x |> down |> down
  z = x |> stem[0] |> stem[1]
  both = concat([resize(x, scales=(2, 1)), side], axis=1)
  return reshape(max_pool2d(both, (2, 1)), (B, (4+D) * H, W)) + cast(H, f32) + mean(y) + mean(z)
}

model mixed(x: f32[B, 4, 8, 8], y: f32[B, 4, 5, 12]) -> f32[B, 88, 8], f32[B, 40, 12] {
  use mix = Mix
  return mix(x, concat([x, x[:, :3]], axis=1) |> resize(scales=(2, 1))), mix(y, y |> resize(scales=(2, 1)))
}
"""


def test_an_instance_is_called_with_several_sizes() -> None:
    before = load_module(SIZES, text=True).module
    text = write_model(before, blocks=True)
    after = load_module(text, text=True).module
    assert re.findall(r"^block .*\{$", text, re.MULTILINE) == [
        "block Down(x: f32[B, 4, H, W]) -> f32[B, 4, (H + 1)//2, (W + 1)//2] {",
        "block Mix(x: f32[B, 4, H, W], x_2: f32[B, C, H_2, W]) -> f32[B, C*H+4*H, W] {",
    ]
    assert re.findall(r"use (.*)$", text, re.MULTILINE) == ["down = Down", "stem[2] = Down", "mix = Mix"]
    assert scopes(after) == scopes(before)
    assert_same_results(before, after)


def test_sizes_without_an_expression_stay_outside_of_a_block() -> None:
    """Nothing that the call receives tells how many rows it returns."""
    model = """
block Rows<n>(x: f32[k]) -> f32[n] {
  param weight: f32[9]
  return weight[:n] + mean(x)
}

model rows(x: f32[2], y: f32[3]) -> f32[1], f32[8] {
  use rows = Rows<1>
  use others = Rows<8>
  few = rows(x)
  many = others(y * 2)
  return few, many + others(x + 1)
}
"""
    before = load_module(model, text=True).module
    merged = Module(
        before.name,
        before.dims,
        before.parameters[:1],
        tuple(_one_instance(function) for function in before.functions),
    )
    text = write_model(merged, blocks=True)
    assert "use " not in text and text.count("# rows") == 3, text
    assert_same_results(merged, load_module(text, text=True).module)


def _one_instance(function: Function) -> Function:
    """Returns the function as if `rows` were called for all rows."""

    def changed(node: Node) -> Node:
        attributes = tuple((n, str(v).replace("others", "rows") if n == "name" else v) for n, v in node.attributes)
        return replace(node, scope=node.scope.replace("others", "rows"), attributes=attributes)

    return replace(function, body=tuple(map(changed, function.body)))
