"""Every operator as compiled code, at -O0 and at the default level: equal to its reference, for all cases and dtypes.

Operators are compiled by the dozen, since starting the compiler costs more than compiling one of them.
"""

from __future__ import annotations

import pytest
from nacre.compiler.codegen.jit import build_functions
from nacre.dialect.graph import Function, Module
from nacre.dialect.operator import InferenceError, Operator
from nacre.dialect.types import F32
from operator_harness import (
    TESTED,
    Example,
    build_function,
    case_dtypes,
    examples,
    symbolic_types,
    write_use,
)

GROUP = 8
GROUPS = [TESTED[i : i + GROUP] for i in range(0, len(TESTED), GROUP)]


def group_name(group: tuple[Operator, ...]) -> str:
    return f"{group[0].name}..{group[-1].name}"


def check(functions: dict[str, tuple[Function, Example]], level: int) -> None:
    dims = {symbol for function, _ in functions.values() for symbol in function.symbols()}
    module = Module("operators", tuple(sorted(dims, key=str)), functions=tuple(f for f, _ in functions.values()))
    compiled = build_functions(module, opt_level=level)
    failures = []
    for name, (_, item) in functions.items():
        message = item.disagreement(compiled[name](list(item.arrays)), item.reference())
        failures += [f"{item.operator.name} {item}: {message}"] if message else []
    assert not failures, f"{len(failures)} of {len(functions)} differ:\n" + "\n".join(failures[:20])


@pytest.mark.parametrize("level", [0, 2], ids=["O0", "O2"])
@pytest.mark.parametrize("group", GROUPS, ids=map(group_name, GROUPS))
def test_compiled_code_equals_the_reference(group: tuple[Operator, ...], level: int) -> None:
    functions: dict[str, tuple[Function, Example]] = {}
    for operator in group:
        for item in examples(operator):
            functions[item.name] = (build_function(item.types, write_use(item), item.name), item)
    check(functions, level)


@pytest.mark.parametrize("group", GROUPS, ids=map(group_name, GROUPS))
def test_compiled_code_with_symbolic_sizes(group: tuple[Operator, ...]) -> None:
    functions: dict[str, tuple[Function, Example]] = {}
    for operator in group:
        for item in examples(operator):
            if item.dtype is not (F32 if F32 in case_dtypes(operator, item.case) else item.dtype):
                continue
            for number, (types, _) in enumerate(symbolic_types(item.types)):
                try:
                    operator.check(types, item.case.attributes)
                except InferenceError:
                    continue
                name = f"{item.name}_{number}"
                functions[name] = (build_function(types, write_use(item), name), item)
    check(functions, 2)
