"""The machine that runs random graphs finds what it is there to find: wrong numbers, wrong memory, dead children."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from nacre.compiler.validate.guarded_memory import Memory
from nacre.compiler.validate.isolated import Died, Progress, run_isolated
from nacre.compiler.validate.native import Call, Library, Outcome, make_team
from nacre.dialect.dims import Symbol
from nacre.dialect.graph import Function, Module, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.printer import print_module
from nacre.dialect.types import F32, Array, TensorType
from nacre.dialect.verifier import verify

from . import check
from .check import Failure, check_graphs
from .generator import random_graph
from .inputs import make_trial
from .maker import Graph
from .native import Level, build_library, lower
from .shrink import shrink
from .storage import load_graph, save_graph


def test_a_seed_gives_one_graph_and_all_are_valid() -> None:
    counts: Counter[str] = Counter()
    symbolic = 0
    for seed in range(400):
        graph = random_graph(seed)
        verify(graph.module)
        symbolic += bool(graph.module.dims)
        counts.update(n.op for n in graph.function.body)
    assert print_module(random_graph(7).module) == print_module(random_graph(7).module)
    assert 100 < symbolic < 350
    usual = ("matmul", "einsum", "conv2d", "softmax", "layer_norm", "attention", "transpose", "concat", "sum", "gather")
    assert all(counts[name] >= 5 for name in usual), counts
    assert len(counts) > 90


def row_graph(rows: int = 5, columns: int = 19) -> Graph:
    b = Builder(OPERATORS)
    x = Value("x", TensorType(F32, (rows, columns)))
    y = b.softmax(b.multiply(x, b.scalar(3, F32)), axis=-1)
    return Graph(1, Module("m", functions=(Function("f", (x,), tuple(b.nodes), (y,)),)), ({},), {})


# --- memory ---


def test_writes_beyond_a_tensor_are_found() -> None:
    for at_end, offset in ((True, -1), (False, 8)):
        memory = Memory({"x": 8, "y": 0}, at_end=at_end, alignments={})
        assert memory.check() is None
        ctypes.memset(memory.buffers["x"].address + offset, 0, 1)
        assert "`x` were written, 1 away" in str(memory.check())


def test_pages_of_closed_memory_are_guarded_again() -> None:
    first = Memory({"x": 100, "y": 30}, at_end=False, alignments={})
    address = first.buffers["x"].address
    ctypes.memset(address + 100, 0, 1)
    first.freeze()
    first.close()
    again = Memory({"x": 200, "y": 8}, at_end=False, alignments={})
    assert again.buffers["x"].address == address, "the pages are used again"
    assert again.check() is None
    for buffer in again.buffers.values():
        buffer.data[:] = 1
    assert again.check() is None
    ctypes.memset(address + 200, 0, 1)
    assert "`x` were written, 1 away" in str(again.check())
    again.close()
    other = Memory({"x": 8, "y": 4000}, at_end=True, alignments={})
    place = other.buffers["y"].address

    def read(size: int, _report: Progress) -> bytes:
        return ctypes.string_at(place, size)[-1:]

    found = run_isolated([partial(read, 4000), partial(read, 4001)])
    assert len(found) == 2 and not isinstance(found[0], Died) and isinstance(found[1], Died)


class Broken(Library):
    """A library that does something wrong with every call."""

    def __init__(self, library: Library, fault: str) -> None:
        self.library, self.fault = library, fault

    def prepare(self, *given: Any) -> Call:
        return self.library.prepare(*given)

    def run_prepared(self, call: Call, *, suffix: str = "", team: Any = None, at_end: bool) -> Outcome:
        outcome = self.library.run_prepared(call, team=team, at_end=at_end)
        if self.fault == "read":
            memory = Memory({"x": 8}, at_end=True, alignments={})
            ctypes.string_at(memory.buffers["x"].address, 9)
        if self.fault == "hang":
            while True:
                pass
        if self.fault == "units" and team is not None:
            outcome.results[0][...] += 1
        if self.fault == "numbers":
            outcome.results[0][...] *= np.float32(1.001)
        return outcome


@pytest.fixture(scope="module")
def library() -> Library:
    return build_library(lower([row_graph()], Level(0)), Level(0))


@pytest.mark.parametrize(
    ("fault", "kind"), [("read", "crash"), ("hang", "hang"), ("units", "repeat"), ("numbers", "numbers"), ("", None)]
)
def test_failures_of_a_child_are_reported(
    fault: str, kind: str | None, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "build_library", lambda *given: Broken(library, fault))
    monkeypatch.setattr(check, "TIMEOUT", 2.0)
    found = check_graphs([row_graph()], Level(0))
    assert [f.kind for f in found] == ([kind] if kind else [])


def test_units_are_computed_once_each_in_any_order() -> None:
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    for units, chunk, threads in ((7, 1, 1), (7, 3, 2), (1000, 1, 2), (0, 1, 1)):
        seen: list[tuple[int, int]] = []
        task = kernel(lambda context, begin, end: seen.append((begin, end)))  # noqa: B023 (called within the loop)
        team = make_team(chunk, threads)
        team.parallel(None, ctypes.cast(task, ctypes.c_void_p), None, units, None)
        assert sorted(u for begin, end in seen for u in range(begin, end)) == list(range(units))
        assert threads > 1 or seen == sorted(seen, reverse=True)


# --- shrinking ---


def test_a_failure_is_reduced_to_the_failing_nodes() -> None:
    """As if a compiler could not do a product whose inner size is 3 or more."""

    def pretend(graphs: Sequence[Graph], level: Level) -> list[Failure]:
        return [Failure(g.name, g.seed, level, "numbers", "wrong", g.bindings[0], "ordinary") for g in graphs if bad(g)]

    def bad(graph: Graph) -> bool:
        return any(n.op == "matmul" and n.inputs[0].type.shape[-1] >= 3 for n in graph.function.body)

    t = Symbol("T", 0, 30)
    b = Builder(OPERATORS)
    x, w = Value("x", TensorType(F32, (t.size, 33))), Value("w", TensorType(F32, (33, 20)))
    h = b.matmul(b.tanh(b.layer_norm(x, axes=-1)), w)
    y = b.softmax(b.add(b.relu(h), h), axis=-1)
    function = Function("g1", (x, w), tuple(b.nodes), (y, h))
    graph = Graph(1, Module("m", (t,), functions=(function,)), ({"T": 5}, {"T": 17}), {})
    (failure,) = pretend([graph], Level(2))
    small = shrink(graph, failure, pretend).graph
    assert [n.op for n in small.function.body] == ["matmul"]
    assert small.bindings == ({"T": 0},)
    assert {str(a.type) for a in small.function.arguments} == {"f32[T, 3]", "f32[3, 1]"}


def test_a_graph_comes_back_from_its_file(tmp_path: Any) -> None:
    for seed in range(12):
        graph = random_graph(seed)
        failure = Failure(graph.name, seed, Level(2), "numbers", "wrong")
        back = load_graph(save_graph(graph, failure, tmp_path))
        assert print_module(back.module) == print_module(graph.module) and back.bindings == graph.bindings
        before, after = (make_trial(g, g.bindings[0], "ordinary").arguments for g in (graph, back))
        assert all(same(a, b) for a, b in zip(before, after, strict=True))


def same(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()
