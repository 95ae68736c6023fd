"""The peers by name. Each is a module that imports its library and has `prepare(model, threads) -> Contender`.

None of them has to be installed: the table says what is missing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from measure import Contender
from prepare import Model
from workloads.precision import BF16, F32, INT4, INT4A8, INT8, INT8_STATIC, Precision


@dataclass(frozen=True)
class Peer:
    """`module` is the name of the file here, `packages` what it needs installed, `precisions` what it competes in."""

    name: str
    module: str
    packages: tuple[str, ...]
    precisions: tuple[Precision, ...] = (F32,)

    def missing(self) -> list[str]:
        return [package for package in self.packages if _version(package) is None]

    def versions(self) -> dict[str, str]:
        return {package: found for package in self.packages if (found := _version(package)) is not None}

    def load(self) -> Callable[[Model, int], Contender]:
        """Imports the library, so it has to be called where threads are pinned already."""
        prepare: Callable[[Model, int], Contender] = importlib.import_module(f"peers.{self.module}").prepare
        return prepare


PEERS: Mapping[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer("onnxruntime", "onnxruntime_peer", ("onnxruntime", "onnx"), (F32, INT8, INT8_STATIC, INT4, INT4A8)),
        # ONNX Runtime's tools write the file that it reads in 8 bits.
        Peer("openvino", "openvino_peer", ("openvino", "onnx", "onnxruntime"), (F32, BF16, INT8, INT8_STATIC)),
        Peer("torch.compile", "torch_compiled", ("torch",), (F32, BF16)),
        Peer("torch", "torch_eager", ("torch",), (F32, BF16)),
        Peer("xla", "jax_peer", ("jax", "jaxlib")),
        Peer("iree", "iree_peer", ("iree-base-compiler", "iree-base-runtime", "onnx")),
    )
}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
