"""Results that are written over what they are computed from: which tensors the code generator lets share their memory,
and that the bits are the same then, in whatever order units are computed.

A pair that is allowed wrongly is seen twice: it stands in no list here, and its numbers are others.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nacre.compiler.codegen.jit import link_objects
from nacre.compiler.codegen.objects import CodeOptions, generate_objects
from nacre.compiler.host.plan import LoweredEntry
from nacre.compiler.lower.parts import KernelPart
from nacre.compiler.lower.storage import Input, Output
from nacre.compiler.validate.native import make_team
from nacre.dialect.types import I32, Array

from .directed import case
from .inputs import make_trial
from .maker import Binding, Graph
from .native import Level, lower

LEVEL = Level(2)
Pairs = set[tuple[int, int]]
"""Numbers of results, and of arguments in whose memory they may lie."""


def swapped(b: Any, x: Any) -> Any:
    return b.transpose(x, axes=(1, 0))


def two(b: Any, x: Any, y: Any) -> Sequence[Any]:
    h = b.add(x, y)
    return h, b.exp(h)


def normed(b: Any, x: Any, y: Any, w: Any) -> Sequence[Any]:
    h = b.add(x, y)
    return h, b.layer_norm(h, w, axes=(-1,))


def fed_forward(b: Any, x: Any, w: Any, y: Any) -> Any:
    return b.add(b.relu(b.matmul(x, w)), y)


def attended(b: Any, q: Any, k: Any, v: Any, y: Any) -> Any:
    return b.matmul(b.softmax(b.add(b.matmul(q, k), y), axis=-1), v)


def attention(b: Any, q: Any, k: Any, v: Any) -> Any:
    return b.matmul(b.softmax(b.matmul(q, k), axis=-1), v)


SQUARE = "f32[M, M]"
SIZES: Sequence[Binding] = [{"M": m} for m in (1, 7, 16, 49, 65, 97)]
CASES: Sequence[tuple[Graph, Pairs]] = [
    # Each element by itself.
    (case("exp", lambda b, x: b.exp(x), SQUARE, sizes=SIZES), {(0, 0)}),
    (case("gelu_f64", lambda b, x: b.gelu(x), "f64[M, 3]", sizes=SIZES), {(0, 0)}),
    (case("not", lambda b, x: b.logical_not(x), "bool[M, 5]", sizes=SIZES), {(0, 0)}),
    (case("add", lambda b, x, y: b.add(x, b.exp(y)), SQUARE, SQUARE, sizes=SIZES), {(0, 0), (0, 1)}),
    (case("scaled", lambda b, x, w: b.multiply(x, w), SQUARE, "f32[M]", sizes=SIZES), {(0, 0)}),
    (case("repeated", lambda b, x, w: b.add(x, w), "f32[5, M]", "f32[5, 1]", sizes=SIZES), {(0, 0)}),
    (
        case("two", two, SQUARE, SQUARE, sizes=SIZES),
        {(0, 0), (0, 1), (1, 0), (1, 1)},
    ),
    # The whole of a row before any of it is written.
    (case("softmax", lambda b, x: b.softmax(x, axis=-1), SQUARE, sizes=SIZES), {(0, 0)}),
    (case("softmax_static", lambda b, x: b.softmax(x, axis=-1), "f32[M, 37]", sizes=SIZES), {(0, 0)}),
    (case("softmax_long", lambda b, x: b.softmax(x, axis=-1), "f32[3, 4099]"), {(0, 0)}),
    (case("softmax_first", lambda b, x: b.softmax(x, axis=0), SQUARE, sizes=SIZES), {(0, 0)}),
    (case("norm", lambda *a: normed(*a)[1], SQUARE, SQUARE, "f32[M]", sizes=SIZES), {(0, 0), (0, 1)}),
    # Several loop nests: what only the first ones read makes room for what only the last one writes.
    (case("sum_and_norm", normed, SQUARE, SQUARE, "f32[M]", sizes=SIZES), {(1, 0), (1, 1)}),
    # What is added to a sum of products, but not what is multiplied.
    (case("residual", fed_forward, SQUARE, SQUARE, SQUARE, sizes=SIZES), {(0, 2)}),
    (case("residual_of_itself", lambda b, x, w: fed_forward(b, x, w, x), SQUARE, SQUARE, sizes=SIZES), set()),
    (case("product", lambda b, x, w: b.matmul(x, w), SQUARE, SQUARE, sizes=SIZES), set()),
    # Elements at other places, of other types, or whose places are computed.
    (case("transpose", swapped, SQUARE, sizes=SIZES), set()),
    (case("symmetric", lambda b, x: b.add(x, swapped(b, x)), SQUARE, sizes=SIZES), set()),
    (case("half_symmetric", lambda b, x, y: b.add(x, swapped(b, y)), SQUARE, SQUARE, sizes=SIZES), {(0, 0)}),
    (case("flip", lambda b, x: b.flip(x, axes=(-1,)), SQUARE, sizes=SIZES), set()),
    (case("roll", lambda b, x: b.roll(x, shift=1), SQUARE, sizes=SIZES), set()),
    (case("cast", lambda b, x: b.cast(x, dtype=I32), SQUARE, sizes=SIZES), set()),
    (case("gathered", lambda b, x, i: b.gather(x, i, mode="clamp"), "f32[9, M]", "i64[9]", sizes=SIZES), set()),
    (case("cumulative", lambda b, x: b.cumsum(x, axis=-1), SQUARE, sizes=SIZES), {(0, 0)}),
    # A block of rows may be computed twice: what stands in its first rows then is not what was read.
    (case("row_blocks", attended, "f32[37, 16]", "f32[16, 37]", "f32[37, 37]", "f32[37, 37]"), set()),
    # The last tile of rows is moved back over rows of the tile before, unless their number is a multiple of its rows.
    (case("attention", attention, "f32[M, 16]", "f32[16, 24]", "f32[24, 16]", sizes=SIZES), set()),
    (case("attention_static", attention, "f32[2, 37, 16]", "f32[2, 16, 37]", "f32[2, 37, 16]"), set()),
]
IDS = [graph.name for graph, _ in CASES]


@dataclass(frozen=True)
class Call:
    """A function of one kernel, to be called with results where arguments lie."""

    entry: Any
    planned: LoweredEntry
    parts: Sequence[KernelPart]
    graph: Graph

    def shareable(self) -> Pairs:
        """What may share memory: a result that is written after the argument was read for the last time, or by what
        reads it last, if that may write over it."""
        (call,) = self.planned.calls
        function = self.graph.function
        uses = [[number for number, part in enumerate(self.parts) if part.uses[i]] for i in range(len(call.storages))]
        return {
            (new.number, old.number)
            for i, new in enumerate(call.storages)
            for k, old in enumerate(call.storages)
            if isinstance(new, Output) and isinstance(old, Input)
            if function.results[new.number].type.bytes == function.arguments[old.number].type.bytes
            if uses[i][0] > uses[k][-1] or (uses[i][0] == uses[k][-1] and (i, k) in self.parts[uses[i][0]].in_place)
        }

    def run(self, binding: Binding, kind: str, over: Pairs, team: Any = None) -> list[bytes]:
        arguments = [a.copy() for a in make_trial(self.graph, binding, kind).arguments]
        function = self.graph.function
        results = [np.empty(v.type.concrete(binding), v.type.dtype.numpy) for v in function.results]
        for result, argument in over:
            assert results[result].nbytes == arguments[argument].nbytes
            results[result] = arguments[argument].view(results[result].dtype)
        dims = (ctypes.c_int64 * max(1, len(self.planned.dims)))(*(binding[s.name] for s in self.planned.dims))
        space = np.full(1 << 22, 0xFF, np.uint8)
        start = ctypes.c_void_p(space.ctypes.data + -space.ctypes.data % 64)
        self.entry(pointers(arguments), pointers(results), start, None, dims, team and ctypes.byref(team))
        return [array.tobytes() for array in results]


def pointers(arrays: Sequence[Array]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))


@cache
def calls() -> dict[str, Call]:
    graphs = [graph for graph, _ in CASES]
    program, objects = generate_objects(lower(graphs, LEVEL), CodeOptions(level=LEVEL.level, visible=True))
    library = link_objects(objects)
    (kernels,) = program.kernels.values()
    entries = {entry.name: entry for entry in program.entries}
    assert [name for name, entry in entries.items() if len(entry.calls) != 1] == [], "a case is one kernel"
    return {
        graph.name: Call(library[entry.symbol], entry, kernels[entry.calls[0].kernel].report.parts, graph)
        for graph in graphs
        for entry in [entries[graph.name]]
    }


@pytest.mark.parametrize(("graph", "pairs"), CASES, ids=IDS)
def test_pairs_that_may_share_memory(graph: Graph, pairs: Pairs) -> None:
    assert calls()[graph.name].shareable() == pairs


@pytest.mark.parametrize("name", [graph.name for graph, pairs in CASES if pairs])
def test_bits_are_those_of_memory_apart(name: str) -> None:
    call = calls()[name]
    teams = [None, make_team(1, 1), make_team(3, 1), make_team(2, 4)]
    for binding in call.graph.bindings:
        for kind in ("ordinary", "special"):
            expected = call.run(binding, kind, set())
            for pair in call.shareable():
                for number, team in enumerate(teams):
                    assert call.run(binding, kind, {pair}, team) == expected, (binding, kind, pair, number)


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("transpose", 0),
        ("symmetric", 0),
        ("half_symmetric", 1),
        ("flip", 0),
        ("product", 0),
        ("residual_of_itself", 0),
        ("row_blocks", 3),
        ("attention", 0),
    ],
)
def test_other_pairs_give_other_numbers(name: str, argument: int) -> None:
    """So that the test above would see one that should not be allowed."""
    call, team = calls()[name], make_team(1, 1)
    assert (0, argument) not in call.shareable()
    # The rows of a tile depend on the CPU. One row after the first block of 128 is computed with seven of that block.
    sizes: Sequence[Binding] = [{"M": 97}, {"M": 65}, {"M": 129}]
    runs = [[call.run(size, "ordinary", pairs, team) for size in sizes] for pairs in ({(0, argument)}, set())]
    assert runs[0] != runs[1]


def test_tensors_that_may_overlap_are_not_declared_disjoint(tmp_path: Path) -> None:
    """LLVM may move a read behind a write to memory that is said to be other memory."""
    (graph,) = (graph for graph, _ in CASES if graph.name == "residual")
    generate_objects(lower([graph], LEVEL), CodeOptions(level=LEVEL.level), tmp_path)
    (text,) = (path.read_text() for path in tmp_path.glob("*llvm-ir.ll"))
    definition = next(line for line in text.splitlines() if line.startswith("define") and "ptr" in line)
    apart = ["noalias" in parameter for parameter in definition.split(",") if "ptr" in parameter]
    # Both operands of the product; what is added to it, and the result; scratch.
    assert apart == [True, True, False, False, True]
