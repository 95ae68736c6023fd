"""The methods of a builder: `dir`, signatures and help for every operator."""

import inspect

import pytest
from nacre.dialect.graph import Value
from nacre.dialect.operator import Builder, InferenceError
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import F32, TensorType


def test_dir_lists_every_operator() -> None:
    assert set(OPERATORS) <= set(dir(Builder(OPERATORS)))
    assert {"apply", "scalar", "like"} <= set(dir(Builder(OPERATORS)))


@pytest.mark.parametrize("name", OPERATORS)
def test_a_method_has_the_signature_of_the_record(name: str) -> None:
    method, record = getattr(Builder(OPERATORS), name), OPERATORS[name]
    parameters = inspect.signature(method).parameters
    assert list(parameters) == [*(o.name for o in record.operands), *(a.name for a in record.attributes)]
    assert method.__doc__ == record.summary and method.__name__ == name


def test_optional_operands_may_have_names() -> None:
    b = Builder(OPERATORS)
    x, statistics = Value("x", TensorType(F32, (2, 3))), Value("s", TensorType(F32, (3,)))
    by_position = b.batch_norm(x, statistics, statistics, statistics, statistics)
    by_name = b.batch_norm(x, statistics, statistics, bias=statistics, weight=statistics)
    assert by_name.type == by_position.type and b.nodes[0].inputs == b.nodes[1].inputs
    b.batch_norm(x, statistics, statistics, weight=None)
    assert len(b.nodes[2].inputs) == 3
    with pytest.raises(InferenceError, match="`batch_norm` needs the argument `weight`"):
        b.batch_norm(x, statistics, statistics, bias=statistics)


def test_operands_that_need_a_name() -> None:
    named = {name: [operand.name for operand in record.named] for name, record in OPERATORS.items() if record.named}
    assert named["batch_norm"] == ["weight", "bias"] and named["attention"] == ["mask"]
    assert all(len(OPERATORS[name].operands) > 3 for name in named)
    assert "conv2d" not in named and "layer_norm" not in named
