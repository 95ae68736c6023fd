"""NVIDIA GPUs through PTX: kernels run on the device, and the entries that launch them run on the host.

PTX for one architecture runs on all later ones, since the driver compiles it for the device at hand. The code for an
architecture whose name ends with `a` runs on that one alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..graph_passes import DEVICE_PASSES, DEVICE_STRICT_PASSES
from .family import Family

PTX_VERSIONS: Mapping[str, int] = {
    "sm_80": 70,
    "sm_86": 71,
    "sm_87": 74,
    "sm_89": 78,
    "sm_90": 78,
    "sm_90a": 80,
    "sm_100": 86,
    "sm_100a": 86,
    "sm_120": 87,
    "sm_120a": 87,
}
"""The supported architectures, each with the oldest version of PTX that supports it. The version determines the
oldest driver."""

WARPGROUPS = frozenset({"sm_90a"})
"""The architectures with products of warpgroups, and copies of tiles by tensor maps."""

BLOCKS, IMAGE, TILES = "_blocks", "_image", "_tiles"
"""The suffixes of the symbols that the object of a kernel defines for each launch: the function that counts its blocks,
the descriptor of its code, and for launches with tensor maps the function that returns their numbers."""

IMAGE_TYPE = "{ptr, ptr, ptr, i64, i64, ptr, i64, i64}"
"""The type of a descriptor in LLVM IR, `nacre_kernel_image` in `runtime/cuda/code.h`."""

CUDA = Family(
    machine="nvptx64",
    jump=(),
    cpu="sm_80",
    features="+ptx70",
    units=(),
    used=frozenset(),
    passes=DEVICE_PASSES,
    strict_passes=DEVICE_STRICT_PASSES,
    packs=4,
    routes=dict.fromkeys(range(4), "device"),
    device=True,
    runtime=tuple(
        f"cuda/{stem}"
        for stem in (
            *("call", "driver", "driver_calls", "graph", "launch"),
            *("program", "record", "session", "states", "tiles", "watch"),
        )
    ),
)
"""No level packs weights: threads read a matrix in either order."""

TRIPLE = "nvptx64-nvidia-cuda"
PREFIX = "cuda"
"""The name of the family on the command line, which an architecture may follow, as in `cuda:sm_90a`."""
