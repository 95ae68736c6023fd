"""Replaces parameters of f32 by parameters in the formats of the file, with operators that convert them.

    weight: f32[5, 64], stored as BF16     cast(weight: bf16[5, 64], f32)
    weight: f32[5, 64], stored as Q8_0     dequantize_blocks(weight: q8[block 32][5, 64])
    x @ weight.T,       stored as Q4_1     x @ dequantize_blocks(quantized).T + sum(blocks of x) @ minima.T
    weight[ids],        stored as Q4_1     dequantize_blocks(quantized)[ids] + minima[ids] of each block
    weight: f32[5, 64], stored as Q6_K     reshape(dequantize(quantized: i8[5, 4, 16], scales: f32[5, 4, 1]), [5, 64])
    weight[e:e+1] of f32[8, 5, 64]         the same of quantized[e:e+1], scales[e:e+1] and minima[e:e+1]

The converted values equal those of the f32 parameter; sums of products are reassociated. Other parameters stay f32, and
are converted when the artifact is written: those in other formats, those of repeated blocks, and those that are read in
other ways, unless their format is a single dtype of blocks, such as Q8_0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ....dialect.dims import Shape
from ....dialect.graph import Function, Module, Node, Parameter, Value, parameters_read
from ....dialect.types import BF16, F16, F32, I8, TensorType
from ....passes.analysis.factors import gathered_axis
from ....passes.rewrite import NodeBuilder, Replacement, Rewriter
from ...weights import Checkpoint
from ...weights.gguf_file import Planes

_HALVES = (F16, BF16)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parameters into which a weight is split, as described by `planes`."""

    planes: Planes
    quantized: Parameter
    minima: Parameter | None
    scales: Parameter | None

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return tuple(p for p in (self.quantized, self.minima, self.scales) if p is not None)


def with_stored_formats(module: Module, checkpoint: Checkpoint, planes: Mapping[str, Planes]) -> Module:
    """Returns the module whose parameters have the formats of the checkpoint."""
    parameters: dict[str, Parameter] = {}
    split: dict[str, _Parts] = {}
    for parameter in module.parameters:
        key = parameter.key
        whole = parameter.type.dtype is F32 and not parameter.counts and parameter.transpose is None
        parameters[parameter.name] = parameter
        if not whole or key not in checkpoint or checkpoint.info(key)[1] != parameter.type.shape:
            continue
        stored = checkpoint.info(key)[0]
        if key in planes and parameter.type.rank >= 2:
            split[parameter.name] = _split(parameter, planes[key], checkpoint)
            parameters |= {part.name: part for part in split[parameter.name].parameters}
        elif stored is not None and (stored.is_blocked or (stored in _HALVES and parameter.type.rank == 2)):
            parameters[parameter.name] = replace(parameter, type=parameter.type.with_dtype(stored))
    changed = module.map_functions(lambda function: _Reader(function, parameters, split).run())
    read = dict.fromkeys(name for function in changed.functions for name in parameters_read(function.body))
    begun = dict.fromkeys(state.initial for state in module.states if state.initial is not None)
    return replace(changed, parameters=tuple(p for p in parameters.values() if p.name in read or p.name in begun))


def _split(parameter: Parameter, planes: Planes, checkpoint: Checkpoint) -> _Parts:
    def part(key: str) -> Parameter:
        dtype, shape = checkpoint.info(key)
        assert dtype is not None, key
        return replace(
            parameter, name=f"{parameter.name}.{key.rpartition('#')[2]}", source=key, type=TensorType(dtype, shape)
        )

    minima, scales = (None if key is None else part(key) for key in (planes.minima, planes.scales))
    return _Parts(planes, part(planes.quantized), minima, scales)


class _Reader(Rewriter):
    def __init__(
        self,
        function: Function,
        parameters: Mapping[str, Parameter],
        split: Mapping[str, _Parts],
    ) -> None:
        super().__init__(function)
        self.parameters, self.split = parameters, split

    def visit(self, node: Node) -> Replacement | None:
        b = NodeBuilder(self.names, node)
        result: Value | None = None
        if node.op == "parameter" and node.output.type.dtype is F32:
            parameter = self.parameters[str(node.attribute("name"))]
            if parameter.type.dtype.is_blocked:
                result = b.dequantize_blocks(_read(b, parameter), dtype=F32)
            elif parameter.type.dtype is not F32:
                result = b.cast(_read(b, parameter), dtype=F32)
        elif node.op == "matmul":
            result = self.multiply(b, node)
        elif node.op == "gather":
            result = self.gather(b, node)
        elif node.op == "dynamic_slice":
            result = self.window(b, node)
        return None if result is None else Replacement(tuple(b.nodes), (result,))

    def multiply(self, b: NodeBuilder, node: Node) -> Value | None:
        x, y = node.inputs
        moved = self.definitions.get(y.name)
        if moved is None or moved.op not in ("transpose", "matrix_transpose") or node.output.type.dtype is not F32:
            return None
        half = self.half(moved.inputs[0])
        if half is not None:
            # The cast directly precedes the product, so that the product reads f16 or bf16.
            return b.matmul(x, b.cast(b.matrix_transpose(half), dtype=F32))
        parts = self.parts(moved.inputs[0])
        if parts is None or x.type.rank != 2 or y.type.rank != 2:
            return None
        size = parts.planes.size
        quantized = _read(b, parts.quantized)
        if parts.scales is None:
            weight = b.dequantize_blocks(quantized, dtype=F32)
        else:
            (columns, blocks), shape = parts.scales.type.shape, moved.inputs[0].type.shape
            weight = b.reshape(_scaled(b, quantized, _read(b, parts.scales), (columns, blocks, size)), shape=shape)
        products = b.matmul(x, b.matrix_transpose(weight))
        if parts.minima is None:
            return products
        rows, inner = x.type.shape
        assert isinstance(inner, int), node
        sums = b.sum(b.reshape(x, shape=(rows, inner // size, size)), axis=(-1,))
        return b.add(products, b.matmul(sums, b.matrix_transpose(b.cast(_read(b, parts.minima), dtype=F32))))

    def gather(self, b: NodeBuilder, node: Node) -> Value | None:
        table, indices = node.inputs
        mode, half = node.attribute("mode"), self.half(table)
        if half is not None:
            return b.cast(b.gather(half, indices, axis=gathered_axis(node), mode=mode), dtype=F32)
        parts = self.parts(table)
        if parts is None or gathered_axis(node) != 0:
            return None

        def rows(part: Value) -> Value:
            return b.gather(part, indices, axis=0, mode=mode)

        return _read_rows(b, parts, rows, node.output.type.shape)

    def window(self, b: NodeBuilder, node: Node) -> Value | None:
        """Reads a window of whole rows, such as the matrix of one expert."""
        table, *starts = node.inputs
        parts, sizes, outer = self.parts(table), node.attribute("sizes"), table.type.rank - 1
        if parts is None or not isinstance(sizes, tuple) or sizes[-1] != table.type.shape[-1]:
            return None
        zero, mode = b.scalar(0, starts[0].type.dtype), node.attribute("mode")

        def rows(part: Value) -> Value:
            inner = part.type.shape[outer:]
            begin = (*starts[:outer], *[zero] * len(inner))
            return b.dynamic_slice(part, *begin, sizes=(*sizes[:-1], *inner), mode=mode)

        return _read_rows(b, parts, rows, node.output.type.shape)

    def half(self, value: Value) -> Value | None:
        """Returns the parameter of f16 or bf16 from which a value is cast; None if there is none."""
        node = self.definitions.get(value.name)
        if node is None or node.op != "cast" or node.inputs[0].type.dtype not in _HALVES:
            return None
        made = self.definitions.get(node.inputs[0].name)
        return node.inputs[0] if made is not None and made.op == "parameter" else None

    def parts(self, value: Value) -> _Parts | None:
        node = self.definitions.get(value.name)
        return self.split.get(str(node.attribute("name"))) if node is not None and node.op == "parameter" else None


def _read_rows(b: NodeBuilder, parts: _Parts, rows: Callable[[Value], Value], shape: Shape) -> Value:
    """Returns the numbers of a selection of rows, which `rows` selects from each part."""
    last = shape[-1]
    assert isinstance(last, int), shape
    around = (*shape[:-1], last // parts.planes.size)
    blocks = (*around, parts.planes.size)

    def selected(part: Parameter) -> Value:
        value = _read(b, part)
        return rows(b.dequantize_blocks(value, dtype=F32) if part.type.dtype.is_blocked else value)

    if parts.scales is None:
        numbers = b.reshape(selected(parts.quantized), shape=blocks)
    else:
        numbers = _scaled(b, selected(parts.quantized), selected(parts.scales), blocks)
    if parts.minima is not None:
        numbers = b.add(numbers, b.reshape(b.cast(selected(parts.minima), dtype=F32), shape=(*around, 1)))
    return b.reshape(numbers, shape=shape)


def _scaled(b: NodeBuilder, quantized: Value, scales: Value, shape: Shape) -> Value:
    """Returns the numbers of blocks, [..., blocks, size], from their quantized values and their scales."""
    scales = b.reshape(scales, shape=(*shape[:-1], 1))
    if quantized.type.dtype is I8:
        return b.dequantize(quantized, scales)
    numbers = b.dequantize_blocks(quantized, dtype=F32) if quantized.type.dtype.is_blocked else quantized
    return b.multiply(b.reshape(numbers, shape=shape), scales)


def _read(b: NodeBuilder, parameter: Parameter) -> Value:
    value = b.fresh(parameter.type)
    b.nodes.append(Node("parameter", (), (value,), (("name", parameter.name),), (), b.scope, b.span))
    return value
