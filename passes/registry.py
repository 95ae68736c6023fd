"""Every pass, on one screen. To add one, create a file named as the pass, and a line here."""

from __future__ import annotations

from collections.abc import Mapping

from .fold.fold_batch_norm import FoldBatchNorm
from .fold.fold_constants import FoldConstants
from .fold.fold_parameters import FoldParameters
from .fusion.fuse import Fuse
from .fusion.recompute import Recompute
from .layout.batch_last import BatchLast
from .layout.channels_last import ChannelsLast
from .layout.depth_last import DepthLast
from .layout.einsum_order import EinsumOrder
from .layout.im2col import Im2col
from .layout.ordered_last import OrderedLast
from .layout.split_reductions import SplitReductions
from .layout.split_scans import SplitScans
from .layout.split_sums import SplitSums
from .layout.sub_pixel import SubPixel
from .layout.winograd import Winograd
from .loops.batch_scanned import BatchScanned
from .loops.hoist_invariants import HoistInvariants
from .loops.parallel_order import ParallelOrder
from .loops.sparse_products import SparseProducts
from .loops.triangular_products import TriangularProducts
from .loops.turned_products import TurnedProducts
from .manager import Pass
from .quantization.expand_block_quantized import ExpandBlockQuantized
from .quantization.narrow_contractions import NarrowContractions
from .quantization.narrow_weights import NarrowWeights
from .quantization.pack_floats import PackFloats
from .quantization.qdq_propagation import QdqPropagation
from .quantization.quantize_activations import QuantizeActivations
from .quantization.quantize_weights import QuantizeWeights
from .simplify.butterflies import Butterflies
from .simplify.canonicalize import Canonicalize
from .simplify.check_indices import CheckIndices
from .simplify.cse import Cse
from .simplify.dce import Dce
from .simplify.decompose import Decompose
from .simplify.defer_checks import DeferChecks
from .simplify.inline_custom import InlineCustom
from .simplify.unroll_repeat import UnrollRepeat

_ALL: tuple[type[Pass], ...] = (
    BatchLast,  # convolutions of few channels and short rows have the images as their last axis
    BatchScanned,  # contractions of scanned slices are computed for all iterations at once
    Butterflies,  # Fourier transforms are computed by butterflies, row by row
    Canonicalize,  # one form for equivalent expressions: x * 1, transposes of transposes, axes from the end
    ChannelsLast,  # convolutions and the operators between them have their channels as the last axis
    CheckIndices,  # indices that may be out of range are checked by nodes of their own
    Cse,  # common subexpressions are computed once
    Dce,  # nodes that no result depends on are removed
    Decompose,  # operators are replaced by the operators that define them
    DeferChecks,  # kernels that read by index watch their indices; a check runs only after an alarm
    DepthLast,  # known matrices of 8-bit integers are stored along the sums
    EinsumOrder,  # `einsum` writes a matrix in the order in which its only reader would bring it
    ExpandBlockQuantized,  # block-quantized values become quantized values and scales
    FoldBatchNorm,  # scales and shifts of channels go into the weights of contractions
    FoldConstants,  # constant-only subgraphs are evaluated
    FoldParameters,  # parameter-only subgraphs are computed when weights are written
    Fuse,  # nodes of one kernel form a group: attention, contractions and epilogues, rows, elements
    HoistInvariants,  # computations that are equal in all iterations of a loop precede it
    Im2col,  # convolutions of small images with changing weights become products of patches
    InlineCustom,  # a block with a custom gradient becomes its nodes
    NarrowContractions,  # short operands of contractions are multiplied without widening
    NarrowWeights,  # weights in a short dtype are multiplied as they are stored
    OrderedLast,  # rows are sorted along the last axis
    PackFloats,  # bf16 matrices take 12 bits a number, with unchanged values
    ParallelOrder,  # rows are sorted by counting and merging, in parallel
    QdqPropagation,  # `dequantize` moves down and `quantize` moves up, so that operators work on quantized values
    QuantizeActivations,  # activations of contractions are rounded to a shorter type
    QuantizeWeights,  # weights of contractions are stored in a shorter type
    Recompute,  # values are computed again instead of kept, where memory is limited
    SparseProducts,  # products of the results of ReLU read only the rows of a matrix that are not multiplied by 0
    SplitReductions,  # long reductions with few results are computed in parts, which are reduced then
    SplitScans,  # running sums of few long rows are computed in parts
    SplitSums,  # long sums of products with few results are computed in parts, which are added then
    SubPixel,  # transposed convolutions become ordinary ones, whose channels are the phases of their results
    TriangularProducts,  # products with a triangular matrix leave out the steps where it is 0
    TurnedProducts,  # products with a transposed matrix read the matrix itself, where that moves fewer elements
    UnrollRepeat,  # a loop becomes copies of its body
    Winograd,  # 3x3 convolutions are computed with fewer products, rounded differently
)

PASSES: Mapping[str, type[Pass]] = {each.name: each for each in _ALL}
RENAMED: Mapping[str, str] = {"propagate": "qdq-propagation", "split-blocks": "expand-block-quantized"}
"""Former names of passes. An error for such a name gives the present one."""
