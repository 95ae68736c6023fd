"""Every operator can be called by its name, with operands and attributes as its own cases have them."""

import pytest
from nacre.compiler.readers import language as frontend
from nacre.compiler.readers.language.operators import BUILTINS
from nacre.dialect.verifier import verify
from operator_source import operand_types, program


@pytest.mark.parametrize("name", sorted(BUILTINS))
def test_operator_is_called_by_name(name: str) -> None:
    operator = BUILTINS[name]
    for case in operator.cases[:4]:
        source = program(operator, case)
        module = frontend.load_module(source, text=True).module
        verify(module)
        function = module.function("call")
        expected = operator.check(operand_types(operator, case), case.attributes)
        assert tuple(value.type for value in function.results) == expected, source
        if [node.op for node in function.body] == [name]:
            complete = operator.complete(case.attributes)
            assert dict(function.body[0].attributes).keys() == complete.keys(), source
        else:
            # `cast` to the same dtype leaves nothing to compute.
            assert name == "cast" and not function.body, source
