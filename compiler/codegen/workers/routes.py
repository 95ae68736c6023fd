"""Routes from linalg on tensors to the LLVM dialect: named lists of stages, each a pass pipeline of MLIR.

A route is data; the worker runs it. All routes keep the signature of a kernel, on which its callers depend. A further
route is one more entry of the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ....dialect.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Stage:
    """A step with a dump named `name`. `actions` are pass pipelines of the builtin module, or the names of the worker's
    own actions, which begin with `:`.

    An action `names? passes` applies only to a module with one of these operations, or operations of one of these
    dialects, at the beginning of the stage: a pass without work still collects its patterns. `tiled` replaces the
    actions for a kernel that the tiler has written.
    """

    name: str
    actions: tuple[str, ...]
    tiled: tuple[str, ...] | None = None

    def actions_of(self, tiled: bool) -> tuple[str, ...]:
        return self.tiled if tiled and self.tiled is not None else self.actions


def split_action(action: str) -> tuple[frozenset[str], str]:
    """Returns the operations and dialects of an action `names? passes`, and its passes. Without names, it applies
    always."""
    names, _, passes = action.rpartition("? ")
    return frozenset(names.split(", ") if names else ()), passes


@dataclass(frozen=True, slots=True)
class Route:
    name: str
    stages: tuple[Stage, ...]


_CANONICALIZE = "canonicalize{max-iterations=1}"
"""Canonicalisation of code that LLVM optimises next. A second iteration hardly finds anything, and takes as long."""
_INLINE = "inline{default-pipeline=},symbol-dce"
"""By default, each run of the inliner would set up a canonicalisation of its own; a later stage canonicalises."""
_SETTLE_ROUNDING = "math.roundeven, arith.sitofp, arith.uitofp? :settle-rounding"

_BUFFERIZED = Stage(
    "bufferized",
    (
        "one-shot-bufferize{allow-unknown-ops=0},canonicalize,cse",
        # By default, MLIR would copy strided memory through a separate library.
        ":copies-to-linalg",
        ":assert-no-allocation",
    ),
    # The tiler writes loops over memory, without tensors and structured ops.
    tiled=(),
)
_TILE = Stage("tiled", (":tile",))
_FAST_MATH = Stage("fast-math", (":fast-math", _INLINE), tiled=())
_LOOPS = Stage("loops", ("func.func(convert-linalg-to-loops),canonicalize,cse", ":report-parts"))
# A launch of a GPU may still have structured ops, a kernel of the tiler has none. The passes of LLVM for tiled kernels
# hoist nothing.
_TILED_LOOPS = replace(_LOOPS, tiled=("func.func(loop-invariant-code-motion)", ":report-parts"))
_TO_LLVM = (
    "math, vector? convert-vector-to-scf{full-unroll=true}",
    "expand-strided-metadata,lower-affine,convert-scf-to-cf",
    "math, vector? convert-vector-to-llvm",
    "convert-ub-to-llvm,arith-expand{include-bf16=true}",
    "math? convert-math-to-llvm",
    "convert-arith-to-llvm",
    "index? convert-index-to-llvm",
    "finalize-memref-to-llvm,convert-func-to-llvm{use-bare-ptr-memref-call-conv=1},convert-cf-to-llvm,"
    f"{_CANONICALIZE},cse,reconcile-unrealized-casts",
)
_LLVM = Stage(
    "llvm-dialect",
    (
        _SETTLE_ROUNDING,
        # The conversion to libm comes first: converted to LLVM, expm1(x) would be exp(x) - 1. It scalarises vectors.
        "math? convert-math-to-libm",
        *_TO_LLVM,
        ":choose-features",
        ":assert-llvm",
    ),
)

_DEVICE = Stage(
    "device",
    (
        "func.func(linalg-generalize-named-ops)",
        ":outline",
        # The bodies of ops become functions, which their schedules call.
        _INLINE,
        ":expand-math",
        _INLINE,
        ":assert-device-math",
    ),
)
_DEVICE_LLVM = Stage("llvm-dialect", (_SETTLE_ROUNDING, *_TO_LLVM, ":assert-llvm"))

DEVICE, TILED = "device", "tiled"
"""The routes of kernels for a device and of vector code. The former ends with an object that holds the device code."""

ROUTES: Mapping[str, Route] = {
    # Upstream passes alone, one loop nest per structured op in the stated order.
    "loops": Route("loops", (_BUFFERIZED, _LOOPS, _LLVM)),
    # Functions for the threads of a GPU, one for each launch.
    DEVICE: Route(DEVICE, (_BUFFERIZED, _DEVICE, _LOOPS, _DEVICE_LLVM)),
    # Kernels as loops over vectors; kernels that the tiler leaves unchanged take the passes of the first route, with
    # elementary functions that vectorise.
    TILED: Route(TILED, (_TILE, _BUFFERIZED, _FAST_MATH, _TILED_LOOPS, _LLVM)),
}

RENAMED: Mapping[str, str] = {"relaxed": "fast-math", "ptx": "assembly"}
"""Former names of stages, and those that other programs use. An error for such a name gives ours."""
DEVICE_NAMES: Mapping[str, str] = {"ptx": "assembly"}
"""Further names of stages of a GPU target, by the language of their texts."""

FIRST = "linalg"
"""The stage that code generation starts from, unless the text of a later one is given."""

LLVM_IR, OPTIMIZED, ASSEMBLY = "llvm-ir", "optimized", "assembly"
"""The final stages of every route; entries begin with the first of them."""
CUBIN = "cubin"
"""The step after them that makes machine code for a device. It has no text."""
LLVM_STAGES: Mapping[str, str] = {LLVM_IR: "ll", OPTIMIZED: "ll", ASSEMBLY: "s"}
MODULES: Mapping[str, str] = {"module-ir": "ll", "module-assembly": "s"}
"""Kernels and entries as one module, for other programs: no build continues from these texts."""


def code_stages(route: str) -> Mapping[str, str]:
    """Returns the stages of a route in order, and the language of each text: kernels as `mlir`, then kernels
    and entries in LLVM IR (`ll`) and assembly (`s`)."""
    names = (stage.name for stage in ROUTES[route].stages)
    return dict.fromkeys((FIRST, *names), "mlir") | dict(LLVM_STAGES)
