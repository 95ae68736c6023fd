"""Deep trees in vectors of bytes, on a CPU with a look-up of bytes, or emulated: equal to the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from differential.emulated import HOST, generate_for_here, tile_for
from nacre.compiler.codegen.objects import CodeOptions
from nacre.compiler.lower.module import lower_module
from nacre.compiler.targets.target import parse_targets
from nacre.compiler.validate.isolated import Progress, run_isolated
from nacre.compiler.validate.native import Library, make_team
from nacre.dialect.dims import Symbol
from nacre.dialect.graph import Function, Module, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.ops.feature_ranks import ROWS, least_rank
from nacre.dialect.ops.ranked_trees import ranked_trees
from nacre.dialect.types import F32, F64, I8, I16, I32, U32, DType, TensorType

WITH_LOOK_UP, WITHOUT = "x86-64-v4+avx512vbmi", "x86-64-v4"
BLOCKS = Symbol("blocks")
NODES = 63
pytestmark = pytest.mark.skipif(not HOST.runs_here, reason=f"needs {HOST.name}")


@dataclass(frozen=True)
class Trees:
    """Trees of 6 levels and `steps` further ones."""

    steps: int
    columns: int = 4
    groups: int = 1
    trees: int = 3
    nodes: int = NODES
    ranks: DType = I8
    values: DType = F64

    @property
    def leaves(self) -> int:
        return (self.nodes + 1) << self.steps

    @property
    def types(self) -> tuple[TensorType, ...]:
        inner = ((1 << self.steps) - 1) * (self.nodes + 1)
        own = self.groups, self.trees
        return (
            *(TensorType(self.ranks, (BLOCKS.size, self.columns, ROWS)), TensorType(I32, (*own, self.nodes))),
            *(TensorType(self.ranks, (*own, self.nodes)), TensorType(I32, own), TensorType(U32, (*own, inner))),
            TensorType(self.values, (self.groups * self.trees * self.leaves,)),
            TensorType(self.values, (BLOCKS.size, self.groups, ROWS)),
        )

    def function(self, name: str) -> Function:
        b = Builder(OPERATORS, name)
        arguments = tuple(Value(f"{name}_{i}", type) for i, type in enumerate(self.types))
        result = b.ranked_trees(*arguments, shape="nodes", steps=self.steps)
        return Function(name, arguments, tuple(b.nodes), (result,))

    def arrays(self, blocks: int) -> list[Any]:
        """Returns random operands, with columns, borders and first leaves that are out of range too."""
        rng, least = np.random.default_rng(blocks), least_rank(self.ranks)
        shapes = [type.concrete({BLOCKS.name: blocks}) for type in self.types]
        size = shapes[5][0]
        first = np.arange(self.groups * self.trees).reshape(shapes[3]) * self.leaves
        first[0, 0], first[-1, -1] = -5, size
        made = (
            *(rng.integers(least, -least, shapes[0]), rng.integers(-1, 2 * self.columns, shapes[1]) * ROWS),
            *(rng.integers(least, -least, shapes[2]), first, rng.integers(0, 1 << 32, shapes[4])),
            *(rng.normal(size=size), rng.normal(size=shapes[6])),
        )
        return [array.astype(type.dtype.numpy) for array, type in zip(made, self.types, strict=True)]


CASES = {
    "one step": Trees(1),
    "two steps, f32": Trees(2, values=F32),
    "three steps, groups": Trees(3, groups=2, trees=2),
    "four steps, 32 columns": Trees(4, columns=32),
    "one column": Trees(2, columns=1, trees=1),
    "six steps": Trees(6, trees=1),
    "half a line of places": Trees(2, nodes=31),
}
OTHERS = {
    "ranks of 16 bits": Trees(1, ranks=I16),
    "64 columns": Trees(1, columns=64),
    "less than a line of words": Trees(1, nodes=31),
    "seven steps": Trees(7, trees=1),
    "no step": Trees(0),
}


def module(cases: dict[str, Trees]) -> Module:
    functions = tuple(trees.function(f"f{number}") for number, trees in enumerate(cases.values()))
    return Module("trees", (BLOCKS,), functions=functions)


@cache
def library(target: str, level: int) -> tuple[Module, Library, list[str]]:
    """Returns the functions of the cases, their code, and the schedules of their sums."""
    made = module(CASES)
    options = CodeOptions(parse_targets(target), level, quick=True, visible=True)
    program, objects = generate_for_here(lower_module(made), options)
    found = [name for each in program.kernels.values() for kernel in each.values() for name in kernel.report.schedules]
    return made, Library(program, objects, None), [name for name in found if "sum" in name]


@pytest.mark.parametrize(("target", "level"), [(WITH_LOOK_UP, 2), ("native", 0)])
def test_sums_are_those_of_the_reference(target: str, level: int) -> None:
    """An odd block is the first half of its vector alone, and a work item has 80 blocks."""
    made, built, schedules = library(target, level)
    assert schedules == (["byte sum"] * len(CASES) if level else [])

    def task(function: Function, trees: Trees, blocks: int) -> Callable[[Progress], str | None]:
        arrays = trees.arrays(blocks)
        expected = ranked_trees.reference(*arrays, shape="nodes", steps=trees.steps)

        def run(tell: Progress) -> str | None:
            for at_end in (True, False):
                outcome = built.run(function, arrays, {BLOCKS.name: blocks}, team=make_team(1, 1), at_end=at_end)
                if outcome.damage or outcome.results[0].tobytes() != expected.tobytes():
                    return outcome.damage or f"{function.name} {trees} {blocks}: {outcome.results[0]} {expected}"
            return None

        return run

    sizes = (0, 1, 2, 3, 81)
    pairs = list(zip(made.functions, CASES.values(), strict=True))
    found = run_isolated([task(function, trees, size) for function, trees in pairs for size in sizes])
    assert [answer for answer in found if answer] == []


@pytest.mark.parametrize(("target", "expected"), [(WITH_LOOK_UP, ["byte sum"]), (WITHOUT, ["table sum"])])
def test_other_trees_are_followed_row_by_row(target: str, expected: list[str]) -> None:
    cases = {"one step": CASES["one step"], **(OTHERS if target == WITH_LOOK_UP else {})}
    kernels = lower_module(module(cases)).kernels
    tiled = tile_for(kernels, CodeOptions(parse_targets(target), 2, quick=True, visible=True))
    found = [name for each in tiled.values() for name in each.report.schedules if "sum" in name]
    assert found == expected + ["table sum"] * (len(cases) - 1)
