"""Facts about the nodes of a function that model text depends on: index arithmetic, checks, and uses that are written.

The text has no node for the index of a parameter, nor for a check of indices:

    %1 = add(%i, %c)                                 is_index: written between brackets, as `layer[i + 1]`
    %2 = parameter(%1) {name = "layer.{}.weight"}    a use of %1 that is not written
    %3 = check_indices(%x) {operator = "gather"}     is_check: the operator `gather` has a mode instead
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ....dialect.graph import Function, Node, Value
from ....dialect.ops import OPERATORS
from ....dialect.types import I64, TensorType
from .model_blocks import BLOCK, has_index

SIGNS_OF_INDICES = {"add": "+", "subtract": "-", "multiply": "*", "floor_divide": "//"}
"""The signs of operators in expressions of loop variables."""


def is_check(node: Node) -> bool:
    """Returns whether the node is a check of indices, which is written as the mode of the guarded operator."""
    return not node.regions and node.op in OPERATORS and OPERATORS[node.op].has("checking")


def transposition(node: Node) -> str:
    """Returns the attribute `.T` or `.mT` for a swap of the last two axes."""
    if node.op == "matrix_transpose":
        return ".mT"
    return ".T" if node.op == "transpose" and node.attribute("axes") == (1, 0) else ""


def is_index(node: Node) -> bool:
    """Returns whether the node can be part of an expression of loop variables."""
    known = node.op in SIGNS_OF_INDICES or node.op == "constant"
    return known and node.output.type == TensorType(I64)


def count_written_uses(function: Function) -> Counter[str]:
    """Returns the number of written uses of each value; parameter indices and their computations are not written."""
    uses: Counter[str] = Counter()

    def count(nodes: Sequence[Node], results: Sequence[Value]) -> None:
        uses.update(v.name for v in results)
        for node in reversed(nodes):
            if is_index(node) and not uses[node.output.name]:
                continue
            for region in node.regions:
                count(region.body, region.results)
            if node.op != "parameter":
                uses.update(v.name for v in node.inputs[node.op == BLOCK and has_index(node) :])

    count(function.body, function.results)
    return uses
