"""Models of many operators: kernels of bounded size, entries in parts, and time that grows with the model."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.host.entry import CALLS_PER_PART
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.readers.language import load_module
from nacre.dialect.graph import walk
from nacre.passes.fusion.fuse_rules import MOST_MEMBERS, TOO_LARGE

# 1200 elementwise operators, and gelu and mish that are several each.
CHAIN = """language 1

dim B in 1..4

model chain(x: f32[B, 8], w: f32[8]) -> f32[B, 8] {
  h = x
  repeat i in 0..400 { h = tanh(h * w + x) }
  repeat i in 0..40 { h = gelu(mish(h * w + x)) }
  return h
}
"""

# Each step uses its operand twice: an expression of 2^60 leaves where it is written as a tree.
DOUBLING = """language 1

model double(x: f64[8]) -> f64[8] {
  h = x
  repeat i in 0..60 { h = (h + h) * 0.5 }
  return h
}
"""

# No group takes a running sum, so that each is a call.
CALLS = """language 1

dim N in 0..8

model sums(x: f64[N]) -> f64[N] {
  h = x
  repeat i in 0..600 { h = cumsum(h, axis=0) * 0.5 }
  return h
}
"""


def optimized(text: str) -> Build:
    build = Build(load_module(text, text=True), Options())
    build.lower(build.optimize())
    return build


def test_groups_have_a_largest_size() -> None:
    build = optimized(CHAIN)
    assert build.optimized is not None
    groups = [node for node in build.optimized.functions[0].body if node.op == "fusion"]
    sizes = [sum(inner.op != "constant" for inner in walk(node.regions[0].body)) for node in groups]
    assert len(groups) >= 20
    assert max(sizes) <= MOST_MEMBERS
    assert any(TOO_LARGE in remark.text for remark in build.remarks)


@pytest.mark.usefixtures("unchecked")
def test_a_long_chain_agrees_with_numpy(tmp_path: Path) -> None:
    x, w = np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8), np.full(8, 0.5, np.float32)
    expected = x.astype(np.float64)
    text = CHAIN.replace("  repeat i in 0..40 { h = gelu(mish(h * w + x)) }\n", "")
    for _ in range(400):
        expected = np.tanh(expected * w + x)
    # A step shrinks the error of the one before by half at least.
    np.testing.assert_allclose(nacre.compile(text, tmp_path / "chain.so")(x, w), expected, rtol=0, atol=4e-7)


@pytest.mark.usefixtures("unchecked")
def test_an_operand_that_is_used_twice_is_visited_once(tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 8)
    np.testing.assert_array_equal(nacre.compile(DOUBLING, tmp_path / "double.so")(x), x)


@pytest.mark.usefixtures("unchecked")
def test_an_entry_of_many_calls_is_written_in_parts(tmp_path: Path) -> None:
    build = optimized(CALLS)
    program = build.generate(build.lowered)
    (entry,) = program.entries
    for text in (entry.text(), entry.observed_text()):
        assert text.count("noinline") == -(-len(entry.calls) // CALLS_PER_PART)
    expected = x = np.linspace(-1, 1, 8)
    for _ in range(600):
        expected = np.cumsum(expected) * 0.5
    model = nacre.compile(CALLS, tmp_path / "sums.so")
    np.testing.assert_allclose(model(x), expected, rtol=1e-12)
    events: list[int] = []
    with nacre.runtime.observe.observe(model, lambda event: events.append(event.call.number)):
        np.testing.assert_allclose(model(x), expected, rtol=1e-12)
    assert events == sorted(set(events)) and len(events) == len(program.entries[0].calls)
