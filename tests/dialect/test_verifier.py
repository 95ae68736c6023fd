"""The verifier: one broken graph for each rule, and what it says about it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.dims import Symbol
from nacre.dialect.graph import Constant, Function, Module, Node, Parameter, Region, Value
from nacre.dialect.operator import Operator
from nacre.dialect.parser import parse_module, parse_text
from nacre.dialect.types import F32, I64, TensorType
from nacre.dialect.verifier import Checked, verify

VALID = """
module m
dim B in 1..8
param "layer.{}.w" [3] : f32[4, 4]
func main(%x: f32[B, 4], %n: i64) -> (r: f32[B, 4]) {
  %c = constant() {value = constant<f32, 2.0>} : f32
  %y = multiply(%x, %c) : f32[B, 4]
  %z = softmax(%y) {axis = -1} : f32[B, 4]
  %l = repeat(%z) {count = 3} : f32[B, 4] do (%i: i64, %h: f32[B, 4]) {
    %w = parameter(%i) {name = "layer.{}.w"} : f32[4, 4]
    %m = matmul(%h, %w) : f32[B, 4]
    yield %m
  }
  %f = fusion(%l) : f32[B, 4] do (%a: f32[B, 4]) {
    %e = exp(%a) : f32[B, 4]
    yield %e
  }
  return %f
}
"""
MODULE = parse_module(VALID)
X = Value("x", TensorType(F32, (MODULE.dims[0].size, 4)))
SCALAR = TensorType(F32)
OTHER = Symbol("B", 1, 9)


def test_valid_graph() -> None:
    verify(MODULE)


def with_function(**changes: object) -> Module:
    return replace(MODULE, functions=(replace(MODULE.functions[0], **changes),))


def with_node(number: int, **changes: object) -> Module:
    body = list(MODULE.functions[0].body)
    body[number] = replace(body[number], **changes)
    return with_function(body=tuple(body))


def with_region(number: int, **changes: object) -> Module:
    node = MODULE.functions[0].body[number]
    return with_node(number, regions=(replace(node.regions[0], **changes),))


def with_parameter(*shape: int, counts: tuple[int, ...] = ()) -> Module:
    return replace(MODULE, parameters=(Parameter("layer.{}.w", TensorType(F32, shape), counts),))


def value(name: str, *shape: int) -> Value:
    return Value(name, TensorType(F32, shape))


ARGUMENTS = MODULE.functions[0].arguments
BODY = MODULE.functions[0].body
REPEAT, FUSION = BODY[3], BODY[4]
LOOP, GROUP = REPEAT.regions[0], FUSION.regions[0]
B4 = TensorType(F32, (OTHER.size, 4))

BROKEN: list[tuple[str, str, Callable[[], Module]]] = [
    ("undefined-value", "`%nobody` is not defined here", lambda: with_node(1, inputs=(value("nobody"), X))),
    ("undefined-value", "`%m` is not defined here", lambda: with_function(results=(LOOP.body[1].output,))),
    ("undefined-value", "`%z` is not defined here", lambda: with_node(1, inputs=(Value("z", X.type), X))),
    ("duplicate-value", "`%x` is defined twice", lambda: with_node(1, outputs=(X,))),
    (
        "duplicate-value",
        "`%y` is defined twice",
        lambda: with_region(3, arguments=(Value("y", TensorType(I64)), LOOP.arguments[1])),
    ),
    ("type-mismatch", "`%x` is f32[B, 4], and is used as f32", lambda: with_node(1, inputs=(Value("x", SCALAR),) * 2)),
    (
        "type-mismatch",
        "results of `multiply` are f32, expected f32[B, 4]",
        lambda: with_node(1, outputs=(Value("y", SCALAR),)),
    ),
    ("dtype-mismatch", "mixes f32 and i64", lambda: with_node(1, inputs=(X, ARGUMENTS[1]))),
    ("wrong-operands", "takes 2 tensors, not 1", lambda: with_node(1, inputs=(X,))),
    ("unknown-operator", "there is no operator `frobnicate`", lambda: with_node(1, op="frobnicate")),
    (
        "bad-attribute",
        "`softmax` has no attribute `colour`",
        lambda: with_node(2, attributes=(("axis", -1), ("colour", 3))),
    ),
    ("bad-attribute", "`axis` is 1.0, which is no `axis`", lambda: with_node(2, attributes=(("axis", 1.0),))),
    ("bad-attribute", "`axis` is true, which is no `axis`", lambda: with_node(2, attributes=(("axis", True),))),
    ("bad-attribute", "not in the order of their names", lambda: with_node(2, attributes=(("axis", 0), ("axis", 0)))),
    ("missing-argument", "`softmax` lacks the attribute `axis`", lambda: with_node(2, attributes=())),
    ("bad-axis", "`softmax` has no axis 5", lambda: with_node(2, attributes=(("axis", 5),))),
    ("bad-region", "`softmax` has no region", lambda: with_node(2, regions=(Region((), (), ()),))),
    ("bad-region", "`repeat` has one region, not 0", lambda: with_node(3, regions=())),
    ("bad-region", "`fusion` has one region, not 2", lambda: with_node(4, regions=(GROUP, Region((), (), ())))),
    (
        "bad-region",
        "the fusion uses `%z`, which is not its argument",
        lambda: with_region(4, results=(BODY[2].output,)),
    ),
    ("bad-attribute", "a loop cannot run -1 times", lambda: with_node(3, attributes=(("count", -1),))),
    (
        "type-mismatch",
        "arguments of `repeat` are i64, expected i64, f32[B, 4]",
        lambda: with_region(3, arguments=LOOP.arguments[:1]),
    ),
    (
        "type-mismatch",
        "carried values of `repeat` are f32[4, 4], expected f32[B, 4]",
        lambda: with_region(3, results=(LOOP.body[0].output,)),
    ),
    ("type-mismatch", "results of `repeat` are none, expected f32[B, 4]", lambda: with_node(3, outputs=())),
    ("type-mismatch", "arguments of `fusion` are none, expected f32[B, 4]", lambda: with_region(4, arguments=())),
    ("type-mismatch", "results of `fusion` are f32[B, 4], expected none", lambda: with_region(4, results=())),
    ("unknown-parameter", "the module has no parameter `layer.{}.w`", lambda: replace(MODULE, parameters=())),
    ("type-mismatch", "indices of `parameter` are i64, expected none", lambda: with_parameter(4, 4)),
    ("bad-parameter", "has 0 counts", lambda: with_parameter(4, 4)),
    ("type-mismatch", "results of `parameter` are f32[4, 4], expected f32[9]", lambda: with_parameter(9, counts=(3,))),
    (
        "type-mismatch",
        "results of `constant` are f32, expected i64",
        lambda: with_node(0, attributes=(("value", Constant(np.asarray(2))),)),
    ),
    ("type-mismatch", "operands of `constant` are f32[B, 4], expected none", lambda: with_node(0, inputs=(X,))),
    ("undeclared-dim", "dim B in 1..8 is not declared by the module", lambda: replace(MODULE, dims=())),
    (
        "undeclared-dim",
        "dim B in 1..9 is not declared",
        lambda: with_function(arguments=(Value("x", B4), ARGUMENTS[1])),
    ),
    (
        "undeclared-dim",
        "parameter `p` uses dim B in 1..9",
        lambda: replace(MODULE, parameters=(*MODULE.parameters, Parameter("p", B4))),
    ),
    (
        "unbound-dim",
        "no argument has the dim `T`",
        lambda: replace(
            with_node(0, outputs=(Value("c", TensorType(F32, (Symbol("T").size,))),)), dims=(*MODULE.dims, Symbol("T"))
        ),
    ),
    ("bad-size", "has a negative size: f32[-1]", lambda: with_function(arguments=(X, ARGUMENTS[1], value("k", -1)))),
    (
        "duplicate-name",
        "two parameters have the name `layer.{}.w`",
        lambda: replace(MODULE, parameters=MODULE.parameters * 2),
    ),
    ("duplicate-name", "two functions have the name `main`", lambda: replace(MODULE, functions=MODULE.functions * 2)),
    ("duplicate-name", "two dims have the name `B`", lambda: replace(MODULE, dims=MODULE.dims * 2)),
    ("duplicate-name", "two results have the name `r`", lambda: with_function(results=(X, X), result_names=("r", "r"))),
    ("bad-results", "1 results have 2 names", lambda: with_function(result_names=("r", "s"))),
]


@pytest.mark.parametrize(("code", "message", "make"), BROKEN, ids=[message for _, message, _ in BROKEN])
def test_broken_graph(code: str, message: str, make: Callable[[], Module]) -> None:
    checked: Checked = {}
    verify(MODULE, checked=checked)
    for known in ({}, checked):
        with pytest.raises(DiagnosticError) as caught:
            verify(make(), checked=known)
        found = [(d.code, d.message) for d in caught.value.diagnostics]
        assert any(c == code and message in m for c, m in found), found


def test_types_of_a_node_are_inferred_once(monkeypatch: pytest.MonkeyPatch) -> None:
    inferred: list[str] = []
    check = Operator.check

    def watched(self: Operator, types: Sequence[TensorType], given: Mapping[str, Any]) -> tuple[TensorType, ...]:
        inferred.append(self.name)
        return check(self, types, given)

    monkeypatch.setattr(Operator, "check", watched)
    checked: Checked = {}
    verify(MODULE, checked=checked)
    assert sorted(inferred) == ["exp", "matmul", "multiply", "softmax"]
    inferred.clear()
    verify(with_node(2, attributes=(("axis", 0),)), checked=checked)
    assert inferred == ["softmax"]


def test_every_error_is_reported() -> None:
    broken = Node("exp", (value("a"), value("b")), (X,), (("k", object()),))  # type: ignore[arg-type]  # no attribute
    function = Function("f", (X,), (broken,), (value("c"),))
    with pytest.raises(DiagnosticError) as caught:
        verify(Module("m", MODULE.dims, (), (function,)))
    codes = [d.code for d in caught.value.diagnostics]
    assert codes == ["undefined-value", "undefined-value", "bad-attribute", "duplicate-value", "undefined-value"]


def test_faults_point_at_the_text_that_was_read() -> None:
    parsed = parse_text(VALID.replace("softmax(%y) {axis = -1}", "softmax(%y) {axis = 7}"), "a.graph")
    with pytest.raises(DiagnosticError) as caught:
        verify(parsed.module, parsed.locate)
    (fault,) = caught.value.diagnostics
    assert str(fault.span) == "a.graph:8:3"
