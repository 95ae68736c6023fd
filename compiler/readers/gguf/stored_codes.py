"""Parameters in the block formats of a file: a graph that declares floats reads the quantized values as they are.

    weight: f32[5, 64], stored as Q8_0     dequantize_blocks(weight: q8[block 32][5, 64])
    x @ weight.T,       stored as Q4_1     x @ dequantize_blocks(codes).T + sum(blocks of x) @ minima.T
    weight[ids],        stored as Q4_1     dequantize_blocks(codes)[ids] + minima[ids] of each block

The numbers are those that the floats would have; sums of products are reassociated. Parameters in other formats, and
those of repeated blocks, stay floats and are dequantized when they are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ....dialect.graph import Function, Module, Node, Parameter, Value, parameters_read
from ....dialect.types import BLOCK_DTYPES, F16, F32, TensorType
from ....passes.analysis.factors import gathered_axis
from ....passes.rewrite import NodeBuilder, Replacement, Rewriter
from ...weights import Checkpoint
from ...weights.gguf_file import Planes

_BLOCK = 32
_CODES = BLOCK_DTYPES[f"q4[block {_BLOCK}, zero]"]


def with_stored_codes(module: Module, checkpoint: Checkpoint, planes: Mapping[str, Planes]) -> Module:
    """Returns the module whose parameters have the block formats of the checkpoint."""
    parameters: dict[str, Parameter] = {}
    pairs: dict[str, tuple[Parameter, Parameter]] = {}
    for parameter in module.parameters:
        key = parameter.key
        whole = parameter.type.dtype is F32 and not parameter.counts and parameter.transpose is None
        parameters[parameter.name] = parameter
        if not whole or key not in checkpoint or checkpoint.info(key)[1] != parameter.type.shape:
            continue
        stored = checkpoint.info(key)[0]
        if key in planes and parameter.type.rank == 2:
            pairs[parameter.name] = _split(parameter, planes[key])
            parameters |= {part.name: part for part in pairs[parameter.name]}
        elif stored is not None and stored.is_blocked:
            parameters[parameter.name] = replace(parameter, type=parameter.type.with_dtype(stored))
    changed = module.map_functions(lambda function: _Reader(function, parameters, pairs).run())
    read = dict.fromkeys(name for function in changed.functions for name in parameters_read(function.body))
    begun = dict.fromkeys(state.initial for state in module.states if state.initial is not None)
    return replace(changed, parameters=tuple(p for p in parameters.values() if p.name in read or p.name in begun))


def _split(parameter: Parameter, planes: Planes) -> tuple[Parameter, Parameter]:
    rows, inner = parameter.type.shape
    assert isinstance(inner, int), parameter
    codes = replace(
        parameter, name=f"{parameter.name}.codes", source=planes.codes, type=parameter.type.with_dtype(_CODES)
    )
    type = TensorType(F16, (rows, inner // _BLOCK))
    return codes, replace(parameter, name=f"{parameter.name}.minima", source=planes.minima, type=type)


class _Reader(Rewriter):
    def __init__(
        self,
        function: Function,
        parameters: Mapping[str, Parameter],
        pairs: Mapping[str, tuple[Parameter, Parameter]],
    ) -> None:
        super().__init__(function)
        self.parameters, self.pairs = parameters, pairs

    def visit(self, node: Node) -> Replacement | None:
        b = NodeBuilder(self.names, node)
        result: Value | None = None
        if node.op == "parameter" and node.output.type.dtype is F32:
            parameter = self.parameters[str(node.attribute("name"))]
            if parameter.type.dtype.is_blocked:
                result = b.dequantize_blocks(_read(b, parameter), dtype=F32)
        elif node.op == "matmul":
            result = self.multiply(b, node)
        elif node.op == "gather":
            result = self.gather(b, node)
        return None if result is None else Replacement(tuple(b.nodes), (result,))

    def multiply(self, b: NodeBuilder, node: Node) -> Value | None:
        x, y = node.inputs
        moved = self.definitions.get(y.name)
        if moved is None or moved.op not in ("transpose", "matrix_transpose") or node.output.type.dtype is not F32:
            return None
        pair = self.pair(moved.inputs[0])
        if pair is None or x.type.rank != 2:
            return None
        codes, minima = (_read(b, part) for part in pair)
        rows, inner = x.type.shape
        assert isinstance(inner, int), node
        sums = b.sum(b.reshape(x, shape=(rows, inner // _BLOCK, _BLOCK)), axis=(-1,))
        products = b.matmul(x, b.matrix_transpose(b.dequantize_blocks(codes, dtype=F32)))
        return b.add(products, b.matmul(sums, b.matrix_transpose(b.cast(minima, dtype=F32))))

    def gather(self, b: NodeBuilder, node: Node) -> Value | None:
        table, indices = node.inputs
        pair = self.pair(table)
        if pair is None or gathered_axis(node) != 0:
            return None
        codes, minima = (_read(b, part) for part in pair)
        mode = node.attribute("mode")
        numbers = b.gather(b.dequantize_blocks(codes, dtype=F32), indices, axis=0, mode=mode)
        least = b.cast(b.gather(minima, indices, axis=0, mode=mode), dtype=F32)
        shape = (*least.type.shape, _BLOCK)
        blocks = b.add(b.reshape(numbers, shape=shape), b.reshape(least, shape=(*least.type.shape, 1)))
        return b.reshape(blocks, shape=node.output.type.shape)

    def pair(self, value: Value) -> tuple[Parameter, Parameter] | None:
        node = self.definitions.get(value.name)
        return self.pairs.get(str(node.attribute("name"))) if node is not None and node.op == "parameter" else None


def _read(b: NodeBuilder, parameter: Parameter) -> Value:
    value = b.fresh(parameter.type)
    b.nodes.append(Node("parameter", (), (value,), (("name", parameter.name),), (), b.scope, b.span))
    return value
