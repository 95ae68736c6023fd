"""Puts fitted quantized values into a graph, as constants that replace the block quantization of a weight."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...dialect.graph import Constant, Formula, Function, Module, Node, Value
from ...dialect.types import Array, DType
from ...passes.analysis.known_values import KnownValues, definitions_in
from ...passes.rewrite import NodeBuilder, Replacement, Rewriter
from .fit_codes import Codes

Fits = Mapping[tuple[Formula, DType], Codes]
"""Fitted quantized values, keyed by the weight's formula of parameters and by its block dtype."""


def with_fits(module: Module, fits: Fits) -> Module:
    """Returns the module in which fitted quantized values replace the quantization of their weights."""
    return module.map_functions(lambda function: _Fitter(function, module, fits).run()) if fits else module


class _Fitter(Rewriter):
    def __init__(self, function: Function, module: Module, fits: Fits) -> None:
        super().__init__(function)
        self.fits = fits
        self.known = KnownValues(definitions_in(function.body), module.parameter_index)

    def visit(self, node: Node) -> Replacement | None:
        if node.op != "quantize_blocks" or self.known.find(node.inputs[0]) is None:
            return None
        dtype = node.output.type.dtype
        found = self.fits.get((self.known.formula(node.inputs[0]), dtype))
        if found is None:
            return None
        b = NodeBuilder(self.names, node)
        blocks = node.output.type.stored_shape
        planes = [_constant(b, found.codes, (*blocks, found.codes.shape[-1])), _constant(b, found.scales, blocks)]
        planes += [] if found.zeros is None else [_constant(b, found.zeros, blocks)]
        value = b.join_blocks(*planes, dtype=dtype)
        return Replacement(tuple(b.nodes), (value,))


def _constant(b: NodeBuilder, plane: Array, shape: tuple[object, ...]) -> Value:
    return b.apply("constant", (), {"value": Constant(np.reshape(plane, shape))})[0]  # type: ignore[arg-type]  # sizes of weights are numbers
