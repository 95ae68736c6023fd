"""Model text with blocks: a graph that is saved keeps its instances, loops, keys and numbers."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.readers.language import load_module
from nacre.compiler.readers.language.model_writer import write_model
from nacre.dialect.graph import Module, walk
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
    rng = np.random.default_rng(0)
    stored = {p.key: rng.normal(size=(*p.counts, *p.type.shape)).astype(np.float32) for p in before.parameters}
    x = rng.normal(size=4).astype(np.float32)

    def run(module: Module) -> list[np.ndarray]:
        def load(parameter: object) -> np.ndarray:
            key = parameter.key  # type: ignore[attr-defined]
            if key in stored:
                return stored[key]
            prefix, number, rest = key.split(".", 2)
            return stored[f"{prefix}.{{}}.{rest}"][int(number)]

        return [np.asarray(a) for a in Interpreter(stateless(module), load).run(module.functions[0], [x])]

    for one, other in zip(run(before), run(after), strict=True):
        np.testing.assert_array_equal(one, other)


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
