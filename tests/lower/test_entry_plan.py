"""Entries from lowered functions: scratch has memory where its kernel uses it, and null where it does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from nacre.compiler.codegen.jit import build_functions
from nacre.compiler.codegen.objects import CodeOptions, generate_objects
from nacre.compiler.host.plan import entry_modules, plan_entries
from nacre.compiler.lower.lowered import Lowered
from nacre.compiler.lower.module import lower_module
from nacre.compiler.lower.parts import KernelPart
from nacre.compiler.lower.storage import Unused, Workspace
from nacre.dialect.dims import Symbol, evaluate
from nacre.dialect.graph import Function, Module, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import F32, TensorType

T = Symbol("T", 1, 512)


def function(name: str, *shape: Any, op: str, **attributes: Any) -> Function:
    x = Value("x", TensorType(F32, tuple(s.size if isinstance(s, Symbol) else s for s in shape)))
    b = Builder(OPERATORS, "t")
    (y,) = b.apply(op, (x,), attributes)
    return Function(name, (x,), tuple(b.nodes), (y,), ("y",))


def lowered(*functions: Function) -> Lowered:
    return lower_module(Module("m", (T,), (), functions))


SOFTMAX = function("softmax", T, 7, op="softmax", axis=-1)


def test_unused_scratch_gets_no_memory() -> None:
    module = lowered(SOFTMAX)
    (kernel,) = module.kernels
    count = len(kernel.kernel.scratch)
    assert count >= 2

    def uses(*scratch: int) -> KernelPart:
        return KernelPart((True, True, *(i in scratch for i in range(count))))

    (all_used,) = plan_entries(module)
    assert [type(p) for p in all_used.calls[0].storages[-count:]] == [Workspace] * count
    (none_used,) = plan_entries(module, {kernel.symbol: [uses()]})
    assert none_used.workspace == 0
    assert none_used.calls[0].storages[-count:] == (Unused(),) * count
    texts = [entry_modules([each])[-1].text for each in (none_used, all_used)]
    assert ["ptr null" in text for text in texts] == [True, False]
    (one_used,) = plan_entries(module, {kernel.symbol: [uses(1)]})
    assert [isinstance(p, Workspace) for p in one_used.calls[0].storages[-count:]] == [i == 1 for i in range(count)]
    assert one_used.workspace != 0 and one_used.workspace != all_used.workspace


def test_symbols_of_a_level_call_kernels_of_the_level() -> None:
    module = lowered(SOFTMAX)
    text = "".join(each.text for each in entry_modules(plan_entries(module), "_level"))
    symbol = module.kernels[0].symbol
    assert "@nacre_entry_softmax_level(" in text and f"@{symbol}_level(" in text and f"@{symbol}_level_items(" in text
    assert f"@{symbol}(" not in text and f"@{symbol}_items(" not in text


def test_entries_of_a_process_have_no_observed_copies() -> None:
    module = lowered(SOFTMAX)
    entry = b"nacre_entry_softmax"
    for visible in (True, False):
        _, (_, *objects) = generate_objects(module, CodeOptions(visible=visible))
        code = b"".join(objects)
        assert entry in code and (b"observed_" + entry in code) == (not visible)


def _scratch(source: Function, level: int) -> tuple[Sequence[bool], Any]:
    program, _ = generate_objects(lowered(source), CodeOptions(level=level))
    ((code,),) = (kernels.values() for kernels in program.kernels.values())
    (part,) = code.report.parts
    return part.uses[2:], program.entries[0].workspace


def test_loops_list_the_values_that_they_use() -> None:
    """The scratch that tells MLIR the sizes of windows is never read."""
    pooling = function("pool", 1, 3, 8, 8, op="max_pool2d", kernel=2)
    (kernel,) = lowered(pooling).kernels
    used, workspace = _scratch(pooling, 0)
    assert len(used) == len(kernel.kernel.scratch) > sum(used)
    assert workspace != plan_entries(lowered(pooling))[0].workspace
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    (y,) = build_functions(Module("m", (), (), (pooling,)))["pool"]([x])
    assert np.array_equal(y, x.reshape(1, 3, 4, 2, 4, 2).max((3, 5)))


def test_loops_keep_the_values_that_they_use() -> None:
    used, workspace = _scratch(SOFTMAX, 0)
    assert any(used) and workspace != 0


# In place

X = Value("x", TensorType(F32, (T.size, 16)))


def chain(*ops: str) -> Function:
    """Each operator over what the one before gives."""
    b = Builder(OPERATORS, "t")
    value = X
    for op in ops:
        (value,) = b.apply(op, (value,), {"axis": -1} if op == "softmax" else {})
    return Function("chain", (X,), tuple(b.nodes), (value,), ("y",))


def test_a_chain_keeps_its_buffer() -> None:
    module = lowered(chain("exp", "softmax", "tanh", "softmax", "exp"))
    sizes = {level: generate_objects(module, CodeOptions(level=level))[0].entries[0].workspace for level in (0, 2)}
    # Plain loops have a place for each row's values of a softmax besides, and results of their own.
    assert sizes[2] == T.size * 64 and evaluate(sizes[0], {"T": 8}) > 2 * 8 * 64


def test_an_argument_passed_twice_is_shared_in_both_or_neither() -> None:
    """A view of a value is the value's memory: what may be written over the one argument must suit the other."""
    b = Builder(OPERATORS, "t")
    h = b.exp(X)
    total = b.exp(b.add(h, b.reshape(h, shape=(T.size, 16))))
    module = lowered(Function("f", (X,), tuple(b.nodes), (total,), ("y",)))
    symbol = module.functions[0].calls[1].symbol
    for pairs, tensors in (((), 2), (((2, 0),), 2), (((2, 0), (2, 1)), 1)):
        (entry,) = plan_entries(module, {symbol: [KernelPart((True, True, True), pairs)]})
        assert entry.workspace == T.size * 64 * tensors, pairs


def test_parts_of_a_kernel_reuse_memory() -> None:
    """What only the first part reads makes room for what only the second one writes."""
    module = lowered(chain("exp", "tanh", "exp"))
    symbol = module.functions[0].calls[1].symbol
    (entry,) = plan_entries(module, {symbol: [KernelPart((True, False)), KernelPart((False, True))]})
    assert entry.workspace == T.size * 64 and entry.least_workspace({"T": 3}) == 3 * 64
