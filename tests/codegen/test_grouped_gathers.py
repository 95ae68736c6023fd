"""Gathers in one kernel with the reductions that read them, also over axes without elements.

`fuse` makes few of these groups, so each model becomes one group here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.codegen.jit import load_functions
from nacre.compiler.lower.module import lower_module
from nacre.compiler.targets.vector_unit import PanelSizes
from nacre.compiler.validate.inputs import made_up
from nacre.dialect.graph import Function, Module, Node, Parameter, Region, Value
from nacre.dialect.interpreter import Interpreter
from nacre.passes.manager import PassManager
from nacre.passes.pass_list import parse_pipeline
from nacre.passes.rewrite import Names, clone

EXPRESSIONS = (
    'sum(gather(x, i, mode="clamp"), axis=0)',
    'sum(gather(relu(x).T, i, axis=1, mode="clamp"), axis=1) * 2 + 1',
    'logsumexp(gather(x.T, i, axis=1, mode="drop").T, axis=1) + 0 * sum(w, axis=1)',
    'softmax(gather(x.T, i, axis=1, mode="clamp").T)',
    'cumsum(gather(x.T, i, axis=1, mode="clamp").T, axis=0) * 2 + 1',
    'w.T @ gather(x, i, mode="clamp")',
    'layer_norm(gather(x, i, mode="clamp") + gather(x, i * 1, mode="drop"))',
    'cast(argmax(gather(x, i, mode="clamp"), axis=1), f32)',
)
SIZES: tuple[Mapping[str, int], ...] = (
    {},
    {"T": 5, "B": 33, "N": 9, "K": 17},
    {"T": 0, "B": 33, "N": 9},
    {"T": 5, "B": 33, "N": 0, "K": 17},
    {"B": 7},
)
DRAWN = {"T": (0, 1, 5), "B": (1, 7, 33), "N": (0, 1, 9), "K": (1, 17)}


def grouped(function: Function) -> Function:
    """The function with one node, a group of all its nodes."""
    names, values = Names(function), dict[str, Value]()
    for argument in function.arguments:
        values[argument.name] = Value(names.fresh(argument.name), argument.type)
    arguments = tuple(values[a.name] for a in function.arguments)
    body = tuple(clone(function.body, names, values))
    region = Region(arguments, body, tuple(values[v.name] for v in function.results))
    return replace(function, body=(Node("fusion", function.arguments, function.results, regions=(region,)),))


def write_model(fixed: Mapping[str, int]) -> Module:
    dims = "".join(f"dim {name} in {1 if name in 'BK' else 0}..40\n" for name in DRAWN if name not in fixed)
    sizes = {name: str(fixed.get(name, name)) for name in DRAWN}
    shapes = "x: f32[{T}, {B}], i: i64[{N}], w: f32[{N}, {K}]".format(**sizes)
    results = ("{B}", "{B}", "{N}", "{N}, {B}", "{N}, {B}", "{K}, {B}", "{N}, {B}", "{N}")
    models = (
        f"model m{number}({shapes}) -> f32[{result.format(**sizes)}] {{ return {expression} }}\n"
        for number, (expression, result) in enumerate(zip(EXPRESSIONS, results, strict=True))
    )
    passes = parse_pipeline("check-indices,canonicalize,fold-constants,cse,dce")
    return PassManager(passes).run(read_model(dims + "".join(models)).module)


@pytest.mark.parametrize("fixed", SIZES, ids=lambda fixed: ",".join(f"{k}={v}" for k, v in fixed.items()) or "any")
def test_gathers_and_reductions(fixed: Mapping[str, int]) -> None:
    module = write_model(fixed)
    groups = replace(module, functions=tuple(map(grouped, module.functions)))
    compiled = load_functions(lower_module(groups, pack=PanelSizes()), groups.functions, level=2)
    interpreter, rng = Interpreter(module, made_up), np.random.default_rng(0)
    for function in module.functions:
        for _ in range(24):
            sizes = {name: fixed.get(name, int(rng.choice(drawn))) for name, drawn in DRAWN.items()}
            x, w = (rng.standard_normal([sizes[d] for d in axes]).astype(np.float32) for axes in ("TB", "NK"))
            i = rng.integers(-7, 7, sizes["N"])
            dims = {s.name: sizes[s.name] for s in function.symbols()}
            (expected,), (actual,) = interpreter.run(function.name, (x, i, w)), compiled[function.name]((x, i, w), dims)
            # Sums of up to 33 numbers, in another order.
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5, err_msg=f"{function.name} at {sizes}")


@pytest.mark.parametrize(
    ("other", "is_packed"),
    [('gather(w, i, axis=1, mode="clamp")', True), ('dynamic_slice(w, i[0], 0, sizes=(1, 32), mode="clamp")', False)],
)
def test_weights_of_a_product_that_are_read_elsewhere_too(other: str, is_packed: bool) -> None:
    """A look-up of rows or columns reads a packed weight; a weight that is sliced keeps its order."""
    text = f"model m(x: f32[16, 16], i: i64[32], w: f32[16, 32]) -> f32[16, 32] {{ return x @ w + {other} }}\n"
    module = read_model(text).module
    made = grouped(module.functions[0])
    *arguments, w = made.arguments
    body = (Node("parameter", (), (w,), (("name", "w"),)), *made.body)
    function = replace(made, arguments=tuple(arguments), body=body)
    module = replace(module, functions=(function,), parameters=(Parameter("w", w.type),))
    (weight,) = lower_module(module, pack=PanelSizes()).weights
    assert (weight.packing is not None) == is_packed
