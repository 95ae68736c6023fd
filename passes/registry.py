"""Every pass, on one screen. A new one is a file named as the pass, and a line here."""

from __future__ import annotations

from collections.abc import Mapping

from .canonicalize import Canonicalize
from .channels_last import ChannelsLast
from .check_indices import CheckIndices
from .cse import Cse
from .dce import Dce
from .decompose import Decompose
from .fold_batch_norm import FoldBatchNorm
from .fold_constants import FoldConstants
from .fold_parameters import FoldParameters
from .fuse import Fuse
from .manager import Pass
from .narrow_contractions import NarrowContractions
from .narrow_weights import NarrowWeights
from .propagate import Propagate
from .quantize_activations import QuantizeActivations
from .quantize_weights import QuantizeWeights
from .split_blocks import SplitBlocks
from .sub_pixel import SubPixel
from .unroll_repeat import UnrollRepeat
from .winograd import Winograd

_ALL: tuple[type[Pass], ...] = (
    Canonicalize,  # one form for what can be written in several: x * 1, transposes of transposes, axes from the end
    ChannelsLast,  # convolutions and what lies between them have their channels as the last axis
    CheckIndices,  # indices that may be out of range are checked by nodes of their own
    Cse,  # what is computed twice is computed once
    Dce,  # what no result depends on goes
    Decompose,  # operators that are defined by others become them
    FoldBatchNorm,  # scales and shifts of channels go into the weights of contractions
    FoldConstants,  # what depends on constants alone is computed now
    FoldParameters,  # what depends on parameters alone is computed when weights are written
    Fuse,  # what one kernel can compute becomes one group: attention, contractions and epilogues, rows, elements
    NarrowContractions,  # what was widened to be multiplied is multiplied as it was
    NarrowWeights,  # weights in a short dtype are multiplied as they are stored
    Propagate,  # what is computed of dequantised codes is computed of the codes
    QuantizeActivations,  # what is multiplied and computed in a call is rounded to a shorter type
    QuantizeWeights,  # what is multiplied and made of parameters is kept in a shorter type
    SplitBlocks,  # values that are stored in blocks become codes and scales
    SubPixel,  # transposed convolutions become ordinary ones, whose channels are the phases of their results
    UnrollRepeat,  # a loop becomes copies of its body
    Winograd,  # convolutions with 3x3 kernels by fewer products, rounded differently
)

PASSES: Mapping[str, type[Pass]] = {each.name: each for each in _ALL}
