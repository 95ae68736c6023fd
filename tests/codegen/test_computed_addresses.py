"""Loads at computed indices of rows share a register for the part of the address that does not differ between rows."""

from __future__ import annotations

import re

from differential.emulated import HOST, tile_for
from nacre.compiler.codegen.objects import CodeOptions
from nacre.compiler.lower.module import lower_module
from nacre.dialect.graph import Function, Module, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import F32, I8, I32, I64, TensorType

BLOCKS, TREES, NODES, ROWS = 2, 3, 3, 32
TYPES = (
    *(TensorType(I8, (BLOCKS, 4, ROWS)), TensorType(I32, (1, TREES, NODES)), TensorType(I8, (1, TREES, NODES))),
    *(TensorType(I32, (1, TREES)), TensorType(I64, (0,)), TensorType(F32, (TREES * (NODES + 1),))),
    TensorType(F32, (BLOCKS, 1, ROWS)),
)


def test_leaves_are_loaded_at_a_shared_pointer() -> None:
    b = Builder(OPERATORS)
    arguments = tuple(Value(f"a{i}", type) for i, type in enumerate(TYPES))
    leaves = b.ranked_trees(*arguments, shape="nodes", steps=0)
    module = Module("m", functions=(Function("f", arguments, tuple(b.nodes), (leaves,)),))
    lowered = lower_module(module)
    tiled = tile_for(lowered.kernels, CodeOptions((HOST,), 2, quick=True, visible=True))
    (text,) = (kernel.text for kernel in tiled.values())
    pointers = re.findall(r"(%\d+) = inttoptr", text)
    assert [n for n in (text.count(f"getelementptr float, ptr {pointer},") for pointer in pointers) if n] == [ROWS]
