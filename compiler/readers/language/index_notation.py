"""Index notation: `y[b, o] = sum(i) x[b, i] * w[o, i]`, for operators that no function covers.

An index is a name that is new. It runs over the axis that it selects alone. In `x[i + k]`, an index that selects no
axis alone runs as far as the sum stays inside, or over the whole axis if a condition guards the read. The indices are
the axes of a space; each tensor that the expression reads is laid out in this space, with size 1 along the indices that
it does not have. The other accesses become elementwise operators and one reduction, so gradients, passes and targets
support them:

    y[i, j] = max(k) x[i, k] + w[k, j]      x: [i, 1, k]   w: [1, j, k]   max(x + w, axis=2)
    y[b, o] = sum(i) x[b, i] * w[o, i]      einsum("ac,bc->ab", x, w)
    y[t, d] = table[ids[t], d]              gather(table, ids)
    y[i] = x[i - 1] if i > 0 else 0         where(i > 0, gather(x, i - 1), 0)

Reads that are not guarded by a condition must be inside for all values of the dims. An index that is read from a
tensor, and one that its condition does not keep inside, is checked in each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, fields, replace
from string import ascii_lowercase

from ....dialect.diagnostics import Note, Span
from ....dialect.dims import Poly, Size, add, at_least, floor_divide, format_size, multiply
from ....dialect.graph import Node, Value
from ....dialect.lazy_dataclass import dataclass
from ....dialect.types import I64
from . import syntax
from .context import Context
from .index_checks import Affine, Guard, find_whole, guarded, is_implied, known_numbers, scaled, summed
from .nodes import Maker
from .operators import apply, as_tensor, single
from .values import ERROR, AnyValue, Binding, Frame, Kind, Poison, contains_error, describe, is_size

REDUCTIONS = ("sum", "max", "min", "prod")


def new_indices(items: Iterable[object], is_known: Callable[[str], bool]) -> list[syntax.Name]:
    """Returns the indices of the left side of index notation: all items are names without a meaning. The list is empty
    for an assignment to a part of a tensor."""
    names = [item for item in items if isinstance(item, syntax.Name) and not is_known(item.name)]
    return names if len(names) == len(list(items)) else []


def evaluate_indexed(
    context: Context, frame: Frame, outputs: Sequence[syntax.Name], value: syntax.Expression
) -> AnyValue:
    """Returns the tensor that index notation describes; its axes are those of `outputs`."""
    reduction = value if isinstance(value, syntax.Reduction) else None
    names = [*outputs, *(reduction.indices if reduction is not None else ())]
    known: set[str] = set()
    for name in names:
        if name.name in known or frame.lookup(name.name) is not None:
            message = f"the index `{name.name}` is already defined"
            return context.reporter.error("duplicate-name", message, name.span)
        known.add(name.name)
    if reduction is not None and reduction.operator.name not in REDUCTIONS:
        message = f"`{reduction.operator.name}` is not a reduction over indices"
        help_text = f"the reductions are {', '.join(REDUCTIONS)}"
        return context.reporter.error("bad-index", message, reduction.operator.span, help=help_text)
    space = _Space(context, frame, tuple(name.name for name in names))
    body = value if reduction is None else reduction.value
    if not space.read(body) or not space.find_sizes(names):
        return ERROR
    operator = None if reduction is None else reduction.operator.name
    return space.evaluate(body, len(outputs), operator)


@dataclass(slots=True)
class _Read:
    """An access such as `x[i, j + 1]`: a tensor with an expression for each axis. It counts where all `guards` hold."""

    node: syntax.Index
    tensor: Value
    items: tuple[syntax.Expression, ...]
    guards: tuple[Guard, ...]

    def plain(self, names: Sequence[str]) -> list[str]:
        """Returns the indices of the axes if each axis has a separate single index, else None."""
        found = [item.name for item in self.items if isinstance(item, syntax.Name) and item.name in names]
        return found if len(found) == len(self.items) == len(set(found)) else []


@dataclass(slots=True)
class _Space:
    context: Context
    frame: Frame
    names: tuple[str, ...]
    reads: dict[int, _Read] = field(default_factory=dict)
    sizes: dict[str, Size] = field(default_factory=dict)
    inner: Frame = field(init=False)

    def __post_init__(self) -> None:
        self.inner = replace(self.frame, names=dict(self.frame.names))

    def mentions(self, node: object) -> list[str]:
        """Returns the indices that occur in an expression, in the order of the space."""
        found = {part.name for part in syntax.walk(node) if isinstance(part, syntax.Name)}
        return [name for name in self.names if name in found]

    def is_dynamic(self, node: syntax.Conditional) -> bool:
        return bool(self.mentions(node.condition))

    # --- reads ---

    def read(self, node: object, guards: tuple[Guard, ...] = ()) -> bool:
        """Finds the tensors that an expression reads. Returns whether all are valid."""
        if isinstance(node, tuple):
            return all([self.read(part, guards) for part in node])
        if not isinstance(node, syntax.Node) or not self.mentions(node):
            return self.is_element(node)
        if isinstance(node, syntax.Conditional) and self.is_dynamic(node):
            parts = ((node.then, True), (node.otherwise, False))
            read = [self.read(part, (*guards, (node.condition, value))) for part, value in parts]
            return all([self.read(node.condition, guards), *read])
        if isinstance(node, syntax.Call):
            return all([self.read(argument.value, guards) for argument in node.arguments])
        if not isinstance(node, syntax.Index):
            return all([self.read(getattr(node, f.name), guards) for f in fields(node)])
        if self.mentions(node.value):
            help_text = "one pair of brackets has an index for each axis: `x[i, j]`"
            self.context.reporter.error(
                "bad-index", "an indexed value has no further indices", node.span, help=help_text
            )
            return False
        tensor = self.context.evaluate(node.value, self.frame)
        if tensor is ERROR:
            return False
        items = tuple(
            i for i in node.items if isinstance(i, syntax.Node) and not isinstance(i, (syntax.Slice, syntax.Dots))
        )
        if not isinstance(tensor, Value) or len(items) < len(node.items) or len(items) != tensor.type.rank:
            message = f"each axis has one index, and this is {describe(tensor)}"
            self.context.reporter.error("bad-index", message, node.span)
            return False
        self.reads[id(node)] = _Read(node, tensor, items, guards)
        return all([self.read(item, guards) for item in items])

    def is_element(self, node: object) -> bool:
        """Checks a part without indices: it is a number."""
        if isinstance(node, syntax.Name):
            binding = self.frame.lookup(node.name)
            if binding is not None and isinstance(binding.value, Value) and binding.value.type.rank:
                message = f"`{node.name}` is {describe(binding.value)}, and has no indices here"
                self.context.reporter.error("bad-index", message, node.span)
                return False
        return True

    # --- sizes ---

    def find_sizes(self, names: Sequence[syntax.Name]) -> bool:
        """Finds the sizes of all indices, and checks that sums stay inside. Returns whether all are valid."""
        report, valid = self.context.reporter.error, True
        first: dict[str, Span] = {}
        for read in self.reads.values():
            for item, size in zip(read.items, read.tensor.type.shape, strict=True):
                if not isinstance(item, syntax.Name) or item.name not in self.names:
                    continue
                if item.name in self.sizes and self.sizes[item.name] != size:
                    other = format_size(self.sizes[item.name])
                    message = f"the index `{item.name}` runs over axes of the sizes {other} and {format_size(size)}"
                    notes = [Note(f"an axis of the size {other}", first[item.name])]
                    report("shape-mismatch", message, item.span, notes=notes)
                    valid = False
                self.sizes.setdefault(item.name, size)
                first.setdefault(item.name, item.span)
        self._find_sums()
        for name in names:
            if name.name not in self.sizes:
                message = f"nothing says how far the index `{name.name}` runs"
                help_text = f"an axis that `{name.name}` selects alone has its size"
                report("bad-index", message, name.span, help=help_text)
                valid = False
        return valid and self._check_sums()

    def _find_sums(self) -> None:
        """Finds the sizes of indices that occur only in sums with indices of known size."""
        changed = True
        while changed:
            changed = False
            for (terms, offset), size in self._sums(guarded=False):
                unknown = [name for name in terms if name not in self.sizes]
                if len(unknown) != 1 or not terms[unknown[0]]:
                    continue
                known = {name: factor for name, factor in terms.items() if name in self.sizes}
                factor = terms[unknown[0]]
                room = self._extreme((known, offset), greatest=factor > 0)
                room = add(size, multiply(-1, add(room, 1))) if factor > 0 else room
                self.sizes[unknown[0]] = add(floor_divide(room, abs(factor)), 1)
                changed = True
        for (terms, _), size in self._sums(guarded=True):
            unknown = [name for name in terms if name not in self.sizes]
            if len(unknown) == 1 and terms[unknown[0]] == 1:
                self.sizes[unknown[0]] = size

    def _sums(self, guarded: bool) -> list[tuple[Affine, Size]]:
        """Returns the sums of indices that are read with or without a condition, and the sizes of their axes."""
        found: list[tuple[Affine, Size]] = []
        for read in self.reads.values():
            for item, size in zip(read.items, read.tensor.type.shape, strict=True):
                is_sum = bool(read.guards) == guarded and not isinstance(item, syntax.Name)
                affine = self._affine(item) if is_sum else None
                if affine is not None:
                    found.append((affine, size))
        return found

    def _check_sums(self) -> bool:
        valid = True
        for read in self.reads.values():
            for axis, (item, size) in enumerate(zip(read.items, read.tensor.type.shape, strict=True)):
                affine = None if read.guards else self._affine(item)
                if affine is None:
                    continue
                least, greatest = (self._extreme(affine, greatest=high) for high in (False, True))
                if at_least(least, 0) and at_least(size, add(greatest, 1)):
                    continue
                message = f"the index may be outside of axis {axis}"
                label = f"it is {format_size(least)} to {format_size(greatest)}, and the size is {format_size(size)}"
                help_text = "a condition guards it: `x[i - 1] if i > 0 else 0`"
                self.context.reporter.error("index-out-of-range", message, item.span, label, help=help_text)
                valid = False
        return valid

    def _is_inside(self, item: syntax.Expression, size: Size, guards: Sequence[Guard]) -> bool:
        """Returns whether an index is inside of its axis where the guards hold."""
        affine = self._affine(item)
        if affine is None:
            return False
        known = list(known_numbers(guards, self._affine))
        last = summed(({}, add(size, -1)), scaled(affine, -1))
        return all(is_implied(wanted, known, self._extreme) for wanted in (affine, last))

    def _extreme(self, affine: Affine, greatest: bool = False) -> Size:
        total = affine[1]
        for name, factor in affine[0].items():
            if (factor > 0) == greatest:
                total = add(total, multiply(factor, add(self.sizes[name], -1)))
        return total

    def _affine(self, node: syntax.Expression) -> Affine | None:
        """Returns a sum of indices with integer factors, and its offset; None for another expression."""
        if isinstance(node, syntax.Name) and node.name in self.names:
            return {node.name: 1}, 0
        if not self.mentions(node):
            value = self.context.evaluate(node, self.frame)
            return ({}, value) if is_size(value) and isinstance(value, (int, Poly)) else None
        if isinstance(node, syntax.Unary) and node.operator == "-":
            inner = self._affine(node.operand)
            return None if inner is None else scaled(inner, -1)
        if not isinstance(node, syntax.Binary) or node.operator not in ("+", "-", "*"):
            return None
        left, right = self._affine(node.left), self._affine(node.right)
        if left is None or right is None:
            return None
        if node.operator == "*":
            number, other = (left, right) if not left[0] else (right, left)
            return scaled(other, number[1]) if not number[0] and isinstance(number[1], int) else None
        return summed(left, scaled(right, -1) if node.operator == "-" else right)

    # --- values ---

    def evaluate(self, body: syntax.Expression, kept: int, reduction: str | None) -> AnyValue:
        shape = tuple(self.sizes[name] for name in self.names)
        make = Maker(self.context, self.frame, body.span)
        product = self._product(body) if reduction == "sum" else None
        if product is not None:
            return make("einsum", *(read.tensor for read in product), equation=self._equation(product, kept))
        node = self._rewrite(body)
        nodes = self.context.writer.bodies[-1].nodes
        start = len(nodes)
        value = ERROR if node is ERROR else self.context.evaluate(node, self.inner)
        value = as_tensor(self.context, self.inner, value, body.span) if not contains_error(value) else ERROR
        if value is ERROR or not self._is_of_elements(nodes[start:]):
            return ERROR
        if value.type.shape != shape:
            value = make("broadcast_to", value, shape=shape)
        if reduction is None:
            return value
        axes = tuple(range(kept, len(shape)))
        # The largest of no elements is undefined.
        return single(apply(self.context, self.frame, reduction, [value], {"axis": axes}, body.span, [body.span]))

    def _is_of_elements(self, nodes: Sequence[Node]) -> bool:
        """Checks that the nodes compute each element from elements at its own indices."""
        laid_out = [b.value for n, b in self.inner.names.items() if n[:1] == "%" and isinstance(b.value, Value)]
        whole = find_whole(nodes, laid_out)
        if whole is not None:
            message = f"`{whole.op}` is not a function of single elements, and an access such as `x[i]` is one element"
            help_text = "apply it to the whole tensor before, or reduce over indices: `y[b] = sum(i) x[b, i]`"
            if whole.op in ("max", "min"):
                help_text = f"`{whole.op}imum(x[i], 0)` compares two elements"
            self.context.reporter.error("bad-index", message, whole.span, help=help_text)
        return whole is None

    def _product(self, body: syntax.Expression) -> list[_Read] | None:
        """Returns the tensors of a product that is a contraction: `x[b, i] * w[o, i]`."""
        factors: list[_Read] = []
        first = body
        while isinstance(first, syntax.Binary) and first.operator == "*":
            if id(first.right) not in self.reads:
                return None
            factors.insert(0, self.reads[id(first.right)])
            first = first.left
        if id(first) not in self.reads:
            return None
        factors.insert(0, self.reads[id(first)])
        if not all(read.plain(self.names) for read in factors):
            return None
        covered = {name for read in factors for name in read.plain(self.names)}
        same = {read.tensor.type.dtype for read in factors}
        return factors if len(factors) > 1 and len(same) == 1 and covered >= set(self.names) else None

    def _equation(self, product: Sequence[_Read], kept: int) -> str:
        letters = dict(zip(self.names, ascii_lowercase, strict=False))
        terms = ("".join(letters[name] for name in read.plain(self.names)) for read in product)
        return f"{','.join(terms)}->{''.join(letters[name] for name in self.names[:kept])}"

    def _rewrite(self, node: syntax.Expression) -> syntax.Expression | Poison:
        """Returns the expression with its names bound to tensors that are laid out in the space."""
        if not self.mentions(node):
            # A number of whole tensors, such as `mean(x)`; others are parts of syntax, such as attributes.
            is_value = isinstance(node, (syntax.Call, syntax.Index))
            value = self.context.evaluate(node, self.frame) if is_value else None
            return self._bound(value, node.span) if isinstance(value, Value) else ERROR if value is ERROR else node
        if isinstance(node, syntax.Name):
            return self._bound(self._counted(node.name, node.span), node.span)
        if isinstance(node, syntax.Index):
            value = self._laid_out(self.reads[id(node)])
            return ERROR if value is ERROR else self._bound(value, node.span)
        if isinstance(node, syntax.Conditional) and self.is_dynamic(node):
            where = syntax.Name("where", span=node.condition.span)
            parts = [self._rewrite(part) for part in (node.condition, node.then, node.otherwise)]
            given = tuple(syntax.Argument(part, span=part.span) for part in parts if part is not ERROR)
            return syntax.Call(where, given, span=node.span) if len(given) == len(parts) else ERROR
        changes: dict[str, object] = {}
        for each in fields(node):
            part = getattr(node, each.name)
            if isinstance(node, syntax.Call) and each.name == "function":
                continue
            made = self._rewrite_part(part)
            if made is ERROR:
                return ERROR
            changes[each.name] = made
        return replace(node, **changes)  # type: ignore[arg-type]  # fields of the node itself

    def _rewrite_part(self, part: object) -> object:
        if isinstance(part, tuple):
            parts = tuple(self._rewrite_part(each) for each in part)
            return ERROR if any(each is ERROR for each in parts) else parts
        if isinstance(part, syntax.Argument):
            value = self._rewrite(part.value)
            return ERROR if value is ERROR else replace(part, value=value)
        return self._rewrite(part) if isinstance(part, syntax.Node) else part  # type: ignore[arg-type]  # an expression

    def _bound(self, value: Value | Size, span: Span) -> syntax.Name:
        name = f"%{len(self.inner.names)}"
        self.inner.names[name] = Binding(value, Kind.LOCAL, span)
        return syntax.Name(name, span=span)

    def _counted(self, name: str, span: Span) -> Value:
        """Returns the values of an index."""
        position = self.names.index(name)
        shape = tuple(self.sizes[name] if number == position else 1 for number in range(len(self.names)))
        return Maker(self.context, self.frame, span)("iota", shape=shape, axis=position, dtype=I64)

    def _laid_out(self, read: _Read) -> Value | Poison:
        """Lays a tensor out in the space, with size 1 along the indices that it does not have."""
        make = Maker(self.context, self.frame, read.node.span)
        if read.plain(self.names):
            return self._align(make, read.tensor, read.plain(self.names))
        others = [
            n for n, item in enumerate(read.items) if not (isinstance(item, syntax.Name) and item.name in self.names)
        ]
        alone = [item.name for n, item in enumerate(read.items) if n not in others and isinstance(item, syntax.Name)]
        shape = read.tensor.type.shape
        is_inside = all(self._is_inside(read.items[n], shape[n], read.guards) for n in others)
        # The selected element is one of these, so that its gradient is finite where others are not selected.
        mode = "clamp" if is_inside else "error"
        items = list(read.items)
        for n in () if is_inside else others:
            items[n] = self._guarded(items[n], shape[n], read.guards)
        if len(others) == 1 and len(set(alone)) == len(alone) and not set(alone) & set(self.mentions(items[others[0]])):
            axis = others[0]
            index, names = self._index(make, items[axis])
            if index is ERROR:
                return ERROR
            value = make("gather", read.tensor, index, axis=axis, mode=mode)
            return self._align(make, value, [*alone[:axis], *names, *alone[axis:]])
        used = self.mentions(tuple(items))
        shape = tuple(self.sizes[name] for name in used)
        parts: list[Value] = []
        for item in items:
            index, names = self._index(make, item)
            if index is ERROR:
                return ERROR
            axes = tuple(n for n, name in enumerate(used) if name not in names)
            wide = make("unsqueeze", index, axes=axes) if axes else index
            parts.append(make("broadcast_to", wide, shape=shape) if wide.type.shape != shape else wide)
        rows = make("stack", *parts, axis=len(used))
        return self._align(make, make("gather_nd", read.tensor, rows, mode=mode), used)

    def _guarded(self, item: syntax.Expression, size: Size, guards: Sequence[Guard]) -> syntax.Expression:
        """Returns an index that is 0 where an access does not count. A sum of indices does not count from the end."""
        if self._affine(item) is not None and guards:
            zero, length = syntax.Integer(0, span=item.span), self._bound(size, item.span)
            is_negative = syntax.Binary("<", item, zero, span=item.span, operator_span=item.span)
            outside = syntax.Binary("-", item, length, span=item.span, operator_span=item.span)
            item = syntax.Conditional(is_negative, outside, item, span=item.span)
        return guarded(item, guards)

    def _index(self, make: Maker, item: syntax.Expression) -> tuple[Value | Poison, list[str]]:
        """Returns the values of an index expression, with an axis for each of its indices, and these indices."""
        names = self.mentions(item)
        node = self._rewrite(item)
        value: AnyValue = ERROR if node is ERROR else self.context.evaluate(node, self.inner)
        tensor = ERROR if contains_error(value) else as_tensor(self.context, self.inner, value, item.span)
        if tensor is ERROR:
            return ERROR, names
        if not tensor.type.dtype.is_integer:
            message = f"an index must be an integer, not {describe(tensor)}"
            return self.context.reporter.error("bad-index", message, item.span), names
        axes = tuple(n for n, name in enumerate(self.names) if name not in names)
        tensor = make("squeeze", tensor, axes=axes) if axes and tensor.type.rank else tensor
        return make.cast(tensor, I64), names

    def _align(self, make: Maker, value: Value, names: Sequence[str]) -> Value:
        """Returns a value with an axis for each of `names` as a value with an axis for each index."""
        order = sorted(range(len(names)), key=lambda n: self.names.index(names[n]))
        if order != list(range(len(names))):
            value = make("transpose", value, axes=tuple(order))
        missing = tuple(n for n, name in enumerate(self.names) if name not in names)
        return make("unsqueeze", value, axes=missing) if missing else value
