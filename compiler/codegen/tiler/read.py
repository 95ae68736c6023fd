"""Reads a function of structured ops on tensors, through MLIR's bindings, into the tiler's model.

    linalg.generic {indexing_maps = [(d0, d1) -> (d0, d1), (d0, d1) -> (d0)],
                    iterator_types = ["parallel", "reduction"]} ins(%x) outs(%total) { addf }

becomes an `Op`: the loops i, parallel, and j; one read, x at (i, j); the map (i) of the result; and the body
addf(start, read 0). `structure.py` describes these records. A construct that they cannot express raises Unsupported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....dialect.dims import INFINITY, Size, Symbol, add, divide_exactly, floor_divide, maximum, minimum, multiply
from ....dialect.emitter import Index
from ...base.mlir import ir
from ...lower.writer import ROUNDED, SINCE, SPARSE, UNTIL
from ..structured import positions as structured
from ..structured.body_nodes import BodyReader, Node, predicate_of
from ..structured.operations import GENERIC, body_of, iterators, maps_of, operands_of, operations_in
from ..structured.positions import Other, Panel, plain
from ..structured.values import axes_of_reshape, read_partly_known, read_region
from .branches import BRANCH, read_branch
from .dense import read_dense
from .dots import group_steps
from .group_bytes import unpack_groups
from .halves import find_exact
from .paired_dots import pair_steps
from .quantized_sums import group_quantized
from .regions import Region, behind
from .reshape import collapse, expand
from .rounding import find_nearest
from .structure import Access, Buffer, Carried, Kernel, Op, Position, Sequential, Tensor, Unsupported, View

_SIZES: Mapping[str, Callable[[Size, Size], Size]] = {
    "arith.addi": add,
    "arith.subi": lambda x, y: add(x, multiply(y, -1)),
    "arith.muli": multiply,
    "arith.minsi": minimum,
    "arith.maxsi": maximum,
    "arith.floordivsi": floor_divide,
}
_UNKNOWN = (0, INFINITY, 1)
"""The facts about an unconstrained dim: least value, greatest value, and divisor."""
_LOOP = "scf.for"
_WRITING = frozenset({"tensor.insert", "tensor.dim", _LOOP, BRANCH})


def read_kernel(function: Any) -> Kernel:
    """Returns the model of a `func.func`. Raises Unsupported."""
    return _Reader(function).read()


def _integers(attribute: Any) -> list[int]:
    return list(ir.DenseI64ArrayAttr(attribute))


def _element(type: Any) -> str:
    return str(ir.ShapedType(type).element_type)


class _Reader:
    def __init__(self, function: Any) -> None:
        self.function = function
        self.block = function.regions[0].blocks[0]
        self.sizes: dict[Any, Size] = {}
        self.constants: dict[Any, tuple[str, str]] = {}
        self.buffers: dict[Any, Buffer] = {}
        self.views: dict[Any, View] = {}
        self.tensors: dict[Any, Tensor] = {}
        self.ops: list[Op] = []
        self.written: list[Tensor] = []
        self.results: set[Buffer] = set()
        self.shapes: dict[Any, tuple[Size, ...]] = {}

    def read(self) -> Kernel:
        signature, dims = self._arguments()
        readers: dict[str, Callable[[Any], None]] = {
            "arith.constant": self._constant,
            "arith.index_cast": self._cast_size,
            "arith.divui": self._divide,
            "memref.reinterpret_cast": self._bind,
            "bufferization.to_tensor": self._to_tensor,
            "bufferization.materialize_in_destination": self._written,
            "linalg.fill": self._fill,
            GENERIC: self._generic,
            "tensor.expand_shape": self._expand,
            "tensor.collapse_shape": self._collapse,
            "tensor.cast": self._cast,
            "tensor.extract_slice": self._slice,
            "tensor.insert_slice": self._insert,
            "func.return": lambda op: None,
            **dict.fromkeys(_SIZES, self._size),
        }
        for operation in operations_in(self.block):
            reader = readers.get(operation.name)
            if operation.name == _LOOP and self._is_sequential():
                raise Sequential
            if reader is None:
                raise Unsupported(f"`{operation.name}`")
            reader(operation)
        name = ir.StringAttr(self.function.attributes["sym_name"]).value
        return Kernel(name, signature, dims, self.ops, self.written, frozenset(self.results))

    def _is_sequential(self) -> bool:
        """Returns whether the function holds only loops, and maps that fill or copy memory for them."""
        return all(all(iterators(op)) for op in operations_in(self.block) if op.name == GENERIC)

    # Arguments

    def _arguments(self) -> tuple[tuple[tuple[str, str, str], ...], dict[Symbol, str]]:
        signature: list[tuple[str, str, str]] = []
        dims: dict[Symbol, str] = {}
        attributes = self.function.attributes
        facts = [
            _integers(attributes[k]) if k in attributes else [] for k in ("nacre.low", "nacre.high", "nacre.multiple")
        ]
        attached = list(ir.ArrayAttr(attributes["arg_attrs"])) if "arg_attrs" in attributes else []
        for number, argument in enumerate(self.block.arguments):
            type, name = str(argument.type), f"%a{number}"
            extra = str(attached[number]) if attached else ""
            if type == "index":
                known = zip(facts, _UNKNOWN, strict=True)
                low, high, multiple = (f[len(dims)] if len(dims) < len(f) else d for f, d in known)
                symbol = Symbol(name[1:], low, high, multiple)
                if number < len(self.block.arguments) - 2:
                    self.sizes[argument], dims[symbol] = symbol.size, name
                signature.append((name, type, ""))
                continue
            element = type.removeprefix("memref<").removesuffix(">")
            self.buffers[argument] = Buffer(name, element)
            signature.append((name, type, extra if extra not in ("{}", "") else ""))
        return tuple(signature), dims

    # Sizes and constants

    def _constant(self, operation: Any) -> None:
        result, attribute = operation.results[0], operation.attributes["value"]
        type = str(result.type)
        if type == "index":
            self.sizes[result] = ir.IntegerAttr(attribute).value
        elif type.startswith("tensor"):
            self.tensors[result] = read_dense(f"%dense{len(self.tensors)}", ir.ShapedType(result.type), str(attribute))
            return
        self.constants[result] = (str(attribute), type)

    def _size(self, operation: Any) -> None:
        if str(operation.results[0].type) != "index":
            raise Unsupported(f"`{operation.name}` outside of a body")
        left, right = (self._size_of(o) for o in operation.operands)
        self.sizes[operation.results[0]] = _SIZES[operation.name](left, right)

    def _divide(self, operation: Any) -> None:
        """Divides a dim by one of its divisors: from here on the dim is a multiple of the new symbol."""
        left, right = (self._size_of(o) for o in operation.operands)
        exact = divide_exactly(left, right)
        self.sizes[operation.results[0]] = floor_divide(left, right) if exact is None else exact

    def _cast_size(self, operation: Any) -> None:
        self.sizes[operation.results[0]] = self._size_of(operation.operands[0])

    def _size_of(self, value: Any) -> Size:
        if value not in self.sizes:
            raise Unsupported("a size that is computed from elements")
        return self.sizes[value]

    def _sizes_of(self, parts: Sequence[Any]) -> tuple[Size, ...]:
        return tuple(part if isinstance(part, int) else self._size_of(part) for part in parts)

    # Tensors

    def _bind(self, operation: Any) -> None:
        buffer = self.buffers[operation.operands[0]]
        offsets, sizes, strides = map(self._sizes_of, read_region(operation))
        self.views[operation.results[0]] = View(buffer, offsets[0], strides)
        self.shapes[operation.results[0]] = sizes

    def _to_tensor(self, operation: Any) -> None:
        memory, result = operation.operands[0], operation.results[0]
        self.tensors[result] = Tensor(self.shapes[memory], _element(result.type), self.views[memory])

    def _written(self, operation: Any) -> None:
        tensor, memory = self.tensors[operation.operands[0]], self.views[operation.operands[1]]
        if tensor.view is None or tensor.view.buffer != memory.buffer:
            raise Unsupported("a result that is computed elsewhere")
        self.results.add(memory.buffer)
        self._in_memory(tensor, operation.location)

    def _fill(self, operation: Any) -> None:
        value, target = operation.operands
        home = self.tensors[target]
        text, _ = self.captured(value)
        self.tensors[operation.results[0]] = Tensor(home.shape, home.element, home.view, splat=text)

    def captured(self, value: Any) -> tuple[str, str]:
        if value not in self.constants:
            raise Unsupported("a value from outside of a body")
        return self.constants[value]

    def _expand(self, operation: Any) -> None:
        source, (shape,) = self.tensors[operation.operands[0]], read_partly_known(operation, "output_shape")
        self.tensors[operation.results[0]] = expand(source, self._sizes_of(shape), axes_of_reshape(operation))

    def _collapse(self, operation: Any) -> None:
        source = self.tensors[operation.operands[0]]
        self.tensors[operation.results[0]] = collapse(source, axes_of_reshape(operation))

    def _cast(self, operation: Any) -> None:
        self.tensors[operation.results[0]] = self.tensors[operation.operands[0]]

    def _region(self, operation: Any) -> Region:
        return Region(*map(self._sizes_of, read_region(operation)))

    def _slice(self, operation: Any) -> None:
        whole, region = self.tensors[operation.operands[0]], self._region(operation)
        # A constant needs no memory.
        home = region.of(whole) if whole.splat is None else None
        self.tensors[operation.results[0]] = Tensor(region.sizes, whole.element, home, whole.splat)

    def _insert(self, operation: Any) -> None:
        """Copies a tensor into a part of the target's memory."""
        source, target = (self.tensors[operation.operands[number]] for number in range(2))
        at, region = operation.location, self._region(operation)
        if target.splat is None:
            self._in_memory(target, at)
        else:
            for band in region.around(target):
                self._fill_memory(band, at)
        sizes = region.sizes
        loops = tuple(Index(((i, 1),)) for i in range(len(sizes)))
        reads: tuple[Access, ...] = (Access(source, loops),)
        body = Node("read", source.element, location=at)
        if source.splat is not None:
            reads, body = (), Node("constant", source.element, text=source.splat, location=at)
        home = region.of(target)
        self._forget_fill(sizes, home)
        self._add(sizes, (True,) * len(sizes), reads, loops, body, home, at)
        self.tensors[operation.results[0]] = Tensor(target.shape, target.element, target.view)

    def _forget_fill(self, sizes: tuple[Size, ...], home: View) -> None:
        """Drops the part of a constant fill that is overwritten: the insertion is the only reader of its target."""
        for op in self.ops:
            if op.body.kind != "constant" or op.reads or op.result.view is None:
                continue
            rest = behind(op.loops, op.result.view, sizes, home)
            if rest is None:
                continue
            self.ops.remove(op)
            self.written.remove(op.result)
            if 0 not in rest.shape:
                self._fill_memory(Tensor(rest.shape, op.result.element, rest.view, op.body.text), op.location)
            return

    def _in_memory(self, tensor: Tensor, at: Any) -> None:
        """Ensures that a tensor is stored in its home."""
        if tensor.splat is None:
            self.written.append(tensor)
        else:
            self._fill_memory(tensor, at)

    def _fill_memory(self, tensor: Tensor, at: Any) -> None:
        """Writes a constant before all other ops, since it depends on none of them."""
        if tensor.view is None:
            raise Unsupported("a constant without memory")
        loops = tuple(Index(((i, 1),)) for i in range(len(tensor.shape)))
        body = Node("constant", tensor.element, text=str(tensor.splat), location=at)
        self._add(tensor.shape, (True,) * len(loops), (), loops, body, tensor.view, at)
        self.ops.insert(0, self.ops.pop())

    def _add(
        self,
        sizes: tuple[Size, ...],
        parallel: tuple[bool, ...],
        reads: tuple[Access, ...],
        map: tuple[Index, ...],
        body: Node,
        view: View,
        at: Any,
    ) -> Op:
        """Adds an op with a result that is needed in memory."""
        op = Op(sizes, parallel, reads, map, body, None, location=at)
        op.result = Tensor(sizes, body.type, view, op=op, axes=tuple(range(len(sizes))))
        self.ops.append(op)
        self.written.append(op.result)
        return op

    # Structured ops

    def _generic(self, operation: Any) -> None:
        (inputs, targets), parallel = operands_of(operation), iterators(operation)
        maps = [_known(map) for map in maps_of(operation)]
        target = self.tensors[targets[-1]]
        if len(targets) != 1:
            self._check_carries(operation, maps, parallel)
        accesses: list[Access] = []
        leaves: list[Node] = []
        block = body_of(operation)
        for value, map in zip(inputs, maps, strict=False):
            if value in self.constants:
                leaves.append(Node("constant", str(value.type), text=self.constants[value][0]))
                continue
            tensor = self.tensors[value]
            if tensor.splat is not None:
                leaves.append(Node("constant", tensor.element, text=tensor.splat))
                continue
            leaves.append(Node("read", tensor.element, number=len(accesses)))
            accesses.append(Access(tensor, map))
        written = maps[-1]
        if any(isinstance(p, Panel) for p in written):
            raise Unsupported("a result in panels")
        reduces = not all(parallel)
        if len(targets) != 1:
            leaves.append(Node("start", self.tensors[targets[0]].element))
        if reduces:
            leaves.append(Node("start", target.element))
        elif target.splat is not None:
            leaves.append(Node("constant", target.element, text=target.splat))
        else:
            leaves.append(Node("read", target.element, number=len(accesses)))
        scalars = dict(zip(block.arguments, leaves, strict=True))
        for leaf in leaves:
            leaf.location = operation.location
        *carried, body = _Body(self, scalars).read(block)
        if not reduces and any(n.kind == "read" and n.number == len(accesses) for n in body.walk()):
            accesses.append(Access(target, written))
        nodes = {id(node): node for root in (*carried, body) for node in root.walk()}.values()
        used = {n.number for n in nodes if n.kind == "read"}
        loops = self._loop_sizes(len(parallel), [*accesses, *self._unread(inputs, maps)], target, written)
        kept = {old: new for new, old in enumerate(sorted(used))}
        for node in nodes:
            if node.kind == "read":
                node.number = kept[node.number]
        reads = tuple(accesses[i] for i in sorted(used))
        indices = tuple(p for p in written if isinstance(p, Index))
        op = Op(loops, parallel, reads, indices, body, target if reduces else None, location=operation.location)
        if carried:
            (following,), first = carried, self.tensors[targets[0]]
            op.start, op.carried = None, Carried(following, str(first.splat), first.element)
        else:
            plain, op = op, pair_steps(unpack_groups(group_quantized(group_steps(op))))
            op.is_sparse = SPARSE in operation.attributes
            op.rounds_factors = ROUNDED in operation.attributes
            if op is plain and len(op.reduced) == 1:
                op.until, op.since = (_read_bound(operation, name) for name in (UNTIL, SINCE))
        axes = tuple(range(len(target.shape)))
        op.result = Tensor(target.shape, target.element, target.view, op=op, axes=axes)
        self.ops.append(op)
        self.tensors[operation.results[len(targets) - 1]] = op.result

    def _check_carries(self, operation: Any, maps: Sequence[Sequence[Position]], parallel: Sequence[bool]) -> None:
        """Raises Unsupported unless the first of two results is only carried along the one sequential loop, from a
        constant on, and each step writes an element of the second."""
        loops = [i for i, free in enumerate(parallel) if free]
        carried, written = ([plain(position) for position in map] for map in maps[-2:])
        kept = len(list(operation.results[0].uses)) > 0
        first = self.tensors[operands_of(operation)[1][-2]].splat
        if (
            len(operation.results) != 2
            or carried != loops
            or sorted(map(str, written)) != [*map(str, range(len(parallel)))]
        ):
            raise Unsupported("an op with several results")
        if len(loops) != len(parallel) - 1 or kept or first is None:
            raise Unsupported("an op with several results")

    def _unread(self, inputs: Sequence[Any], maps: Sequence[tuple[Position, ...]]) -> list[Access]:
        """Returns the operands that only define loop sizes, constants among them."""
        pairs = zip(inputs, maps, strict=False)
        return [Access(self.tensors[value], map) for value, map in pairs if value in self.tensors]

    def _loop_sizes(
        self, count: int, accesses: Sequence[Access], target: Tensor, written: Sequence[Position]
    ) -> tuple[Size, ...]:
        sizes: dict[int, Size] = {}
        for tensor, map in ((target, written), *((a.tensor, a.index) for a in accesses)):
            for size, position in zip(tensor.shape, map, strict=True):
                loop = plain(position)
                if loop is not None:
                    sizes.setdefault(loop, size)
        if len(sizes) != count:
            raise Unsupported("a loop without a size")
        return tuple(sizes[i] for i in range(count))


class _Body(BodyReader):
    """Reads the body of an op in a kernel."""

    def __init__(self, kernel: _Reader, known: dict[Any, Node]) -> None:
        super().__init__(known)
        self.kernel = kernel

    def outside(self, value: Any) -> Node:
        kernel = self.kernel
        if value in kernel.sizes and value not in kernel.constants:
            return Node("size", str(value.type), size=kernel.sizes[value])
        text, type = kernel.captured(value)
        return Node("constant", type, text=text)

    def other(self, operation: Any) -> Node | None:
        name = operation.name
        if name == BRANCH and len(operation.results) == 1:
            return read_branch(operation, self.value, self.step, self.kernel.buffers)
        if len(operation.regions) or name in _WRITING or len(operation.results) != 1:
            raise Unsupported(f"`{name}` in a body")
        if name != "tensor.extract":
            return None
        source, *indices = operation.operands
        tensor = self.kernel.tensors[source]
        if tensor.splat is not None or tensor.view is None:
            raise Unsupported("an element of what is not in memory")
        return Node("extract", str(operation.results[0].type), tuple(map(self.value, indices)), tensor=tensor)

    def made(self, node: Node) -> Node:
        return find_exact(find_nearest(_decided(node)))


_BELOW = 6
"""The comparison `ult`."""


def _decided(node: Node) -> Node:
    """Folds a node that constants decide: a shift tests whether its count is below the width."""
    if predicate_of(node) == _BELOW and all(o.kind == "constant" for o in node.operands):
        count, width = (int(o.text.partition(" ")[0]) for o in node.operands)
        if count >= 0 and width >= 0:
            return Node("constant", node.type, text="true" if count < width else "false")
    if node.kind == "arith.select" and node.operands[0].kind == "constant":
        return node.operands[1 if node.operands[0].text == "true" else 2]
    return node


def _read_bound(operation: Any, name: str) -> tuple[int, int] | None:
    """Returns a loop and a distance, where the operation has such an attribute."""
    if name not in operation.attributes:
        return None
    loop, distance = ir.DenseI64ArrayAttr(operation.attributes[name])
    return loop, distance


def _known(map: Sequence[structured.Position]) -> tuple[Index | Panel, ...]:
    """Returns the positions of a map. Raises Unsupported for one that is no linear form, in panels or not."""
    found: list[Index | Panel] = []
    for position in map:
        if isinstance(position, Other):
            raise Unsupported(f"the index `{position.text}`")
        found.append(position)
    return tuple(found)
