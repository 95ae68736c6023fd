"""`fold-constants`: evaluates nodes that depend on constants alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ...dialect.dims import Poly
from ...dialect.graph import Attribute, Function, Module, Node, Parameter, Value, constant_of
from ...dialect.interpreter import IndexRangeError, Interpreter
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ...dialect.types import Array, dtype_of
from ..analysis.known_values import Known, KnownValues, definitions_in, last_known
from ..analysis.parameters import make_parameters_single
from ..manager import Context, FoldedConstant, Pass
from ..rewrite import Replacement, Rewriter, constant_array, constant_node


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Evaluates nodes with constant operands at compile time, with the operators' references and in the nodes' dtypes.

    A result may be `growth` bytes larger than its operands together; a large `iota` is therefore not folded. Larger
    results are folded if their elements are costly to compute, such as those of a matrix of cosines, up to
    16 MiB each (`known_values.MOST`). Broadcasts before and after such nodes are not folded.

    Leaves the folded constants' operands to `dce`. A numbered parameter whose indices become constant becomes a single
    one. Results are bit-identical to those of the reference interpreter. A check that fails stays.
    """

    name: ClassVar[str] = "fold-constants"
    growth: int = 4096

    def rewrite(self, module: Module, context: Context) -> Module:
        folded = module.map_functions(lambda function: _Folder(function, context, self.growth).run())
        folded = folded.map_functions(lambda function: _CostlyFolder(function, module, context).run())
        return make_parameters_single(folded, context)


class _Folder(Rewriter):
    def __init__(self, function: Function, context: Context, growth: int) -> None:
        super().__init__(function)
        self.context, self.growth = context, growth

    def visit(self, node: Node) -> Replacement | None:
        if OPERATORS[node.op].has("structure") or not self._is_known(node):
            return None
        if any(value.type.dtype.is_blocked for value in node.outputs):
            return None  # no constant is block-quantized
        operands = [constant_array(self.definitions.get(v.name)) for v in node.inputs]
        known = [array for array in operands if array is not None]
        if len(known) != len(operands):
            return None
        size = sum(v.type.bytes for v in node.outputs)
        assert isinstance(size, int), node
        if size > sum(array.nbytes for array in known) + self.growth:
            return None
        try:
            results = tuple(map(_with_usual_nan, run_node(node, known)))
        except IndexRangeError:
            return None
        if not self.context.allow("fold", node):
            return None
        nodes = tuple(constant_node(v, r, node) for v, r in zip(node.outputs, results, strict=True))
        return Replacement(nodes, node.outputs)

    def _is_known(self, node: Node) -> bool:
        return all(v.type.is_static for v in node.outputs) and not any(_is_symbolic(a) for _, a in node.attributes)


class _CostlyFolder(Rewriter):
    """Folds the last values that only constants determine, where some of their elements are costly to compute."""

    def __init__(self, function: Function, module: Module, context: Context) -> None:
        super().__init__(function)
        self.context = context
        self.known = KnownValues(definitions_in(function.body), module.parameter_index)
        self.last = last_known(self.known, function.body, function.results, self._is_costly)

    def _is_costly(self, known: Known) -> bool:
        return not known.has_parameter and known.costly > 0

    def visit(self, node: Node) -> Replacement | None:
        if constant_of(node) is not None or self.last.isdisjoint(v.name for v in node.outputs):
            return None
        if not self.context.allow("fold-costly", node):
            return None
        arrays = [_with_usual_nan(self._computed(v)) for v in node.outputs]
        size, known = sum(a.nbytes for a in arrays), [self.known.find(v) for v in node.outputs]
        source_size = max(k.bytes for k in known if k is not None)
        if size > source_size:
            self.context.grown.append(FoldedConstant(node, size, source_size))
        nodes = tuple(constant_node(v, a, node) for v, a in zip(node.outputs, arrays, strict=True))
        return Replacement(nodes, node.outputs)

    def _computed(self, value: Value) -> Array:
        formula = self.known.formula(value, stepwise=True)
        return Interpreter(formula.module, _no_parameter).run(formula.function, ())[0]


def _is_symbolic(value: Attribute) -> bool:
    return any(map(_is_symbolic, value)) if isinstance(value, tuple) else isinstance(value, Poly)


def _no_parameter(parameter: Parameter) -> Array:
    raise AssertionError(parameter)


def _with_usual_nan(array: Array) -> Array:
    """Returns the array with one bit pattern for NaN: the bits that an operation produces depend on the machine."""
    if not dtype_of(array).is_float:
        return array
    return np.where(np.isnan(array), np.asarray(np.nan).astype(array.dtype), array)


def run_node(node: Node, operands: Sequence[Array]) -> tuple[Array, ...]:
    """Returns the results of a node for given operands."""
    arguments = dict(zip(node.inputs, operands, strict=True))
    function = Function("fold", tuple(arguments), (node,), node.outputs)
    return Interpreter(Module("fold"), _no_parameter).run(function, tuple(arguments.values()))
