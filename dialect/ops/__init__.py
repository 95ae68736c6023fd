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
    cached_attention,
    comparison,
    contraction,
    conv_transpose,
    convolution,
    convolution_gradient,
    counting,
    creation,
    cumulative,
    detection,
    dynamic_slicing,
    einsum,
    factorization,
    fixed_point,
    fourier,
    global_pooling,
    index_checks,
    indexing,
    joining,
    lengths,
    linear_trees,
    losses,
    merged_order,
    movement,
    normalization,
    oblivious_trees,
    ordering,
    padding,
    place_masks,
    pooling,
    quantization,
    ranges,
    ranked_rows,
    ranked_trees,
    recurrent,
    reduction,
    repetition,
    resize,
    sampling,
    scatter,
    shape,
    singular_values,
    slicing,
    softmax,
    spectrogram,
    statistics,
    structure,
    tree_checks,
    tree_ensemble,
    tree_walks,
    unary,
    unfolding,
    updating,
    winograd,
)

_FAMILIES = (
    structure.OPERATORS,
    binary.OPERATORS,
    comparison.OPERATORS,
    unary.OPERATORS,
    quantization.OPERATORS,
    fixed_point.OPERATORS,
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
    merged_order.OPERATORS,
    creation.OPERATORS,
    resize.OPERATORS,
    lengths.OPERATORS,
    attention.OPERATORS,
    cached_attention.OPERATORS,
    block_quantization.OPERATORS,
    block_contraction.OPERATORS,
    winograd.OPERATORS,
    tree_ensemble.OPERATORS,
    tree_checks.OPERATORS,
    tree_walks.OPERATORS,
    recurrent.OPERATORS,
    fourier.OPERATORS,
    spectrogram.OPERATORS,
    factorization.OPERATORS,
    singular_values.OPERATORS,
    sampling.OPERATORS,
    detection.OPERATORS,
    unfolding.OPERATORS,
    counting.OPERATORS,
    losses.OPERATORS,
    ranges.OPERATORS,
    oblivious_trees.OPERATORS,
    linear_trees.OPERATORS,
    place_masks.OPERATORS,
    ranked_rows.OPERATORS,
    ranked_trees.OPERATORS,
)

OPERATORS: Mapping[str, Operator] = {operator.name: operator for family in _FAMILIES for operator in family}
assert len(OPERATORS) == sum(map(len, _FAMILIES)), "two operators have one name"


def axis_order(node: Node) -> tuple[int, ...] | None:
    """Returns the operand's axis for each axis of the result, if the node only permutes axes."""
    operator = OPERATORS[node.op]
    if operator.axis_order is None:
        return None
    return operator.axis_order(node.inputs[0].type, operator.complete(dict(node.attributes)))


def may_fail(node: Node) -> bool:
    """Returns whether the node, or one inside, decides whether a call fails. Such a node stays even if its results are
    unused."""
    return any(OPERATORS[inner.op].has("checking") for inner in walk([node]))
