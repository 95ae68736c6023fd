"""Which memory may be written over, of stages written by hand: what no operator makes, and each condition by itself."""

from __future__ import annotations

from nacre.compiler.codegen.structured.body_nodes import Node
from nacre.compiler.codegen.tiler.schedule import Stage
from nacre.compiler.codegen.tiler.sharing import share_elements, share_rows
from nacre.compiler.codegen.tiler.structure import Access, Buffer, Op, Tensor, View
from nacre.dialect.emitter import Index

X, R = Buffer("x", "f32"), Buffer("r", "f32")
N, M = 8, 24


def at(*loops: int, plus: int = 0) -> tuple[Index, ...]:
    return tuple(Index(((loop, 1),), plus) for loop in loops)


def lying(buffer: Buffer, *strides: int, offset: int = 0) -> Tensor:
    return Tensor((N, M)[: len(strides)], buffer.element, View(buffer, offset, strides))


def computed(*reads: Access, loops: tuple[int, ...] = (N,), reduced: bool = False, body: Node | None = None) -> Op:
    """What is computed of `reads` for each of the loops, or of all but the last one if that is reduced."""
    parallel = (*(True for _ in loops[1:]), not reduced)
    node = body or Node("arith.addf", "f32", tuple(Node("read", "f32", number=i) for i in range(len(reads))))
    made = Op(loops, parallel, reads, at(*range(len(loops) - reduced)), node, None)
    made.result = Tensor(loops[: len(loops) - reduced], "f32", None, op=made)
    return made


def stored(op: Op, offset: int = 0) -> Op:
    strides = (1,) if len(op.map) == 1 else (M, 1)
    op.result.view = View(R, offset, strides)
    return op


def stage(classes: list[tuple[int, ...]], *ops: Op) -> Stage:
    """Of ops whose loops belong to these classes; the last one is stored."""
    known = {(id(op), loop): c for op, cs in zip(ops, classes, strict=True) for loop, c in enumerate(cs)}
    sizes = {known[id(op), loop]: size for op in ops for loop, size in enumerate(op.loops)}
    return Stage(list(ops), known, [sizes[c] for c in sorted(sizes)], [ops[-1]])


def test_elements_at_the_same_index() -> None:
    same = Access(lying(X, 1), at(0))
    assert share_elements(stage([(0,)], stored(computed(same)))) == ((R, X),)
    assert share_elements(stage([(0,)], stored(computed(same, same)))) == ((R, X),)
    shifted = Access(lying(X, 1, offset=3), at(0))
    assert share_elements(stage([(0,)], stored(computed(shifted), offset=3))) == ((R, X),)


def test_an_axis_of_size_one_has_any_step() -> None:
    one_column = Access(lying(X, M, 7), at(0, 1))
    assert share_elements(stage([(0, 1)], stored(computed(one_column, loops=(N, 1))))) == ((R, X),)
    assert share_elements(stage([(0, 1)], stored(computed(one_column, loops=(N, 2))))) == ()


def test_elements_at_other_indices() -> None:
    same, next_one = Access(lying(X, 1), at(0)), Access(lying(X, 1), at(0, plus=1))
    for reads in ((next_one,), (same, next_one), (Access(lying(X, 2), at(0)),), (Access(lying(X, 0), at(0)),)):
        assert share_elements(stage([(0,)], stored(computed(*reads)))) == ()
    assert share_elements(stage([(0,)], stored(computed(same), offset=1))) == ()


def test_an_element_at_a_computed_index() -> None:
    body = Node("extract", "f32", (Node("read", "index"),), tensor=lying(X, 1))
    assert share_elements(stage([(0,)], stored(computed(Access(lying(X, 1), at(0)), body=body)))) == ()


def test_memory_that_is_written_twice_or_read_besides() -> None:
    first, second = (stored(computed(Access(lying(X, 1), at(0)))) for _ in range(2))
    twice = stage([(0,), (0,)], first, second)
    twice.sinks = [first, second]
    assert share_elements(twice) == ()
    again = stored(computed(Access(lying(X, 1), at(0)), Access(lying(R, 1), at(0))))
    assert share_elements(stage([(0,)], again)) == ()


def row_stage(reader: Op, classes: tuple[int, ...]) -> Stage:
    """A reduction over rows, then each element over its row's result."""
    result = Access(reader.result, at(0))
    return stage([classes, (0, 1)], reader, stored(computed(Access(lying(X, M, 1), at(0, 1)), result, loops=(N, M))))


def test_rows_that_are_reduced_before_they_are_written() -> None:
    summed = computed(Access(lying(X, M, 1), at(0, 1)), loops=(N, M), reduced=True)
    found = row_stage(summed, (0, 2))
    assert found.outer == [0]
    assert share_rows(found, None) == ((R, X),)
    # As elements the places differ: the sum of a row reads what is written then.
    assert share_elements(found) == ()


def test_rows_of_others() -> None:
    """A sum over other elements than those of its own row."""
    longer = computed(Access(lying(X, 1, 1), at(0, 1)), loops=(N, M), reduced=True)
    assert share_rows(row_stage(longer, (0, 2)), None) == ()
    two_rows = computed(Access(lying(X, M, 1), at(0, 1)), loops=(N, 2 * M), reduced=True)
    assert share_rows(row_stage(two_rows, (0, 2)), None) == ()
    next_row = computed(Access(lying(X, M, 1, offset=M), at(0, 1)), loops=(N, M), reduced=True)
    assert share_rows(row_stage(next_row, (0, 2)), None) == ()


def test_rows_that_are_read_across_while_they_are_written() -> None:
    across = computed(Access(lying(X, M, 1), at(0, 1)), loops=(N, M))
    summed = computed(Access(lying(Buffer("y", "f32"), M, 1), at(0, 1)), loops=(N, M), reduced=True)
    last = stored(computed(Access(across.result, at(0, 1)), Access(summed.result, at(0)), loops=(N, M)))
    found = stage([(0, 2), (0, 1), (0, 1)], across, summed, last)
    assert share_rows(found, None) == ((R, Buffer("y", "f32")),)


def test_results_that_are_stored_one_after_another() -> None:
    """The sum of a row is stored before its elements: where it is, they are read no more."""
    summed = computed(Access(lying(X, M, 1), at(0, 1)), loops=(N, M), reduced=True)
    found = row_stage(summed, (0, 2))
    summed.result.view = View(Buffer("s", "f32"), 0, (1,))
    found.sinks.insert(0, summed)
    assert share_rows(found, None) == ()


def test_a_row_that_is_kept_where_the_result_will_be() -> None:
    """As in a softmax: what the kept row is computed from may lie there too, unless it is read again behind that."""
    x = Access(lying(X, M, 1), at(0, 1))
    kept = computed(x, loops=(N, M))
    summed = computed(Access(kept.result, at(0, 1)), loops=(N, M), reduced=True)
    results = (Access(kept.result, at(0, 1)), Access(summed.result, at(0)))
    for again, shared in (((), ((R, X),)), ((x,), ())):
        last = stored(computed(*results, *again, loops=(N, M)))
        found = stage([(0, 1), (0, 1), (0, 1)], kept, summed, last)
        assert share_rows(found, None) == ((R, X),)
        assert share_rows(found, kept) == shared
