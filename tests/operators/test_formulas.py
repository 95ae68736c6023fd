"""The formulas of the reference page compute what the references compute."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from nacre.compiler.tools.reference.operator_formulas import FORMULAS
from nacre.dialect.operator import Case
from nacre.dialect.ops import OPERATORS

AXES = {"layer_norm": -1, "rms_norm": -1, "log_softmax": -1, "softmax": -1, "l2_normalize": -1}
CASES: Mapping[str, Case] = {
    "matmul": Case(((3, 4), (4, 5))),
    "conv1d": Case(((2, 3, 9), (4, 3, 2), (4,)), {"stride": 2, "dilation": 2}),
    "conv2d": Case(((2, 3, 5, 6), (4, 3, 2, 2), (4,))),
    "max_pool1d": Case(((2, 3, 7),), {"kernel": 3, "stride": 2}),
    "avg_pool1d": Case(((2, 3, 7),), {"kernel": 3, "stride": 2}),
    "attention": Case(((2, 3, 4), (2, 5, 4), (2, 5, 6), (3, 5)), {"scale": 0.5}),
    "rotary_embedding": Case(((2, 3, 8), (3, 4), (3, 4))),
    "cross_entropy": Case(((5, 3),), {"reduction": "none"}, arrays={1: np.array([0, 2, 1, 1, 0])}),
    "fft": Case(((7,),)),
    "ifft": Case(((7,), (7,))),
    "cumsum": Case(((5,),)),
    "cumprod": Case(((5,),)),
    "group_norm": Case(((2, 6, 5), (6,), (6,)), {"groups": 3}),
    "instance_norm": Case(((2, 3, 5), (3,), (3,))),
    "batch_norm": Case(((4, 3), (3,), (3,), (3,), (3,)), domain=(0.3, 3.0)),
    "layer_norm": Case(((3, 5), (5,), (5,))),
    "rms_norm": Case(((3, 5), (5,))),
    "clip": Case(((3, 5),), {"low": -0.5, "high": 1.0}),
    "gather": Case(((5, 3),), {"axis": 0}, arrays={1: np.array([4, 0, 2])}),
    "take_along_axis": Case(((5, 3),), {"axis": 0}, arrays={1: np.array([[4, 0, 2], [1, 1, 3]])}),
    "embedding": Case(((5, 3),), arrays={1: np.array([4, 0, 2])}),
    "one_hot": Case((), {"depth": 5}, arrays={0: np.array([4, 0, 2])}),
    "bincount": Case((), {"size": 4}, arrays={0: np.array([3, 0, 3, 1]), 1: np.array([0.5, 2.0, 1.0, 4.0])}),
    "searchsorted": Case((), arrays={0: np.array([0.5, 1.0, 1.0, 3.0]), 1: np.array([0.0, 1.0, 2.0])}),
    **{
        name: Case(((5, 2, 3), (gates * 4, 3), (gates * 4, 4), (gates * 4,), (gates * 4,), *states))
        for name, gates, states in (("lstm", 4, ((2, 4),) * 2), ("gru", 3, ((2, 4),)), ("rnn", 1, ((2, 4),)))
    },
}
"""Cases in which every operand that a formula names is given; the other operators have theirs in their records."""


_NAMES = ("abs", "sign", "exp", "log", "sqrt", "tanh", "pi", "where", "maximum", "minimum")


def drawn(name: str, case: Case) -> list[Any]:
    generator = np.random.default_rng(7)
    low, high = (1.1, 3.0) if name == "acosh" else (-0.9, 0.9) if name == "atanh" else case.domain
    made = [generator.uniform(low, high, shape) for shape in case.shapes]
    return [case.arrays.get(i, array) for i, array in enumerate(made)]


def functions(name: str, attributes: Mapping[str, Any], operands: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the functions of a formula. Those over axes are over the axes of the operator."""
    axes = attributes.get("axis", AXES.get(name))
    x = operands.get("x")

    def over(reduce: Any) -> Any:
        if name in ("group_norm", "instance_norm"):
            groups = attributes.get("groups", x.shape[1])
            return lambda a: np.repeat(
                reduce(a.reshape(len(x), groups, -1), axis=-1)[:, :, None], a[0].size // groups, axis=2
            ).reshape(a.shape)
        return lambda a: reduce(a, axis=axes, keepdims=True)

    whole = name in ("matmul", "cumsum", "cumprod", "fft", "ifft", "bincount", "searchsorted") or "pool" in name
    whole = whole or name.startswith("conv")
    size = (
        x.size
        if x is not None and axes is None
        else 1
        if x is None
        else np.prod([x.shape[a] for a in np.atleast_1d(axes)])
    )
    split = {"lstm": 4, "gru": 3, "rotary_embedding": 2}.get(name, 1)
    reductions = {"sum": np.sum, "mean": np.mean, "max": np.max, "prod": np.prod}
    return {
        **{key: getattr(np, key) for key in _NAMES},
        **{key: reduce if whole else over(reduce) for key, reduce in reductions.items()},
        "erf": OPERATORS["erf"].reference,
        "sigmoid": lambda a: 1 / (1 + np.exp(-a)),
        "softmax": lambda a: np.exp(a) / np.exp(a).sum(axis=-1, keepdims=True),
        "iota": np.arange,
        "split": lambda a: np.split(a, split, axis=-1),
        "concat": lambda *parts: np.concatenate(parts, axis=-1),
        "n": int(size),
        "k": attributes.get("kernel", np.shape(operands.get("weight", np.zeros((0, 0, 0))))[-1]),
    }  # fmt: skip


def evaluate(name: str, formula: str, names: dict[str, Any], expected: Any) -> Any:
    """Returns the value of a formula: that of its last expression, or the elements that it names, for all indices."""
    *first, last = [part.replace("k.mT", "k.swapaxes(-1, -2)") for part in formula.split("; ")]
    element = re.fullmatch(r"(result|y)\[(.*?)\] = (.*)", last)
    if element is None:
        for line in first:
            exec(line, names)
        return eval(last, names)
    indices = element[2].split(", ")
    made = np.zeros(expected.shape, expected.dtype)
    for place in itertools.product(*map(range, expected.shape[: len(indices)])):
        names |= dict(zip(indices, place, strict=True))
        for line in first:
            exec(line, names)
        made[place] = eval(element[3], names)
    return made


@pytest.mark.parametrize(
    ("name", "given", "formula"), [(name, *each) for name, found in FORMULAS.items() for each in found]
)
def test_a_formula_agrees_with_its_operator(name: str, given: str, formula: str) -> None:
    operator = OPERATORS[name]
    case = CASES.get(name) or next(c for c in operator.cases if np.prod(c.shapes[0]) > 1)
    stated = eval(f"dict({given})")
    attributes = operator.complete({**case.attributes, **stated})
    operands = drawn(name, case)
    expected = operator.reference(*operands, **attributes)
    expected = expected[0] + 1j * expected[1] if name in ("fft", "ifft") else expected
    expected = np.asarray(expected[0] if isinstance(expected, tuple) else expected)
    by_name = dict(zip((o.name for o in operator.operands), operands, strict=False))
    if name == "ifft":
        by_name["x"] = by_name["real"] + 1j * by_name["imaginary"]
    elif name == "fft":
        by_name["x"] = by_name["real"]
    elif name in ("group_norm", "instance_norm"):
        by_name |= {part: by_name[part][:, None] for part in ("weight", "bias")}
    computed = evaluate(name, formula, {**attributes, **functions(name, attributes, by_name), **by_name}, expected)
    np.testing.assert_allclose(np.reshape(computed, expected.shape), expected, rtol=1e-9, atol=1e-11)


def test_operators_in_words_have_formulas() -> None:
    """Sums, activations and layers whose summary is a sentence."""
    unformulated = {
        name
        for name, operator in OPERATORS.items()
        if operator.decompose is not None
        and operator.properties & {"elementwise", "rowwise", "pointwise", "reduction"}
        and not re.search(r"[=(*/]", operator.summary)
        and name not in FORMULAS
    }
    assert unformulated == set()
