"""Faults of what compiles for GPUs: its passes, its schedules and its entries. Each model shows one on a device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from nacre.compiler.codegen.gpu import (
    causal,
    contraction,
    joined_rows,
    one_row,
    outline,
    plain,
    rows,
    tensor_cores,
    vectors,
    wide_products,
)
from nacre.compiler.codegen.gpu.text import Text
from nacre.compiler.host.device import DeviceEntryText
from nacre.dialect.graph import Node
from nacre.dialect.ops import merged_order
from nacre.passes.analysis import plan_memory
from nacre.passes.layout import split_reductions, split_scans, split_sums
from nacre.passes.rewrite import NodeBuilder

from . import in_artifacts, in_kernels
from .planted import Planted
from .setting import Setter

TARGET = "cuda:sm_80"


def doubled_sum(setter: Setter) -> None:
    """The parts of a long sum are added twice."""
    visit = split_sums._Rewriter.visit

    def wrong(self: Any, node: Node) -> Any:
        made = visit(self, node)
        if made is None:
            return None
        b = NodeBuilder(self.names, node)
        (value,) = made.values
        twice = b.add(value, value)
        return replace(made, nodes=(*made.nodes, *b.nodes), values=(twice,))

    setter.attribute(split_sums._Rewriter, "visit", wrong)


def turned_scan(setter: Setter) -> None:
    """A running sum in parts runs from the other end."""
    visit = split_scans._Rewriter.visit

    def wrong(self: Any, node: Node) -> Any:
        attributes = tuple((k, not v if k == "reverse" else v) for k, v in node.attributes)
        return visit(self, Node(node.op, node.inputs, node.outputs, attributes, span=node.span))

    setter.attribute(split_scans._Rewriter, "visit", wrong)


def least_part(setter: Setter) -> None:
    """The maximum of parts is their minimum."""
    setter.item(split_reductions._COMBINING, "max", "min")  # type: ignore[arg-type]  # a dict, declared read-only


def other_order(setter: Setter) -> None:
    """Rows that are merged are in the opposite order."""
    merge = merged_order.merge_rows

    def wrong(e: Any, x: Any, axis: int, descending: bool, count: Any) -> Any:
        return merge(e, x, axis, not descending, count)

    setter.attribute(merged_order, "merge_rows", wrong)


def lost_elements(setter: Setter) -> None:
    """The last elements are left out, unless they are a whole block."""
    count = plain.write_count
    for schedule in (plain, vectors):
        setter.attribute(schedule, "write_count", lambda *given: count(*given).replace("ceildivui", "divui"))


def finite_maximum(setter: Setter) -> None:
    """A maximum of a row starts at the least finite number."""
    setter.item(rows._NEGATIVE, "f32", "FF7FFFFF")


def no_barrier(setter: Setter) -> None:
    """Threads do not wait for what others write to shared memory."""
    setter.attribute(Text, "barrier", lambda self: None)


def exchanged_tile(setter: Setter) -> None:
    """Blocks of a product take the row of a tile for its column."""
    find = tensor_cores.find_tile

    def wrong(*given: Any) -> Any:
        batch, row, column = find(*given)
        return batch, column, row

    setter.attribute(tensor_cores, "find_tile", wrong)
    setter.attribute(tensor_cores, "_is_wide", lambda *given: True)


def early_end(setter: Setter) -> None:
    """The tiles of a causal mask end before the diagonal where a tile begins on it."""
    table: Any = causal._BEFORE
    for predicate, is_exchanged in ((3, False), (5, True)):
        setter.item(table, predicate, ("<", is_exchanged))


def lost_frame_of_rows(setter: Setter) -> None:
    """A padded axis is looked at alone if there are two."""
    inside = plain.is_inside

    def wrong(text: Any, operand: Any, *given: Any) -> str:
        return inside(text, replace(operand, padded=operand.padded[:1]), *given)

    setter.attribute(plain, "is_inside", wrong)


def further_columns(setter: Setter) -> None:
    """Blocks of a product write columns beyond the last one."""
    inside = contraction.ContractionWriter.inside

    @contextmanager
    def wrong(self: Any, row: str, column: str) -> Iterator[None]:
        known = self.total
        self.total = {**known, self.groups.columns: self.text.constant(1 << 20)}
        with inside(self, row, column):
            self.total = known
            yield

    setter.attribute(contraction.ContractionWriter, "inside", wrong)


def exchanged_vectors(setter: Setter) -> None:
    """A thread of a large product reads four columns for its other four."""
    read = wide_products.WideWriter.read

    def wrong(self: Any, side: int, place: str, number: int, k: int) -> list[str]:
        return read(self, side, place, number ^ 4 if side == 1 else number, k)

    setter.attribute(wide_products.WideWriter, "read", wrong)


def lost_choice(setter: Setter) -> None:
    """Launches for rows that are few and long have blocks where the joined launch has them."""
    _exchange(setter, {joined_rows.SEPARATE: joined_rows.JOINED})


def lost_rows(setter: Setter) -> None:
    """The launch for one row has the calls of several, and the other way round."""
    _exchange(setter, {one_row.SEVERAL: one_row.ONE, one_row.ONE: one_row.SEVERAL})


def _exchange(setter: Setter, others: Mapping[str, str]) -> None:
    """Counts the blocks of launches of a kind as those of another kind."""
    name = outline.name_count

    def wrong(*given: Any) -> str:
        begin, _, kind = name(*given).rpartition("_")
        return begin + others.get(f"_{kind}", f"_{kind}")

    setter.attribute(outline, "name_count", wrong)


def wrong_exponential(setter: Setter) -> None:
    in_kernels.wrong_exponential(setter)


def lost_copy(setter: Setter) -> None:
    """An entry leaves out its copies."""
    setter.attribute(DeviceEntryText, "copy", lambda self, copy: None)


def next_iteration(setter: Setter) -> None:
    """Kernels in a loop receive the number of the next iteration."""
    store = DeviceEntryText.store_word

    def wrong(self: Any, value: str, pointer: str) -> None:
        store(self, value if not value.startswith("%i") else self.define(f"add i64 {value}, 1"), pointer)

    setter.attribute(DeviceEntryText, "store_word", wrong)


def stale_memory(setter: Setter) -> None:
    """A tensor's memory is taken for another one two calls before its last reader has run."""
    find = plan_memory.find_lives

    def wrong(steps: Any, sizes: Any) -> Any:
        return tuple(replace(life, last=max(life.first, life.last - 2)) for life in find(steps, sizes))

    setter.attribute(plan_memory, "find_lives", wrong)


def lost_power(setter: Setter) -> None:
    in_artifacts.lost_power(setter)


def _planted(name: str, stage: str, plant: Any, model: str) -> Planted:
    return Planted(name, stage, plant, f"language 1\n{model}", target=TARGET)


FAULTS = (
    _planted(
        "doubled-sum",
        "split-sums",
        doubled_sum,
        """
model f(x: f32[4, 4096]) -> f32[4, 64] {
  param weight: f32[4096, 64] = 0.5
  return x @ weight  # here
}
""",
    ),
    _planted(
        "turned-scan",
        "split-scans",
        turned_scan,
        "model f(x: f32[400]) -> f32[400] { return cumsum(x) }  # here",
    ),
    _planted("least-part", "split-reductions", least_part, "model f(x: f32[16384]) -> f32 { return max(x) }  # here"),
    _planted("other-order", "linalg", other_order, "model f(x: f32[70]) -> f32[70] { return sort(x) }  # here"),
    _planted(
        "lost-elements",
        "device",
        lost_elements,
        """
dim B in 1..64
model f(x: f32[B, 7]) -> f32[B, 7] { return exp(x) }  # here
""",
    ),
    _planted(
        "finite-maximum",
        "device",
        finite_maximum,
        """
dim B in 1..4
model f(x: f32[B, 40]) -> f32[B] { return max(x, axis=1) }  # here
""",
    ),
    _planted(
        "no-barrier",
        "device",
        no_barrier,
        """
dim B in 1..20
model f(x: f32[B, 37], w: f32[37, 65]) -> f32[B, 65] { return x @ w }  # here
""",
    ),
    _planted(
        "exchanged-tile",
        "device",
        exchanged_tile,
        """
dim B in 1..20
model f(x: f16[B, 40], w: f16[40, 136]) -> f16[B, 136] { return x @ w }  # here
""",
    ),
    _planted(
        "early-end",
        "device",
        early_end,
        """
dim T in 60..70
model f(x: f16[1, T, 32]) -> f16[1, T, 32] { return attention(x, x, x, causal=true) }  # here
""",
    ),
    _planted(
        "lost-frame-of-rows",
        "device",
        lost_frame_of_rows,
        """
dim B in 1..2
model f(x: f32[B, 3, 9, 9], w: f32[20, 3, 3, 3]) -> f32[B, 20, 9, 9] { return conv2d(x, w, padding=1) }  # here
""",
    ),
    _planted(
        "further-columns",
        "device",
        further_columns,
        """
dim B in 1..20
model f(x: f32[B, 37], w: f32[37, 65]) -> f32[B, 65] { return x @ w }  # here
""",
    ),
    _planted(
        "exchanged-vectors",
        "device",
        exchanged_vectors,
        """
dim B in 1..3
dim C in 1..80
model f(x: f32[132, B, 37], w: f32[132, 37, C]) -> f32[132, B, C] { return x @ w }  # here
""",
    ),
    _planted(
        "lost-choice",
        "device",
        lost_choice,
        """
dim T in 8190..8200
model f(x: f32[2, T]) -> f32[2, T] { return softmax(x) }  # here
""",
    ),
    _planted(
        "lost-rows",
        "device",
        lost_rows,
        """
dim T in 1..3
model f(x: f32[T, 260], w: f32[260, 1032]) -> f32[T, 1032] { return x @ w }  # here
""",
    ),
    _planted(
        "wrong-exponential",
        "device",
        wrong_exponential,
        """
dim B in 1..64
model f(x: f32[B]) -> f32[B] { return exp(x) }  # here
""",
    ),
    _planted(
        "lost-copy",
        "entry",
        lost_copy,
        """
model f(x: f32[8]) -> f32[8] {  # here
  state a: f32[8]
  state b: f32[8]
  before = a
  a = b
  b = before
  return a + x
}
""",
    ),
    _planted(
        "next-iteration",
        "entry",
        next_iteration,
        """
dim T in 1..5
model f(x: f32[T, 8, 8], h: f32[8, 8]) -> f32[8, 8] {
  scan t in 0..T with y = cumsum(h, axis=0) { y = tanh(x[t] @ y + cast(t, f32)) }  # here
  return y
}
""",
    ),
    _planted(
        "stale-memory",
        "plan-memory",
        stale_memory,
        """
dim B in 1..4
model f(x: f32[B, 20, 20]) -> f32[B, 20, 20] {
  kept = x @ x  # here
  y = kept @ x
  y = y @ x
  y = y @ x
  return y @ kept
}
""",
    ),
    _planted(
        "lost-power",
        "plan-memory",
        lost_power,
        """
dim T in 1..64
model f(x: f32[T, T]) -> f32[T, T] {
  y = cumsum(x, axis=1)  # here
  z = cumsum(x, axis=0)
  return cumsum(z, axis=1) + cumsum(y, axis=0)
}
""",
    ),
)
