"""Compares networks of PyTorch, read by `nacre.from_torch`, with eager PyTorch and with `torch.compile`.

    python tests/bench/from_torch.py [NAME ...] [--threads N] [--artifacts FOLDER]

Calls alternate within one process. The time of a call is the least processor time of its busiest thread, which is the
elapsed time if each thread has a core of its own. The last columns are the time of PyTorch divided by Nacre's; above 1,
Nacre is faster.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import torch
from measure import Contender, Plan, interleave

sys.path.append(str(Path(__file__).parents[1] / "pytorch"))
from networks import Encoder, Residual, UNet, VisionTransformer, ids  # beside the tests of the reader

_PLAN = Plan(rounds=30, slot=0.002)

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


def compare(name: str, folder: Path, threads: int) -> str:
    """Returns a row of the table: the time of Nacre, the ratios, and the greatest difference of the results."""
    make, arguments = WORKLOADS[name]
    torch.manual_seed(0)
    module, given = make().eval(), arguments()
    artifact = folder / f"{name.split(',')[0].replace(' ', '_')}.so"
    if not artifact.exists():
        nacre.compile(nacre.from_torch(module, given), artifact)
    model = nacre.load(artifact, threads=threads)
    arrays = [tensor.numpy() for tensor in given]
    compiled = torch.compile(module)

    def call(network: Callable[..., torch.Tensor]) -> Callable[[], torch.Tensor]:
        def called() -> torch.Tensor:
            with torch.inference_mode():
                return network(*given)

        return called

    difference = float(np.abs(model(*arrays) - call(module)().numpy()).max())
    calls = {"nacre": lambda: model(*arrays), "eager": call(module), "compiled": call(compiled)}
    contenders = [Contender(each, called, lambda made: [made]).timed_by_threads(max) for each, called in calls.items()]
    times = interleave(contenders, _PLAN).least()
    ratios = " | ".join(f"{times[each] / times['nacre']:.2f}" for each in ("eager", "compiled"))
    return f"| {name} | {times['nacre'] * 1e3:.2f} ms | {ratios} | {difference:.1e} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="parts of the names of networks; all by default")
    parser.add_argument("--artifacts", type=Path, default=Path("build/from_torch"), help="where artifacts are kept")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    given.artifacts.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(given.threads)
    warnings.simplefilter("ignore")
    print("| network | Nacre | PyTorch eager | torch.compile | difference |\n|---|---|---|---|---|")
    for name in WORKLOADS:
        if not given.names or any(part in name for part in given.names):
            print(compare(name, given.artifacts, given.threads), flush=True)


if __name__ == "__main__":
    main()
