"""`recompute`: computes values again instead of keeping them, where a function needs more memory than a limit.

Where most memory is in use, the nodes before are divided into segments. Values that only a segment itself and nodes
after this point read are not kept: a copy of the segment computes them again, before the first of these nodes. In a
training step, the segments are parts of the forward computation:

    before    a = f(x)   b = g(a)   c = h(b) | dc  db = g'(b, dc)  da = f'(a, db)               a, b, c are kept
    after     a = f(x)   b = g(a)   c = h(b) | dc  a2 = f(x)  b2 = g(a2)  db = ...  da = ...      x, c are kept

The copies compute the same bits. This pass runs after `cse`, which would merge them, and before `fuse`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from ...dialect.dims import evaluate
from ...dialect.graph import Function, Module, Node, Value, read_values, substitute_values
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ..analysis.liveness import aligned
from ..manager import Context, Pass
from ..rewrite import Names, clone
from .fuse import Fuse

COUNTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
"""The numbers of segments that are tried, fewest copies first."""
MARGIN = 1.08
"""The memory plan of a function, relative to the bytes of its live tensors."""


@dataclass(frozen=True)
class Recompute(Pass):
    """Computes values of `entry` again until its intermediate tensors fit in `limit` bytes at the sizes `at`, which are
    pairs such as `B:64`; the fewest segments that suffice are chosen, or else those with the least memory.

    The nodes before the point where most memory is in use are divided into segments. A value is not kept if only nodes
    of its own segment and nodes after this point read it: a copy of the segment computes it again, before the first of
    these nodes.

    If `fuses` is set, the memory is estimated for the graph after the pass `fuse`. The budget is checked with the
    memory plan.
    """

    name: ClassVar[str] = "recompute"
    entry: str = ""
    limit: int = 0
    at: tuple[str, ...] = ()
    fuses: bool = True

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda f: self._reduce(f, module, context) if f.name == self.entry else f)

    def _reduce(self, function: Function, module: Module, context: Context) -> Function:
        dims = {name: int(size) for name, _, size in (pair.partition(":") for pair in self.at)}
        missing = {symbol.name for symbol in function.symbols()} - dims.keys()
        if missing or not function.body or max(live_bytes(function, dims)) * MARGIN <= self.limit:
            return function

        def need(candidate: Function) -> int:
            if self.fuses:
                (candidate,) = Fuse().run(replace(module, functions=(candidate,))).functions
            return max(live_bytes(candidate, dims), default=0)

        best, least = function, need(function)
        for count in COUNTS:
            if least * MARGIN <= self.limit:
                break
            candidate = with_segments(function, count, dims)
            found = need(candidate)
            if found < least:
                best, least = candidate, found
        if best is function or not context.allow("recompute", function.body[0]):
            return function
        return best


def live_bytes(function: Function, dims: Mapping[str, int]) -> list[int]:
    """Returns the bytes of intermediate tensors that are live at each node; views take none, and neither do results."""
    spans = _lifetimes(function)
    live = [0] * (len(function.body) + 1)
    for value, (first, last) in spans.items():
        size = int(evaluate(aligned(value.type.bytes), dims))
        live[first] += size
        live[last + 1] -= size
    total, found = 0, []
    for change in live[:-1]:
        total += change
        found.append(total)
    return found


def _lifetimes(function: Function) -> dict[Value, tuple[int, int]]:
    """Returns the numbers of the nodes that write an intermediate tensor and read it last."""
    owners: dict[str, Value] = {}
    spans: dict[Value, tuple[int, int]] = {}
    for number, node in enumerate(function.body):
        for value in read_values(node):
            owner = owners.get(value.name)
            if owner is not None:
                spans[owner] = spans[owner][0], number
        operator = OPERATORS[node.op]
        for value in node.outputs:
            if operator.has("view") and node.inputs[0].name in owners:
                owners[value.name] = owners[node.inputs[0].name]
            elif not operator.has("stored"):
                owners[value.name] = value
                spans[value] = number, number
    results = {owners[v.name] for v in function.results if v.name in owners}
    return {value: span for value, span in spans.items() if value not in results}


def with_segments(function: Function, count: int, dims: Mapping[str, int]) -> Function:
    """Returns the function with the nodes before its peak in `count` segments; all but the last are computed again."""
    live = live_bytes(function, dims)
    turn = live.index(max(live))
    return _Segments(function, turn, dims).divide(count)


class _Segments:
    def __init__(self, function: Function, turn: int, dims: Mapping[str, int]) -> None:
        self.function, self.turn = function, turn
        self.makers = {v.name: number for number, node in enumerate(function.body) for v in node.outputs}
        self.uses: dict[str, list[int]] = {}
        for number, node in enumerate(function.body):
            for value in read_values(node):
                self.uses.setdefault(value.name, []).append(number)
        results = {value.name for value in function.results}
        self.kept: dict[str, int] = {}
        for node in function.body[: turn + 1]:
            for value in node.outputs:
                is_late = any(use > turn for use in self.uses.get(value.name, ()))
                if is_late and value.name not in results and not OPERATORS[node.op].has("stored"):
                    self.kept[value.name] = int(evaluate(value.type.bytes, dims))

    def divide(self, count: int) -> Function:
        body, names = list(self.function.body), Names(self.function)
        inserted: dict[int, list[Node]] = {}
        changed: dict[str, Value] = {}
        ends = self._ends(count)
        for start, end in zip([-1, *ends], ends, strict=False):
            internal = [n for n in self.kept if start < self.makers[n] <= end and not self._is_read(n, end, self.turn)]
            if not internal:
                continue
            first = min(use for name in internal for use in self.uses[name] if use > self.turn)
            copied = self._needed(internal, start)
            values: dict[str, Value] = {}
            inserted.setdefault(first, []).extend(clone([body[number] for number in copied], names, values))
            changed |= {name: values[name] for name in internal}
        result: list[Node] = []
        for number, node in enumerate(body):
            result += inserted.get(number, ())
            result.append(substitute_values(node, changed) if number > self.turn else node)
        return replace(self.function, body=tuple(result))

    def _is_read(self, name: str, after: int, until: int) -> bool:
        return any(after < use <= until for use in self.uses[name])

    def _ends(self, count: int) -> list[int]:
        """Returns the last nodes of all segments but the last one. Each is where few bytes pass from one segment to the
        next, near an equal share of the kept bytes."""
        total, shares = max(1, sum(self.kept.values())), []
        done, passing = 0, [0] * (self.turn + 2)
        for number, node in enumerate(self.function.body[: self.turn + 1]):
            done += sum(self.kept.get(value.name, 0) for value in node.outputs)
            shares.append(done / total)
            for value in node.outputs:
                later = [use for use in self.uses.get(value.name, ()) if number < use <= self.turn]
                if later:
                    size = self.kept.get(value.name, 1)
                    passing[number] += size
                    passing[max(later)] -= size
        crossing, sums = 0, []
        for change in passing[: self.turn + 1]:
            crossing += change
            sums.append(crossing)
        ends: list[int] = []
        for part in range(1, count):
            near = [n for n, share in enumerate(shares) if abs(share - part / count) <= 0.5 / count]
            if near:
                ends.append(min(near, key=lambda n: (sums[n], abs(shares[n] - part / count))))
        return sorted(set(ends))

    def _needed(self, internal: Sequence[str], start: int) -> list[int]:
        """Returns the nodes after `start` that compute the values from values before it, and from kept ones."""
        own = set(internal)
        waiting, found = [self.makers[name] for name in internal], set[int]()
        while waiting:
            number = waiting.pop()
            if number in found:
                continue
            found.add(number)
            for value in read_values(self.function.body[number]):
                maker = self.makers.get(value.name, -1)
                if maker > start and (value.name in own or value.name not in self.kept):
                    waiting.append(maker)
        return sorted(found)
