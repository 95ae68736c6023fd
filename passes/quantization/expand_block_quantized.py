"""`expand-block-quantized`: block-quantized values become quantized values and scales, as code generation
supports them.

A weight of 5 rows and 64 columns in blocks of 32, and the tensors that it becomes:

    q8[block 32][5, 64]        block_codes   i8[5, 2, 32]     the values of each block
                               block_scales  f16[5, 2]        the scale of each block
    q4[block 32, zero][5, 64]  block_codes   u8[5, 2, 16]     two values in a byte: element i and element i + 16
                               block_scales  f16[5, 2]
                               block_zeros   u8[5, 2]         the zero point of each block
    q4[block 32, e2m1][5, 64]  block_codes   u8[5, 2, 16]     two indices of the dtype's table in a byte
                               block_scales  bf16[5, 2]
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ...dialect.dims import multiply
from ...dialect.graph import Function, Module, Node, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS, axis_order
from ...dialect.ops.support.block_planes import Planes, dequantize_planes, quantize_planes, read_planes
from ...dialect.types import F32, I8, I64, U8, DType, TensorType
from ..analysis.factors import gathered_axis, is_cast
from ..analysis.known_values import KnownValues, definitions_in
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter, constant_array


@dataclass(frozen=True)
class ExpandBlockQuantized(Pass):
    """Expands block-quantized values: `dequantize_blocks` becomes arithmetic on quantized values and scales,
    `quantize_blocks` becomes arithmetic that computes them; for parameters, this is left to `fold-parameters`.

    For a gather from a block-quantized table, or a window of whole rows, only these rows are dequantized. With
    `contract`, a product of floats and a transposed dequantized matrix becomes one `block_matmul`, which dequantizes
    while it multiplies and reassociates sums. The same applies to a matrix of i8 or 8-bit floats with one scale per
    row, and to blocks with scales in f32: `reshape(dequantize(codes, scales))`, or `reshape(reshape(dequantized) *
    scales)`, where both scales of a block are multiplied. If the floats are dequantized u8 with one scale per row, the
    integers are multiplied by one `block_dot`:

        sum dq(a, sa, za) * dq(w) == sum over blocks of (sum over a block of (a - za) * q) * scale, * sa

    With `halves`, a product with one scale per row reads bf16 or f16, where it would read their casts to f32.

    Assumes that loops are unrolled. Leaves unused dequantized values to `dce`.
    """

    name: ClassVar[str] = "expand-block-quantized"
    contract: bool = False
    halves: bool = False

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Splitter(function, module, context, self).run())


@dataclass(frozen=True, slots=True)
class _Steps:
    """Numbers as `(codes - zero) * scale`."""

    codes: Value
    scale: Value
    zero: int


class _Splitter(Rewriter):
    def __init__(self, function: Function, module: Module, context: Context, options: ExpandBlockQuantized) -> None:
        super().__init__(function)
        self.context, self.options = context, options
        self.known = KnownValues(definitions_in(function.body), module.parameter_index)
        self.blocks: dict[str, Value] = {}
        """The block-quantized source of each dequantized value, by name."""

    def visit(self, node: Node) -> Replacement | None:
        builder = NodeBuilder(self.names, node)
        result: Value | None = None
        if node.op == "dequantize_blocks" and node.output.name not in self.blocks:
            self.blocks[node.output.name] = node.inputs[0]
            result = dequantize_planes(builder, self.planes(builder, node.inputs[0]), node.output.type.dtype)
        elif OPERATORS[node.op].has("gathering"):
            result = self.gather(builder, node)
        elif node.op == "dynamic_slice":
            result = self.window(builder, node)
        elif self.options.contract and node.op == "matmul":
            result = self.multiply(builder, node)
        if result is None or not self.context.allow(node.op, node):
            return None
        return Replacement(tuple(builder.nodes), (result,))

    def planes(self, b: NodeBuilder, q: Value) -> Planes:
        made = self.definitions.get(q.name)
        if made is not None and made.op == "join_blocks":
            return Planes(q.type, *made.inputs)
        if made is None or made.op != "quantize_blocks" or self.known.find(q) is not None:
            return read_planes(b, q)
        return quantize_planes(b, made.inputs[0], q.type.dtype)

    def gather(self, b: NodeBuilder, node: Node) -> Value | None:
        """Gathers whole rows of each plane of a table."""
        table, *indices = node.inputs
        q = self.blocks.get(table.name)
        if q is None or len(indices) != 1:
            return None
        axis = gathered_axis(node)
        if axis == table.type.rank - 1:
            return None
        planes = self.planes(b, q)
        where = {"axis": axis, "mode": node.attribute("mode")}
        codes, scales = (b.gather(plane, *indices, **where) for plane in (planes.codes, planes.scales))
        zeros = None if planes.zeros is None else b.gather(planes.zeros, *indices, **where)
        type = TensorType(q.type.dtype, node.output.type.shape)
        return dequantize_planes(b, Planes(type, codes, scales, zeros), node.output.type.dtype)

    def window(self, b: NodeBuilder, node: Node) -> Value | None:
        """Reads a window of whole rows of each plane."""
        table, *starts = node.inputs
        q, sizes, outer = self.blocks.get(table.name), node.attribute("sizes"), table.type.rank - 1
        if q is None or not isinstance(sizes, tuple) or sizes[-1] != table.type.shape[-1]:
            return None
        zero, mode = b.scalar(0, I64), node.attribute("mode")

        def part(plane: Value) -> Value:
            inner = plane.type.shape[outer:]
            begin = (*starts[:outer], *[zero] * len(inner))
            return b.dynamic_slice(plane, *begin, sizes=(*sizes[:-1], *inner), mode=mode)

        planes = self.planes(b, q)
        type = TensorType(q.type.dtype, node.output.type.shape)
        zeros = None if planes.zeros is None else part(planes.zeros)
        made = Planes(type, part(planes.codes), part(planes.scales), zeros)
        return dequantize_planes(b, made, node.output.type.dtype)

    def multiply(self, b: NodeBuilder, node: Node) -> Value | None:
        """Rewrites `x @ dequantized.T`."""
        x, y = node.inputs
        moved = self.definitions.get(y.name)
        if moved is None or axis_order(moved) != (1, 0) or node.output.type.dtype != F32:
            return None
        (weight,) = moved.inputs
        q = self.blocks.get(weight.name)
        if q is None or weight.type.rank != 2:
            scaled = self.scaled(b, weight)
            return self.multiply_rows(b, x, weight) if scaled is None else self.product(b, x, *scaled)
        if self.known.find(q) is None:
            return None
        planes = self.planes(b, q)
        operands = (planes.codes, planes.scales, *(() if planes.zeros is None else (planes.zeros,)))
        return self.product(b, x, operands, q.type.dtype)

    def product(self, b: NodeBuilder, x: Value, operands: tuple[Value, ...], dtype: DType) -> Value:
        """Returns the product with a matrix of the quantized values of a dtype: I8, or a block-quantized one."""
        steps, bits = self.steps(x), dtype.bits
        table = {"table": dtype.table} if dtype.table else {}
        # Differences of two 8-bit values have 9 bits, and no instruction multiplies these.
        if steps is None or (bits == 8 and len(operands) == 3):
            return b.block_matmul(x, *operands, bits=bits, **table, **self.rounding(x))
        sums = b.block_dot(steps.codes, *operands, bits=bits, zero=steps.zero, **table)
        return b.multiply(sums, steps.scale)

    def rounding(self, x: Value) -> dict[str, str]:
        """Returns the attribute of a product with a weight that is dequantized to the dtype of x."""
        return {"rounded": x.type.dtype.name} if x.type.dtype.is_half else {}

    def scaled(self, b: NodeBuilder, weight: Value) -> tuple[tuple[Value, ...], DType] | None:
        """Returns the quantized values, the scales, zero points if there are any, and the dtype of the quantized values
        of a matrix whose blocks have scales in f32."""
        whole = self.definitions.get(weight.name)
        made = None if whole is None or whole.op != "reshape" else self.definitions.get(whole.inputs[0].name)
        if made is None or made.output.type.rank != 3:
            return None
        rows, blocks, size = made.output.type.shape
        if weight.type.shape != (rows, multiply(blocks, size)):
            return None
        if made.op == "dequantize" and len(made.inputs) == 2:
            codes, scales = made.inputs
            known = self.known.find(codes) is not None and self.known.find(scales) is not None
            if known and codes.type.dtype is I8 and scales.type == TensorType(F32, (rows, blocks, 1)):
                return (codes, b.reshape(scales, shape=(rows, blocks))), I8
        if made.op != "multiply":
            return None
        for numbers, scales in (made.inputs, made.inputs[::-1]):
            moved = self.definitions.get(numbers.name)
            q = None if moved is None or moved.op != "reshape" else self.blocks.get(moved.inputs[0].name)
            if q is None or q.type.dtype.block != size or q.type.shape != (rows, multiply(blocks, size)):
                continue
            if self.known.find(q) is None or self.known.find(scales) is None:
                continue
            if scales.type != TensorType(F32, (rows, blocks, 1)):
                continue
            planes = self.planes(b, q)
            products = b.multiply(b.cast(planes.scales, dtype=F32), b.reshape(scales, shape=(rows, blocks)))
            return (planes.codes, products, *(() if planes.zeros is None else (planes.zeros,))), q.type.dtype
        return None

    def steps(self, x: Value) -> _Steps | None:
        """Returns the integers of dequantized floats with one scale per row and one zero point for all rows."""
        node = self.definitions.get(x.name)
        if node is None or node.op != "dequantize" or node.inputs[0].type.dtype != U8:
            return None
        codes, scale, *zero = node.inputs
        if scale.type.dtype != F32 or (scale.type.rank > 0 and scale.type.shape[-1] != 1):
            return None
        array = constant_array(self.definitions.get(zero[0].name)) if zero else np.zeros(1, np.uint8)
        if array is None or array.size != 1:
            return None
        return _Steps(codes, scale, int(array.reshape(-1)[0]))

    def multiply_rows(self, b: NodeBuilder, x: Value, weight: Value) -> Value | None:
        """Multiplies by a weight with one scale per row; whole rows are the blocks. If x is dequantized too, quantized
        values are multiplied by quantized values, unless they are floats."""
        made, other = self.definitions.get(weight.name), self.definitions.get(x.name)
        if made is None or made.op != "dequantize":
            return None
        codes, scales, *zeros = made.inputs
        if codes.type.dtype == I8 and other is not None and other.op == "dequantize":
            return None
        if codes.type.dtype.bits != 8 or F32 not in codes.type.dtype.sums_in:
            return None
        if weight.type.rank != 2 or zeros or self.known.find(codes) is None:
            return None
        rows, inner = weight.type.shape
        if scales.type.shape != (rows, 1):
            return None
        if self.options.halves and codes.type.dtype == I8 and other is not None and is_cast(other):
            (before,) = other.inputs
            x = before if before.type.dtype.is_half else x
        return b.block_matmul(x, b.reshape(codes, shape=(rows, 1, inner)), scales, bits=8)
