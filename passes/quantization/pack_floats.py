"""`pack-floats`: stores bf16 matrices in 12 bits a number, without a change of any value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import ClassVar

from ...dialect.dims import Size, divide_exactly, product
from ...dialect.graph import Function, Module, Node, Value, parameter_of, walk
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import axis_order
from ...dialect.ops.packed_floats import HALF, TOGETHER
from ...dialect.types import BF16, F32, DType, TensorType
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter

FEW_ROWS = 8
COLUMN_BYTES = 512
"""The default of `column_bytes`, for panels of 48 columns."""


@dataclass(frozen=True)
class PackFloats(Pass):
    """Replaces `matmul(x, w.T, into=f32)` of rows and a bf16 parameter by `packed_matmul(x, table, words)`.

    Most bf16 weights have one of 15 exponents, so that a sign, a fraction and an index of the exponent take 12 bits.
    The product of few rows is limited by the bytes of the weight that it reads. The numbers without an index are
    multiplied by `gather` and `scatter_add`, and the sums of the product start from theirs.

    Products of many rows unpack a block for all of them, and take up to a tenth longer than with plain weights, in
    vectors of 256 bits up to a seventh. Therefore only a parameter that a product of at most 8 rows reads is packed.
    One that products of different numbers of rows read, each known in a call only, stays as it is: one of them may be a
    batch of a few rows, for which unpacking takes longer than reading. Where a row is infinite, a number without an
    index gives NaN in place of infinity.

    The rows are f32, or also bf16 if `bfloats` is set: a build sets it for CPUs that multiply pairs of bf16, other than
    those that multiply tiles of a plain matrix.

    The kernel unpacks a block of steps into the nearest cache for many rows. A column of a block has `column-bytes`
    bytes at most, in the format of the rows. A build chooses them by the number of columns that a CPU unpacks together.

    `escapes` names the parameters to pack, each with at least as many as its numbers without an index: `name:count`. A
    build determines them from the data, for CPUs on which the products are faster. A parameter that anything else reads
    is not packed, so that an artifact stores one copy. Leaves the computation of the planes to `fold-parameters`.
    """

    name: ClassVar[str] = "pack-floats"
    escapes: tuple[str, ...] = ()
    bfloats: bool = False
    column_bytes: int = COLUMN_BYTES

    def __post_init__(self) -> None:
        for each in self.escapes:
            name, _, count = each.rpartition(":")
            if not name or not count.isdecimal():
                raise ValueError("parameters with a number each, such as `encoder.weight:40`")
        if self.column_bytes < TOGETHER * F32.bytes:
            raise ValueError(f"at least {TOGETHER * F32.bytes} bytes of a column")

    @property
    def counts(self) -> Mapping[str, int]:
        pairs = (each.rpartition(":") for each in self.escapes)
        return {name: int(count) for name, _, count in pairs}

    def rewrite(self, module: Module, context: Context) -> Module:
        counts = self.counts
        if not counts:
            return module
        dtypes = frozenset({F32, BF16}) if self.bfloats else frozenset({F32})
        read_elsewhere = {name for function in module.functions for name in _read_elsewhere(function, dtypes)}
        rows: dict[str, list[TensorType]] = {}
        for name, each in (pair for function in module.functions for pair in _rows_of_products(function, dtypes)):
            rows.setdefault(name, []).append(each)
        chosen = {
            name: _Planes(counts[name], self._steps_of_blocks(found))
            for name, found in rows.items()
            if name in counts.keys() - read_elsewhere and _has_few_rows({product(each.shape[:-1]) for each in found})
        }
        return module.map_functions(lambda function: _Packer(function, context, chosen, dtypes).run())

    def _steps_of_blocks(self, rows: Iterable[TensorType]) -> int:
        """Returns the most steps of a block of a parameter, which are the same for all of its products."""
        return self.column_bytes // max(each.dtype.bytes for each in rows)


@dataclass(frozen=True, slots=True)
class _Planes:
    """The length of the list of escapes of a parameter, and the most steps of a block."""

    escapes: int
    steps: int


def _read_elsewhere(function: Function, dtypes: AbstractSet[DType]) -> Iterator[str]:
    """Yields the parameters that something else than a product of the transposed matrix reads."""
    definitions = {value.name: node for node in walk(function.body) for value in node.outputs}
    for node in walk(function.body):
        for number, value in enumerate(node.inputs):
            made = definitions.get(value.name)
            name = None if made is None else parameter_of(made)
            if name is not None and axis_order(node) != (1, 0):
                yield name
            source = None if made is None else _transposed(made, definitions)
            if source is not None and (number != 1 or not _is_product(node, dtypes)):
                yield source
    for value in function.results:
        made = definitions.get(value.name)
        source = None if made is None else parameter_of(made) or _transposed(made, definitions)
        if source is not None:
            yield source


def _has_few_rows(rows: Iterable[Size]) -> bool:
    """Returns whether one of the products of a parameter has few rows, and at most one has an unknown number."""
    unknown = [each for each in rows if not isinstance(each, int)]
    return len(unknown) <= 1 and any(isinstance(each, int) and each <= FEW_ROWS for each in rows)


def _rows_of_products(function: Function, dtypes: AbstractSet[DType]) -> Iterator[tuple[str, TensorType]]:
    """Yields the parameters that products read, with the type of the other operand."""
    definitions = {value.name: node for node in walk(function.body) for value in node.outputs}
    for node in (node for node in walk(function.body) if _is_product(node, dtypes)):
        made = definitions.get(node.inputs[1].name)
        name = None if made is None else _transposed(made, definitions)
        if name is not None:
            yield name, node.inputs[0].type


def _transposed(node: Node, definitions: Mapping[str, Node]) -> str | None:
    """Returns the name of the parameter that a node transposes."""
    if axis_order(node) != (1, 0):
        return None
    made = definitions.get(node.inputs[0].name)
    return None if made is None else parameter_of(made)


def _is_product(node: Node, dtypes: AbstractSet[DType]) -> bool:
    """Returns whether a node multiplies rows of one of these dtypes by a bf16 matrix, in whole groups of steps."""
    if node.op != "matmul" or node.attribute("into") is not F32 or node.output.type.dtype is not F32:
        return False
    x, w = (value.type for value in node.inputs)
    is_whole = w.rank == 2 and divide_exactly(w.shape[0], TOGETHER) is not None
    return x.dtype in dtypes and w.dtype is BF16 and x.rank > 0 and is_whole


def _in_pairs(b: NodeBuilder, x: Value) -> Value:
    """Returns rows whose steps 0 to 7 of each group are in the order 0, 4, 1, 5, 2, 6, 3, 7."""
    *outer, steps = x.type.shape
    groups = divide_exactly(steps, TOGETHER)
    assert groups is not None, x
    split = b.reshape(x, shape=(*outer, groups, 2, HALF))
    last = len(outer)
    turned = b.transpose(split, axes=(*range(last + 1), last + 2, last + 1))
    return b.reshape(turned, shape=x.type.shape)


class _Packer(Rewriter):
    def __init__(
        self, function: Function, context: Context, chosen: Mapping[str, _Planes], dtypes: AbstractSet[DType]
    ) -> None:
        super().__init__(function)
        self.context, self.chosen, self.dtypes = context, chosen, dtypes

    def visit(self, node: Node) -> Replacement | None:
        if not _is_product(node, self.dtypes):
            return None
        made = self.definitions.get(node.inputs[1].name)
        name = None if made is None else _transposed(made, self.definitions)
        if made is None or name is None or name not in self.chosen or not self.context.allow("matmul", node):
            return None
        b = NodeBuilder(self.names, node)
        result = self.product(b, node, made.inputs[0], self.chosen[name])
        return Replacement(tuple(b.nodes), (result,))

    def product(self, b: NodeBuilder, node: Node, w: Value, planes: _Planes) -> Value:
        words = b.packed_words(w)
        columns, groups, each = words.type.shape
        assert isinstance(groups, int), words
        width = max(n for n in range(1, planes.steps // TOGETHER + 1) if groups % n == 0)
        blocks = b.reshape(words, shape=(columns, groups // width, width, each))
        start = [self.corrections(b, node, w, planes.escapes)] if planes.escapes else []
        x = node.inputs[0]
        paired = x.type.dtype is BF16
        rows = _in_pairs(b, x) if paired else x
        factors = None if paired else node.attribute("factors")
        return b.packed_matmul(rows, b.packed_table(w), blocks, *start, paired=paired, factors=factors)

    def corrections(self, b: NodeBuilder, node: Node, w: Value, escapes: int) -> Value:
        """Returns the sums of the products with the numbers that have no index."""
        x = node.inputs[0]
        last = x.type.rank - 1
        columns, steps = (b.packed_places(w, escapes=escapes, axis=axis) for axis in (0, 1))
        factors = b.cast(b.packed_escapes(w, escapes=escapes), dtype=F32)
        chosen = b.gather(x, steps, axis=last, mode="clamp")
        terms = b.multiply(chosen if x.type.dtype is F32 else b.cast(chosen, dtype=F32), factors)
        nothing = b.full(shape=node.output.type.shape, value=0.0, dtype=F32)
        where = b.reshape(columns, shape=(*(1,) * last, escapes))
        return b.scatter_add(nothing, where, terms, axis=last, mode="clamp")
