"""Compares networks of PyTorch, read by `nacre.from_torch`, with eager PyTorch, on one thread.

    python tests/bench/from_torch.py [NAME ...]

Calls alternate within one process, and the least CPU time of the thread counts. The last column is the time of PyTorch
divided by Nacre's; above 1, Nacre is faster.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import torch

sys.path.append(str(Path(__file__).parents[1] / "torch"))
from networks import Encoder, Residual, UNet, VisionTransformer, ids  # beside the tests of the reader

_ROUNDS = 30

WORKLOADS: Mapping[str, tuple[Callable[[], torch.nn.Module], Callable[[], tuple[Any, ...]]]] = {
    "encoder of 4 layers, width 384, 64 tokens": (
        lambda: Encoder(384, 12, 4),
        lambda: (ids(1, 64), torch.zeros(1, 64, dtype=torch.bool)),
    ),
    "vision transformer, width 192, 8 images": (
        lambda: VisionTransformer(192, 3),
        lambda: (torch.randn(8, 3, 32, 32),),
    ),
    "u-net, 64x64": (UNet, lambda: (torch.randn(1, 3, 64, 64),)),
    "residual network, 128x128": (Residual, lambda: (torch.randn(1, 3, 128, 128),)),
}


def least_times(calls: Mapping[str, Callable[[], object]], rounds: int = _ROUNDS) -> dict[str, float]:
    """Returns the least CPU time of each call; calls alternate."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.thread_time()
            call()
            best[name] = min(best[name], time.thread_time() - start)
    return best


def measure(name: str, folder: Path) -> tuple[float, float, float]:
    """Returns the milliseconds of Nacre and of PyTorch, and the greatest difference of their results."""
    make, arguments = WORKLOADS[name]
    torch.manual_seed(0)
    module, given = make().eval(), arguments()
    model = nacre.compile(nacre.from_torch(module, given), folder / "model.so", threads=1)
    arrays = [tensor.numpy() for tensor in given]

    def eager() -> torch.Tensor:
        with torch.inference_mode():
            return module(*given)

    difference = float(np.abs(model(*arrays) - eager().numpy()).max())
    times = least_times({"nacre": lambda: model(*arrays), "torch": eager})
    return times["nacre"] * 1e3, times["torch"] * 1e3, difference


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    chosen = [name for name in WORKLOADS if not sys.argv[1:] or any(part in name for part in sys.argv[1:])]
    print("| network | Nacre | PyTorch eager | ratio | difference |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen:
            ours, theirs, difference = measure(name, Path(folder))
            print(f"| {name} | {ours:.2f} ms | {theirs:.2f} ms | {theirs / ours:.2f} | {difference:.1e} |", flush=True)


if __name__ == "__main__":
    main()
