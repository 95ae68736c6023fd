"""Operations on graphs."""

from nacre.dialect.graph import Value, substitute_values
from nacre.dialect.parser import parse_module
from nacre.dialect.types import F32, TensorType

TEXT = """module m

func main(%x: f32[2], %y: f32[2]) -> (f32[2]) {
  %1 = exp(%x) : f32[2]
  %2 = fusion(%1, %y) : f32[2] do (%a: f32[2], %b: f32[2]) {
    %s = add(%a, %b) : f32[2]
    yield %s
  }
  return %2
}
"""
NEW = Value("new", TensorType(F32, (2,)))


def test_a_node_without_the_replaced_values_stays_the_same_object() -> None:
    exp, fusion = parse_module(TEXT).functions[0].body
    for values in ({}, {"z": NEW}):
        assert substitute_values(exp, values) is exp
        assert substitute_values(fusion, values) is fusion
    assert substitute_values(exp, {"x": NEW}).inputs == (NEW,)
    assert substitute_values(fusion, {"y": NEW}).inputs == (fusion.inputs[0], NEW)
    (inner,) = substitute_values(fusion, {"b": NEW}).regions
    assert inner.body[0].inputs[1] == NEW
