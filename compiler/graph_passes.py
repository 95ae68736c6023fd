"""The graph passes of each optimisation level."""

from __future__ import annotations

from collections.abc import Mapping

_FIRST = "inline-custom,decompose{having=composite},check-indices"
_FIRST_BY_ROWS = "inline-custom,decompose{having=composite,keep=fourier_axis},butterflies,check-indices"
_BLOCKS = "expand-block-quantized,fold-parameters{blocks-only=true}"


def _optimizing(
    convolutions: str,
    parameters: str,
    first: str = _FIRST_BY_ROWS,
    last: str = "",
    expand: str = "contract=true",
    fuse: str = "fuse",
) -> str:
    # Parameters are folded last, when the graph contains all facts about them.
    blocks = f"expand-block-quantized{{{expand}}},fold-parameters{{blocks-only=true}}"
    loops = "hoist-invariants,batch-scanned"
    first = f"{first},canonicalize,unroll-repeat,fold-constants,{loops},{blocks},decompose{{having=attention}}"
    last = f"canonicalize,cse,einsum-order,dce,{last}{fuse},defer-checks"
    return f"{first},{convolutions},canonicalize,fold-constants,dce,{parameters},{last}"


_FAST = _optimizing(
    "qdq-propagation,narrow-weights,dce,pack-floats,fold-batch-norm,im2col,sub-pixel,channels-last,winograd,batch-last,"
    "ordered-last",
    "fold-parameters",
    last="turned-products,triangular-products,sparse-products,dce,",
)
_STRICT = _optimizing(
    "qdq-propagation{requantize=false},narrow-weights,dce,pack-floats,im2col,sub-pixel,channels-last,batch-last,"
    "ordered-last",
    "fold-parameters{stepwise=true}",
    last="turned-products,triangular-products,dce,",
)

GRAPH_PASSES: Mapping[int, str] = {
    # The reference: the passes that lowering requires, and no others.
    0: f"{_FIRST},unroll-repeat,fold-constants,{_BLOCKS},dce",
    1: f"{_FIRST},canonicalize,unroll-repeat,fold-constants,{_BLOCKS},fold-parameters{{moves-only=true}},cse,dce",
    2: _FAST,
    3: _FAST,
}
"""The passes of each optimisation level."""

STRICT_PASSES: Mapping[int, str] = {**GRAPH_PASSES, 2: _STRICT, 3: _STRICT}
"""The same without passes that change rounding beyond reassociation."""

_DEVICE_ORDER = "parallel-order,depth-last,split-sums,split-reductions,split-scans"
_DEVICE_LAYOUT = f"channels-last{{pads=false,mean=false}},{_DEVICE_ORDER}"
_DEVICE_BLOCKS = "contract=true,halves=true"
_DEVICE_FUSE = "fuse{in-place=true}"
_DEVICE = _optimizing(
    f"qdq-propagation,narrow-weights,fold-batch-norm,sub-pixel,{_DEVICE_LAYOUT}",
    "fold-parameters",
    _FIRST,
    expand=_DEVICE_BLOCKS,
    fuse=_DEVICE_FUSE,
)
_DEVICE_STRICT = _optimizing(
    f"qdq-propagation{{requantize=false}},narrow-weights,sub-pixel,{_DEVICE_LAYOUT}",
    "fold-parameters{stepwise=true}",
    _FIRST,
    expand=_DEVICE_BLOCKS,
    fuse=_DEVICE_FUSE,
)

DEVICE_PASSES: Mapping[int, str] = {**GRAPH_PASSES, 2: _DEVICE, 3: _DEVICE}
DEVICE_STRICT_PASSES: Mapping[int, str] = {**GRAPH_PASSES, 2: _DEVICE_STRICT, 3: _DEVICE_STRICT}
"""The same for a device. Its tensor cores read the channels of a convolution by 16 bytes where they are the last axis;
loops over rows and winograd transforms save no time there."""
