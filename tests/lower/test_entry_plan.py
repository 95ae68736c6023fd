"""Entries from lowered functions: scratch has memory where its kernel uses it, and null where it does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from nacre.compiler.codegen.jit import build_functions
from nacre.compiler.codegen.objects import CodeOptions, generate_objects
from nacre.compiler.lower.entry import Unused, Workspace
from nacre.compiler.lower.lowered import Lowered
from nacre.compiler.lower.module import lower_module
from nacre.compiler.lower.plan import entry_ir, plan_entries
from nacre.dialect.dims import Symbol
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
    (all_used,) = plan_entries(module)
    assert [type(p) for p in all_used.calls[0].places[-count:]] == [Workspace] * count
    (none_used,) = plan_entries(module, {kernel.symbol: [False] * count})
    assert none_used.workspace == 0
    assert none_used.calls[0].places[-count:] == (Unused(),) * count
    assert "ptr null" in entry_ir([none_used]) and "ptr null" not in entry_ir([all_used])
    usage = [i == 1 for i in range(count)]
    (one_used,) = plan_entries(module, {kernel.symbol: usage})
    assert [isinstance(p, Workspace) for p in one_used.calls[0].places[-count:]] == usage
    assert one_used.workspace != 0 and one_used.workspace != all_used.workspace


def test_symbols_of_a_level_call_kernels_of_the_level() -> None:
    module = lowered(SOFTMAX)
    text = entry_ir(plan_entries(module), "_level")
    symbol = module.kernels[0].symbol
    assert "@nacre_entry_softmax_level(" in text and f"@{symbol}_level(" in text and f"@{symbol}_level_units(" in text
    assert f"@{symbol}(" not in text and f"@{symbol}_units(" not in text


def _scratch(source: Function, level: int) -> tuple[Sequence[bool], Any]:
    program, _ = generate_objects(lowered(source), CodeOptions(level=level))
    ((code,),) = (kernels.values() for kernels in program.kernels.values())
    return code.report.scratch, program.entries[0].workspace


def test_loops_say_what_they_use() -> None:
    """The scratch that tells MLIR the sizes of windows is never read."""
    pooling = function("pool", 1, 3, 8, 8, op="max_pool2d", kernel=2)
    (kernel,) = lowered(pooling).kernels
    used, workspace = _scratch(pooling, 0)
    assert len(used) == len(kernel.kernel.scratch) > sum(used)
    assert workspace != plan_entries(lowered(pooling))[0].workspace
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    (y,) = build_functions(Module("m", (), (), (pooling,)))["pool"]([x])
    assert np.array_equal(y, x.reshape(1, 3, 4, 2, 4, 2).max((3, 5)))


def test_loops_keep_what_they_use() -> None:
    used, workspace = _scratch(SOFTMAX, 0)
    assert any(used) and workspace != 0
