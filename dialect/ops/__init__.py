"""Every operator, by name: one table made of the families beside this file."""

from __future__ import annotations

from collections.abc import Mapping

from ..graph import Node, walk
from ..operator import Operator
from . import (
    activation,
    attention,
    average_pooling,
    binary,
    block_contraction,
    block_quantization,
    blocks,
    comparison,
    contraction,
    conv_transpose,
    convolution,
    convolution_gradient,
    creation,
    cumulative,
    dynamic_slicing,
    einsum,
    global_pooling,
    index_checks,
    indexing,
    joining,
    movement,
    normalization,
    oblivious_trees,
    ordering,
    padding,
    pooling,
    quantization,
    reduction,
    repetition,
    resize,
    scatter,
    shape,
    slicing,
    softmax,
    statistics,
    structure,
    tree_ensemble,
    unary,
    updating,
    winograd,
)

_FAMILIES = (
    structure.OPERATORS,
    binary.OPERATORS,
    comparison.OPERATORS,
    unary.OPERATORS,
    quantization.OPERATORS,
    activation.OPERATORS,
    reduction.OPERATORS,
    statistics.OPERATORS,
    cumulative.OPERATORS,
    softmax.OPERATORS,
    normalization.OPERATORS,
    contraction.OPERATORS,
    einsum.OPERATORS,
    convolution.OPERATORS,
    convolution_gradient.OPERATORS,
    conv_transpose.OPERATORS,
    pooling.OPERATORS,
    average_pooling.OPERATORS,
    global_pooling.OPERATORS,
    shape.OPERATORS,
    movement.OPERATORS,
    repetition.OPERATORS,
    blocks.OPERATORS,
    joining.OPERATORS,
    slicing.OPERATORS,
    dynamic_slicing.OPERATORS,
    updating.OPERATORS,
    padding.OPERATORS,
    indexing.OPERATORS,
    index_checks.OPERATORS,
    scatter.OPERATORS,
    ordering.OPERATORS,
    creation.OPERATORS,
    resize.OPERATORS,
    attention.OPERATORS,
    block_quantization.OPERATORS,
    block_contraction.OPERATORS,
    winograd.OPERATORS,
    tree_ensemble.OPERATORS,
    oblivious_trees.OPERATORS,
)

OPERATORS: Mapping[str, Operator] = {operator.name: operator for family in _FAMILIES for operator in family}
assert len(OPERATORS) == sum(map(len, _FAMILIES)), "two operators have one name"


def may_fail(node: Node) -> bool:
    """Returns whether the node, or one inside, decides whether a call fails. Such a node stays even if its results are
    unused."""
    return any(OPERATORS[inner.op].has("checking") for inner in walk([node]))
