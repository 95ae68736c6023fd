"""Writes the values of ops in an iteration: reads, bodies and stores, each written once per scope.

An iteration gives a linear form for every class of loops of a stage; the class that runs over lanes has a form with
LANE, so it describes one iteration for each lane.

The results of the stage's own ops come from registers or from rows on the stack; the results of other ops come from
memory.

For a stage with the classes a, of 8 rows, and b, the lanes, y[i, j] = exp(x[i, j]) - s[i] is evaluated in the iteration

    {a: row, b: 8*block + LANE}

as one vector load of x, one `exp`, one load of s[row] that is broadcast, and one subtraction. A second op of the stage
that reads y in the same iteration uses the value that was written before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ....dialect.dims import Size, add, multiply
from ....dialect.emitter import Index
from ....dialect.lazy_dataclass import dataclass
from ..structured.body_nodes import Node
from ..structured.positions import Panel, linear
from .branches import load_under, raise_alarm, watching
from .dots import WORD, Halves, add_products
from .forms import Form, combine, constant, variable
from .halves import apply_to_halves
from .lookups import find_floats, find_pair, look_up_floats, look_up_pair
from .pages import split_page
from .quantized_sums import add_quantized, unpack
from .remainder import LARGEST, remainder
from .rounding import round_to_nearest
from .schedule import Stage
from .structure import Access, Buffer, Group, Op, Page, Position, Scaled, Tensor, Unsupported, View
from .text import Value, Writer

Iteration = Mapping[int, Form]
"""The index of each class of loops."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A result on the stack: its buffer, and a form of its position in the buffer."""

    buffer: Buffer
    strides: Mapping[int, Size]
    origin: Form

    def at(self, iteration: Iteration) -> Form:
        return combine(0, [(self.origin, 1), *((iteration[c], stride) for c, stride in self.strides.items())])


@dataclass(frozen=True, slots=True)
class Span:
    """The visited part of a loop, by the names of index values: `begin` to `end` along lanes; sums need only `first` to
    `last`, within that range, and take `together` steps in one iteration, which divides their number."""

    begin: str
    end: str
    first: str
    last: str
    together: int = 1


@dataclass(frozen=True, slots=True)
class _Steps:
    """The memory that an op's access reads: the element `origin`, and per class of loops the elements that one step
    moves. `linear` is None for panels and pages, where a step depends on the position."""

    access: Access
    view: View
    op: Op
    origin: Size = 0
    linear: tuple[tuple[int, Size], ...] | None = None


def _find_steps(access: Access, view: View, op: Op, classes: Sequence[int]) -> _Steps:
    origin, steps = view.offset, dict[int, Size]()
    for position, stride in zip(access.index, view.strides, strict=True):
        if not isinstance(position, Index):
            return _Steps(access, view, op)
        origin = add(origin, multiply(position.constant, stride))
        for loop, coefficient in position.coefficients:
            c = classes[loop]
            steps[c] = add(steps.get(c, 0), multiply(coefficient, stride))
    return _Steps(access, view, op, origin, tuple(steps.items()))


class Evaluator:
    """The writer of one stage's values."""

    def __init__(self, writer: Writer, stage: Stage, *, strict: bool = False) -> None:
        self.writer, self.stage = writer, stage
        self.strict = strict
        self.exact_division = strict or not any(op.reduced for op in stage.ops)
        """Without a reduction, memory bandwidth is the bottleneck."""
        self.kept: dict[int, Kept] = {}
        """The results that are on the stack so far, by the identity of the op."""
        self.carried: dict[int, Kept] = {}
        """The results that reductions carry on from, in place of their initial values, by the identity of the op."""
        self.spans: dict[int, Span] = {}
        """The classes of loops that are visited in part."""
        self.made: dict[tuple[int, int], Kept] = {}
        """The numbers of weights that are on the stack so far, by op and node."""
        self.stacked: dict[tuple[str, int, int, str], Buffer] = {}
        self.reciprocals: dict[tuple[int, int], Value] = {}
        """The reciprocals of divisors, by op and node, where a multiplication may replace the division."""
        self.widened: dict[tuple[int, int], Callable[[Iteration], Halves]] = {}
        """The f32 copies of bf16 reads, by the identity of the op and the number of the read."""
        self.single = {c: constant(0) for c, size in enumerate(stage.sizes) if size == 1}
        self._classes: dict[int, list[int]] = {}
        """The classes of an op's loops, in their order, by the identity of the op."""
        self._steps: dict[int, _Steps] = {}
        """The steps of accesses in memory, by the identity of the access."""

    def stack(self, kind: str, op: Op, elements: int, element: str | None = None) -> Buffer:
        """Returns memory on the stack for an op, for its results or for other elements; calls that ask for the same
        return the same memory."""
        key = kind, id(op), elements, element or op.result.element
        if key not in self.stacked:
            self.stacked[key] = self.writer.on_stack(elements + self.writer.lanes, key[-1])
        return self.stacked[key]

    def span(self, c: int) -> Span:
        """Returns the range of indices that a class visits."""
        zero, size = self.writer.size(0), self.writer.size(self.stage.sizes[c])
        return self.spans.get(c) or Span(zero, size, zero, size)

    # Iterations

    def loops(self, op: Op, iteration: Iteration) -> dict[int, Form]:
        """Returns the index forms of an op's loops, as far as the position defines them."""
        return {loop: form for loop, form in enumerate(self._forms(op, iteration)) if form is not None}

    def _forms(self, op: Op, iteration: Iteration) -> list[Form | None]:
        """Returns the index form of each loop of an op, None where the position does not define it."""
        single = self.single
        return [iteration.get(c) or single.get(c) for c in self._classes_of(op)]

    def _classes_of(self, op: Op) -> list[int]:
        classes = self._classes.get(id(op))
        if classes is None:
            classes = self._classes[id(op)] = self.stage.loops(op)
        return classes

    def position(self, position: Position, loops: Mapping[int, Form]) -> Form:
        index = linear(position)
        total = combine(index.constant, [(loops[loop], coefficient) for loop, coefficient in index.coefficients])
        if isinstance(position, Panel):
            parts = total.split(position.width, self.writer.lanes)
            if parts is None:
                raise Unsupported("panels that are read across")
            return parts[position.within]
        return total

    def home(self, access: Access, op: Op, iteration: Iteration) -> tuple[Buffer, Form]:
        """Returns the memory of an op's access, and the position in that memory."""
        view = access.tensor.view
        if view is None:
            raise Unsupported("a tensor without memory is read")
        steps = self._steps.get(id(access))
        if steps is None or steps.access is not access or steps.view is not view or steps.op is not op:
            steps = self._steps[id(access)] = _find_steps(access, view, op, self._classes_of(op))
        if steps.linear is not None:
            single = self.single
            moved = [(iteration.get(c) or single[c], step) for c, step in steps.linear]
            return view.buffer, combine(steps.origin, moved)
        page = next((p for p in access.index if isinstance(p, Page)), None)
        if page is not None:
            parts = self._in_pages(page, access, op, iteration)
        else:
            loops = self.loops(op, iteration)
            parts = [self.position(position, loops) for position in access.index]
        return view.buffer, combine(view.offset, zip(parts, view.strides, strict=True))

    def _in_pages(self, page: Page, access: Access, op: Op, iteration: Iteration) -> list[Form]:
        """Returns the position on each axis of an access to pages that a table names."""
        loops = self.loops(op, iteration)
        begin, within = split_page(self.writer, self.position(page.index, loops), page.width)
        ((loop, _),) = page.index.coefficients
        number = self.body(op, {**iteration, self.stage.of(op, loop): begin}, root=page.number)
        if number.vector:
            raise Unsupported("pages that differ between lanes")
        form = number.form if number.form is not None else variable(self.writer.scalar(number).name)
        parts: Mapping[type, Form] = {Page: form, Panel: within}
        return [parts.get(type(p)) or self.position(p, loops) for p in access.index]

    def _key(self, op: Op, iteration: Iteration) -> tuple[object, ...]:
        classes, single = self._classes_of(op), self.single
        at = tuple([iteration.get(classes[i]) or single[classes[i]] for i in op.outer])
        # The mask matters only to values that differ between lanes.
        mask = self.writer.mask
        return ("value", id(op), at, mask if mask is not None and any(f.lane != 0 for f in at) else None)

    # Values

    def read(self, op: Op, number: int, iteration: Iteration) -> Value:
        access = op.reads[number]
        if self.stage.holds(access.tensor):
            assert access.tensor.op is not None
            return self.value(access.tensor.op, iteration)
        known = self.writer.recall(self._read_key(op, number, iteration))
        if known is not None:
            return known
        if access.group is not None:
            return self._read_group(access.group, access, op, iteration)
        return self.writer.load(*self.home(access, op, iteration))

    def _read_group(self, group: Group, access: Access, op: Op, iteration: Iteration) -> Value:
        """Loads a group as a word. Panels are padded with zeros, so a group in a panel needs no mask."""
        is_last = self.loops(op, iteration)[group.loop] == constant(op.loops[group.loop]).plus(-1)
        count = group.rest if group.rest and is_last else group.size
        return self.writer.load_words(*self.home(access, op, iteration), group.size, count, group.stride)

    def define_read(self, op: Op, number: int, iteration: Iteration, value: Value) -> None:
        """Defines the value of an op's read at a position from here on."""
        self.writer.remember(self._read_key(op, number, iteration), value)

    def _read_key(self, op: Op, number: int, iteration: Iteration) -> tuple[object, ...]:
        return ("read", id(op), number, tuple(self._forms(op, iteration)), self.writer.mask)

    def is_known(self, op: Op, iteration: Iteration) -> bool:
        """Returns whether the value of an op at a position is written and still in scope."""
        return self.writer.recall(self._key(op, iteration)) is not None

    def value(self, op: Op, iteration: Iteration) -> Value:
        """Returns the result of an op at a position."""
        key = self._key(op, iteration)
        known = self.writer.recall(key)
        if known is not None:
            return known
        kept = self.kept.get(id(op))
        if kept is not None:
            value = self.writer.load(kept.buffer, kept.at({**self.single, **iteration}))
        else:
            assert not op.reduced, f"a sum is asked for before it is there: {op.location}"
            value = self.body(op, iteration)
        self.writer.remember(key, value)
        return value

    def define(self, op: Op, iteration: Iteration, value: Value) -> None:
        """Defines the result of an op at a position from here on."""
        self.writer.remember(self._key(op, iteration), value)

    def body(self, op: Op, iteration: Iteration, start: Value | None = None, root: Node | None = None) -> Value:
        """Evaluates the body of an op, or a part of it, at a position."""
        done: dict[int, Value] = {}
        writer = self.writer

        def evaluate(node: Node) -> Value:
            value = done.get(id(node))
            if value is None:
                # As `at` does; a context manager for each node would take longer than most nodes.
                before, writer.location = writer.location, node.location or writer.location
                value = done[id(node)] = self.node(op, node, iteration, evaluate, start)
                writer.location = before
            return value

        return evaluate(root or op.body)

    def node(
        self, op: Op, node: Node, iteration: Iteration, evaluate: Callable[[Node], Value], start: Value | None
    ) -> Value:
        writer = self.writer
        # A dequantized weight of the current block is on the stack: see `decoded`.
        made = self.made.get((id(op), id(node)))
        if made is not None:
            return writer.load(made.buffer, made.at({**self.single, **iteration}))
        if node.kind == "read":
            return self.read(op, node.number, iteration)
        if node.kind == "start":
            assert start is not None, op.location
            return start
        if node.kind == "constant":
            return writer.constant(node.text, node.type)
        if node.kind == "size":
            return writer.scalar(Value("", node.type, form=constant(node.size)))
        if node.kind == "index":
            return Value("", node.type, form=self.loops(op, iteration)[node.number])
        if node.kind == "arith.divf" and not self.exact_division:
            reciprocal = self.reciprocals.get((id(op), id(node.operands[1]))) or self._constant_reciprocal(node)
            if reciprocal is not None:
                numerator = evaluate(node.operands[0])
                if numerator.vector:
                    return writer.apply("arith.mulf", "", [numerator, reciprocal], node.type)
        lookup = find_floats(writer, node)
        if lookup is not None:
            byte = evaluate(lookup.byte)
            if byte.vector:
                return look_up_floats(writer, lookup, byte)
        pair = find_pair(node)
        found = None if pair is None else look_up_pair(writer, pair, evaluate(pair.indices))
        if found is not None:
            return found
        if node.kind == "dot":
            total, *words = node.operands
            added = writer.broadcast(evaluate(total))
            factors: list[Value | Halves] = []
            for word in words:
                widened = self.widened.get((id(op), word.number))
                factors.append(evaluate(word) if widened is None else widened(iteration))
            return add_products(writer, node, added, factors)
        operands = [evaluate(o) for o in node.operands]
        if node.kind == "extract":
            return self._extract(node, operands, None if node.guard is None else evaluate(node.guard))
        if node.kind == "watch":
            raise_alarm(writer, node.text, operands[1])
            return operands[0]
        if node.kind == "nearest":
            return round_to_nearest(writer, operands[0])
        if node.kind == "bytes":
            return unpack(writer, node.text, operands[0], operands[1:])
        if node.kind == "arith.remf" and node.type in LARGEST and any(value.vector for value in operands):
            return remainder(writer, *map(writer.broadcast, operands))
        form = self._form(node, operands)
        if form is not None:
            return Value("", node.type, form=form)
        halves = apply_to_halves(writer, node, operands)
        if halves is not None:
            return halves
        return writer.apply(node.kind, node.text, operands, node.type)

    def _form(self, node: Node, operands: Sequence[Value]) -> Form | None:
        """Returns the linear form of an index value that varies along the lanes, if there is one: reads through it are
        then known to be contiguous."""
        if node.kind == "arith.index_cast":
            return operands[0].form
        if node.kind not in ("arith.addi", "arith.subi") or node.type not in ("index", "i64"):
            return None
        if all(value.form is None or value.form.lane == 0 for value in operands):
            return None
        forms = [self.as_form(part, value) for part, value in zip(node.operands, operands, strict=True)]
        left, right = forms
        if left is None or right is None:
            return None
        return left + (right if node.kind == "arith.addi" else right.times(-1))

    def as_form(self, node: Node, value: Value) -> Form | None:
        if value.form is not None or value.vector:
            return value.form
        if node.kind == "constant":
            return constant(int(node.text.partition(" ")[0]))
        name = value.name
        if value.type != "index":
            name = self.writer.let(f"arith.index_cast {name} : {value.type} to index")
        return Form(((name, 1),))

    def _constant_reciprocal(self, node: Node) -> Value | None:
        """Returns the reciprocal of a constant divisor, where both are normal numbers."""
        divisor = node.operands[1]
        if divisor.kind != "constant" or node.type != "f32" or divisor.text.startswith("0x"):
            return None
        value = float(divisor.text.split(" ")[0])
        if not 1e-37 < abs(value) < 1e37:
            return None
        return self.writer.number(1 / value, "f32")

    def _extract(self, node: Node, indices: Sequence[Value], guard: Value | None) -> Value:
        """Loads an element at a computed index, under a condition if there is one."""
        if guard is None:
            return self._load_at(node, indices)
        writer = self.writer
        zero = writer.constant("0.0" if node.type.startswith(("f", "b")) else "0", node.type)
        vector = any(v.vector or (v.form is not None and v.form.lane != 0) for v in indices)
        zero = writer.broadcast(zero) if vector else zero

        def load() -> Value:
            # Strides are 0 where an axis is empty, so that all lanes may load one element, which is broadcast.
            value = self._load_at(node, indices)
            return writer.broadcast(value) if vector else value

        return Value(load_under(writer, guard, writer.type(zero), zero, load), node.type, vector)

    def _load_at(self, node: Node, indices: Sequence[Value]) -> Value:
        """Loads an element at a computed index: contiguous memory if only the last index varies with the lanes."""
        assert node.tensor is not None and node.tensor.view is not None
        view, writer = node.tensor.view, self.writer
        base, lanes = constant(view.offset), None
        # Each index is a linear form, one number for all lanes, or a vector of computed numbers.
        for value, stride in zip(indices, view.strides, strict=True):
            if value.form is not None:
                base = base + value.form.times(stride)
            elif not value.vector:
                base = base + Form(((value.name, 1),)).times(stride)
            else:
                scaled = value
                if stride != 1:
                    factor = writer.scalar(Value("", "index", form=constant(stride)))
                    scaled = writer.apply("arith.muli", "", [value, factor], "index")
                lanes = scaled if lanes is None else writer.apply("arith.addi", "", [lanes, scaled], "index")
        if lanes is None:
            return writer.load(view.buffer, base)
        # A gather adds the computed positions to those of the linear part.
        if base.lane != 0:
            steps = writer.broadcast(Value("", "index", form=Form((("lane", base.lane),))))
            lanes = writer.apply("arith.addi", "", [lanes, steps], "index")
        # With AVX2, LLVM loads the elements one by one, and the narrowing only costs.
        if writer.lanes >= 16 and _has_short_distances(node.tensor):
            lanes = writer.apply("arith.index_cast", "", [lanes], "i32")
        return writer.gather(view.buffer, base.base, lanes)

    # Sums

    def starting(self, op: Op, iteration: Iteration) -> Value:
        """Returns the initial value of an op's reduction at a position."""
        carried = self.carried.get(id(op))
        if carried is not None:
            return self.writer.load(carried.buffer, carried.at({**self.single, **iteration}))
        assert op.start is not None, op.location
        if op.start.splat is not None:
            return self.writer.constant(op.start.splat, op.result.element)
        with self.writer.at(op.location):
            return self.writer.load(*self.home(Access(op.start, op.map), op, iteration))

    def accumulate(self, op: Op, iteration: Iteration, total: Value) -> Value:
        """Returns the accumulator after one more iteration; a product of floats is added with one rounding."""
        factors = op.product
        if factors is not None and total.vector:
            left, right = (self.body(op, iteration, root=f) for f in factors)
            return self._add_product(op, left, right, total)
        if op.composed and total.vector:
            return self.add_products(op, Scaled(op.composed, None, frozenset()), iteration, total)
        return self.body(op, iteration, total)

    def add_products(self, op: Op, scaled: Scaled, iteration: Iteration, total: Value) -> Value:
        """Returns the unscaled sum after one more iteration."""
        for factors in scaled.products:
            left, right = (self.body(op, iteration, root=f) for f in factors)
            if scaled.quantized is None and left.type == WORD:
                with self.writer.at(op.body.location):
                    total = add_products(self.writer, op.body, total, (left, right))
            elif scaled.quantized is None:
                total = self._add_product(op, left, right, total)
            else:
                with self.writer.at(op.body.location):
                    total = add_quantized(self.writer, total, left, right)
        return total

    def add_scaled(self, op: Op, scaled: Scaled, iteration: Iteration, part: Value, total: Value) -> Value:
        """Returns the accumulator after a sum with a loop-invariant factor."""
        assert scaled.factor is not None, op.location
        if scaled.quantized is not None:
            with self.writer.at(op.body.location):
                part = self.writer.apply("arith.sitofp", "", [part], "f32")
        return self._add_product(op, part, self.body(op, iteration, root=scaled.factor), total)

    def _add_product(self, op: Op, left: Value, right: Value, total: Value) -> Value:
        left, right = self.writer.broadcast(left), self.writer.broadcast(right)
        with self.writer.at(op.body.location):
            name = self.writer.multiply_add(left.name, right.name, total.name, self.writer.type(total))
            return Value(name, total.type, True)

    # Results

    def write(self, ops: Sequence[Op], iterations: Sequence[Iteration]) -> None:
        """Stores the results of ops into their homes. All results are computed before the first store, since a store
        may overwrite the inputs of the others."""
        with watching(self.writer):
            results = [(op, iteration, self.value(op, iteration)) for iteration in iterations for op in ops]
        for op, iteration, value in results:
            with self.writer.at(op.location):
                self.writer.store(*self.home(op.written, op, iteration), value)

    def finish(self, iteration: Iteration) -> None:
        """Stores the results of the stage at a position."""
        self.write(self.stage.sinks, [iteration])

    def keep(self, op: Op, iteration: Iteration, kept: Kept) -> None:
        """Stores the result of an op in its row on the stack."""
        value = self.value(op, iteration)
        with self.writer.at(op.location):
            self.writer.store(kept.buffer, kept.at({**self.single, **iteration}), value)


def _has_short_distances(tensor: Tensor) -> bool:
    """Returns whether the distance of any two elements in memory fits an i32, so that one gather loads 16 lanes of f32.

    The indices of lanes that are masked out may have any value. The other lanes read elements of the tensor. The base
    without the lanes' steps may be outside the tensor, by at most the tensor's length.
    """
    assert tensor.view is not None
    longest = 0
    for size, stride in zip(tensor.shape, tensor.view.strides, strict=True):
        if not isinstance(size, int) or not isinstance(stride, int):
            return False
        longest += size * abs(stride)
    return 2 * longest < 1 << 31
