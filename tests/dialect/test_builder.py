"""The methods of a builder: `dir`, signatures and help for every operator."""

import inspect

import pytest
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS


def test_dir_lists_every_operator() -> None:
    assert set(OPERATORS) <= set(dir(Builder(OPERATORS)))
    assert {"apply", "scalar", "like"} <= set(dir(Builder(OPERATORS)))


@pytest.mark.parametrize("name", OPERATORS)
def test_a_method_has_the_signature_of_the_record(name: str) -> None:
    method, record = getattr(Builder(OPERATORS), name), OPERATORS[name]
    parameters = inspect.signature(method).parameters
    assert list(parameters) == [*(o.name for o in record.operands), *(a.name for a in record.attributes)]
    assert method.__doc__ == record.summary and method.__name__ == name
