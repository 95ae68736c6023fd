"""`ordered-last` keeps the results of sorts along every axis, and leaves those whose elements are adjacent."""

import numpy as np
import pytest
from nacre.dialect.graph import Module
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.parser import parse_module
from nacre.passes.manager import Context
from nacre.passes.pass_list import parse_pipeline

ORDERS = ("sort", "argsort", "top_k")


def module(shape: str, axis: int) -> Module:
    return parse_module(f"""module m
dim N in 0..9
func main(%x: f32[{shape}]) -> (f32[{shape}], i64[{shape}], f32[{_cut(shape, axis)}], i64[{_cut(shape, axis)}]) {{
  %s = sort(%x) {{axis = {axis}, descending = true}} : f32[{shape}]
  %a = argsort(%x) {{axis = {axis}}} : i64[{shape}]
  %v, %i = top_k(%x) {{axis = {axis}, k = 2, largest = false}} : f32[{_cut(shape, axis)}], i64[{_cut(shape, axis)}]
  return %s, %a, %v, %i
}}
""")


def _cut(shape: str, axis: int) -> str:
    sizes = shape.split(", ")
    sizes[axis] = "2"
    return ", ".join(sizes)


def rewrite(before: Module) -> Module:
    (step,) = parse_pipeline("ordered-last")
    return step.run(before, Context())


@pytest.mark.parametrize(("shape", "axis"), [("7, N", 0), ("3, 5, 4", 1), ("3, 5, 4", -3), ("6, 1, 2", 0)])
def test_sorts_along_any_axis_become_sorts_along_the_last_one(shape: str, axis: int) -> None:
    before = module(shape, axis)
    after = rewrite(before)
    nodes = [node for node in after.functions[0].body if node.op in ORDERS]
    assert [node.op for node in nodes] == list(ORDERS)
    assert all(node.attribute("axis") == node.inputs[0].type.rank - 1 for node in nodes)
    x = np.random.default_rng(0).integers(0, 4, [3 if n == "N" else int(n) for n in shape.split(", ")])
    expected, results = (Interpreter(m, _none).run("main", [x.astype(np.float32)]) for m in (before, after))
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize(("shape", "axis"), [("4, 6", 1), ("N, 6", -1), ("9, 1, 1", 0)])
def test_sorts_of_adjacent_elements_stay(shape: str, axis: int) -> None:
    before = module(shape, axis)
    assert rewrite(before) == before


def _none(parameter: object) -> np.ndarray:
    raise AssertionError(parameter)
