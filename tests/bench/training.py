"""Compares training steps with peers: `python tests/bench/training.py [WORKLOAD ...]`.

The peers are PyTorch, eager and, with `--compiled`, by torch.compile, which needs a C++ compiler; JAX, if it is
installed; and tinygrad, if it and clang are installed. The steps compute the same: forward, backward, and an update, by
AdamW or, for `resnet`, by SGD with momentum.

All contenders run in one process, in turns. With one thread, the process is bound to one core, since some peers start
more threads than they are asked for, and the time is the CPU time of the process. With `--threads 2`, it is the elapsed
time. A line has the least and the median time of a step; the ratios to Nacre are those of the least times, and the
medians of the ratios of each round. `--memory` measures the peak memory of each contender instead, in a process of its
own. `training.md` has the figures.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax_training
import nacre
import numpy as np
import tinygrad_training
import torch
from measure import Contender, Plan, interleave, summarize
from torch import nn
from torch.nn import functional

HEAD = """language 1
import "library/losses.nacre"
block Linear<inputs, outputs>(x: f32[..., inputs]) -> f32[..., outputs] {
  param weight: f32[outputs, inputs] = random_normal((outputs, inputs), seed) / sqrt(inputs)
  param bias: f32[outputs] = 0.0
  return x @ weight.T + bias
}
block Conv<inputs, outputs, size>(x: f32[B, inputs, H, W]) -> f32[B, outputs, H - size + 1, W - size + 1] {
  param weight: f32[outputs, inputs, size, size] = random_normal((outputs, inputs, size, size), seed) / (5 * size)
  param bias: f32[outputs] = 0.0
  return conv2d(x, weight, bias)
}
"""
MLP = """
train step(x: f32[64, 784], label: i64[64], lr: f32) -> loss: f32 {
  use first = Linear<784, 256>
  use second = Linear<256, 128>
  use third = Linear<128, 10>
  loss = cross_entropy(x |> first |> relu |> second |> relu |> third, label)
  minimize loss with adamw(lr=lr)
}
"""
LENET = """
train step(x: f32[64, 1, 28, 28], label: i64[64], lr: f32) -> loss: f32 {
  use first = Conv<1, 6, 5>
  use second = Conv<6, 16, 5>
  use third = Linear<256, 120>
  use fourth = Linear<120, 84>
  use fifth = Linear<84, 10>
  y = x |> first |> relu |> max_pool2d(2) |> second |> relu |> max_pool2d(2) |> flatten(1)
  loss = cross_entropy(y |> third |> relu |> fourth |> relu |> fifth, label)
  minimize loss with adamw(lr=lr)
}
"""


GPT = """
block GptLayer(x: f32[8, 256, 384]) -> f32[8, 256, 384] {
  use first, second = Norm<384>
  use query, key, value, mixed = Linear<384, 384>
  use wide = Linear<384, 1536>
  use narrow = Linear<1536, 384>
  y = first(x)
  q = query(y) |> rearrange("b t (h d) -> b h t d", h=6)
  k = key(y) |> rearrange("b t (h d) -> b h t d", h=6)
  v = value(y) |> rearrange("b t (h d) -> b h t d", h=6)
  seen = iota((256,), dtype=i64)[None, :] <= iota((256,), dtype=i64)[:, None]
  shares = softmax(where(seen, q @ k.mT / sqrt(64), -inf))
  x = x + mixed(shares @ v |> rearrange("b h t d -> b t (h d)"))
  return x + narrow(gelu(wide(second(x)), approximate="tanh"))
}
block Norm<width>(x: f32[..., width]) -> f32[..., width] {
  param weight: f32[width] = 1.0
  param bias: f32[width] = 0.0
  return layer_norm(x, weight, bias)
}
train step(ids: i64[8, 256], label: i64[8, 256], lr: f32) -> loss: f32 {
  param table: f32[65, 384] = 0.02 * random_normal((65, 384), seed)
  param places: f32[256, 384] = 0.02 * random_normal((256, 384), seed)
  use layer[6] = GptLayer
  use norm = Norm<384>
  x = embedding(table, ids) + places
  repeat i in 0..6 { x = layer[i](x) }
  loss = cross_entropy(norm(x) @ table.T, label)
  minimize loss with adamw(lr=lr)
}
"""


RESNET = """
block Norm<channels>(x: f32[N, channels, H, W]) -> f32[N, channels, H, W] {
  param weight: f32[channels] = 1.0
  param bias: f32[channels] = 0.0
  state running_mean: f32[channels] = 0.0
  state running_var: f32[channels] = 1.0
  center, spread = mean(x, axis=(0, 2, 3)), variance(x, axis=(0, 2, 3))
  running_mean = 0.9 * running_mean + 0.1 * center
  running_var = 0.9 * running_var + 0.1 * (spread * (N * H * W) / (N * H * W - 1))
  return batch_norm(x, center, spread, weight=weight, bias=bias)
}
block Padded<inputs, outputs, size, side, stride=1>(
  x: f32[16, inputs, side, side],
) -> f32[16, outputs, side / stride, side / stride] {
  param weight: f32[outputs, inputs, size, size] = random_normal((outputs, inputs, size, size), seed) / (10 * size)
  return conv2d(x, weight, stride=stride, padding=size // 2)
}
block Shortcut<inputs, outputs, side, stride>(
  x: f32[16, inputs, side, side],
) -> f32[16, outputs, side / stride, side / stride] {
  use conv = Padded<inputs, outputs, 1, side, stride>
  use norm = Norm<outputs>
  return x if inputs == outputs else norm(conv(x))
}
block Residual<inputs, outputs, side, stride=1>(
  x: f32[16, inputs, side, side],
) -> f32[16, outputs, side / stride, side / stride] {
  use conv1 = Padded<inputs, outputs, 3, side, stride>
  use conv2 = Padded<outputs, outputs, 3, side / stride>
  use norm1, norm2 = Norm<outputs>
  use shortcut = Shortcut<inputs, outputs, side, stride>
  return relu(x |> conv1 |> norm1 |> relu |> conv2 |> norm2 |> add(shortcut(x)))
}
train step(x: f32[16, 3, 64, 64], label: i64[16], lr: f32) -> loss: f32 {
  use conv = Padded<3, 64, 7, 64, 2>
  use norm = Norm<64>
  use layer0, layer1 = Residual<64, 64, 16>
  use layer2 = Residual<64, 128, 16, 2>
  use layer3 = Residual<128, 128, 8>
  use layer4 = Residual<128, 256, 8, 2>
  use layer5 = Residual<256, 256, 4>
  use layer6 = Residual<256, 512, 4, 2>
  use layer7 = Residual<512, 512, 2>
  use classes = Linear<512, 1000>
  y = x |> conv |> norm |> relu |> max_pool2d(3, stride=2, padding=1)
  y = y |> layer0 |> layer1 |> layer2 |> layer3 |> layer4 |> layer5 |> layer6 |> layer7
  loss = cross_entropy(y |> global_avg_pool |> flatten(1) |> classes, label)
  minimize loss with sgd<momentum=0.9>(lr=lr)
}
"""


class GptLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(384), nn.LayerNorm(384)
        self.query, self.key, self.value, self.mixed = (nn.Linear(384, 384) for _ in range(4))
        self.wide, self.narrow = nn.Linear(384, 1536), nn.Linear(1536, 384)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        q, k, v = (part(y).view(8, 256, 6, 64).transpose(1, 2) for part in (self.query, self.key, self.value))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mixed(mixed.transpose(1, 2).reshape(8, 256, 384))
        return x + self.narrow(functional.gelu(self.wide(self.second(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(65, 384), nn.Parameter(0.02 * torch.randn(256, 384))
        self.layers = nn.Sequential(*(GptLayer() for _ in range(6)))
        self.norm = nn.LayerNorm(384)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.layers(self.table(ids) + self.places))
        return (x @ self.table.weight.T).transpose(1, 2)


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if inputs != outputs:
            self.shortcut.add_module("conv", nn.Conv2d(inputs, outputs, 1, stride, bias=False))
            self.shortcut.add_module("norm", nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class Resnet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        sizes = ((64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2))
        for number, size in enumerate((*sizes, (512, 512, 1))):
            self.add_module(f"layer{number}", Residual(*size))
        self.classes = nn.Linear(512, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.max_pool2d(functional.relu(self.norm(self.conv(x))), 3, 2, 1)
        for number in range(8):
            y = self.get_submodule(f"layer{number}")(y)
        return self.classes(y.mean((2, 3)))


@dataclass(frozen=True)
class Workload:
    """A training step in Nacre and PyTorch, its inputs, and its learning rate; `rounds` are the measured steps. A step
    is `long` if it needs no other before it to warm the caches, and if tinygrad takes minutes for it."""

    text: str
    module: Callable[[], nn.Module]
    inputs: tuple[Any, ...]
    rounds: int
    rate: float = 1e-3
    momentum: bool = False
    long: bool = False


def nacre_step(work: Workload, path: str, threads: int) -> Callable[[], object]:
    session = nacre.load(path, threads=threads).session()
    return lambda: session.step(*work.inputs, np.float32(work.rate))


def torch_step(work: Workload, *, compiled: bool = False) -> Callable[[], object]:
    module = work.module()
    if work.momentum:
        optimizer: Any = torch.optim.SGD(module.parameters(), lr=work.rate, momentum=0.9, foreach=True)
    else:
        optimizer = torch.optim.AdamW(module.parameters(), lr=work.rate, foreach=True)
    x, label = map(torch.tensor, work.inputs)

    def find_loss() -> torch.Tensor:
        return functional.cross_entropy(module(x), label)

    forward = torch.compile(find_loss) if compiled else find_loss

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        loss = forward()
        loss.backward()
        optimizer.step()
        return loss

    return step


def peer_step(peer: Any, name: str, work: Workload, threads: int) -> Callable[[], object]:
    """Returns the step of `jax_training` or `tinygrad_training`."""
    parameters = {key: value.detach().numpy() for key, value in work.module().named_parameters()}
    step: Callable[[], object] = peer.make_step(
        name, parameters, work.inputs, work.rate, momentum=work.momentum, threads=threads
    )
    return step


def workloads() -> dict[str, Workload]:
    rng = np.random.default_rng(0)
    flat, labels = rng.standard_normal((64, 784)).astype(np.float32), rng.integers(0, 10, 64)
    ids, following = rng.integers(0, 65, (2, 8, 256))
    pictures, classes = rng.standard_normal((16, 3, 64, 64)).astype(np.float32), rng.integers(0, 1000, 16)

    def mlp() -> nn.Module:
        return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))

    def lenet() -> nn.Module:
        first = (nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2))
        dense = (nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
        return nn.Sequential(*first, nn.Flatten(), *dense)

    return {
        "mlp": Workload(MLP, mlp, (flat, labels), 60),
        "lenet": Workload(LENET, lenet, (flat.reshape(64, 1, 28, 28), labels), 60),
        "gpt": Workload(GPT, Gpt, (ids, following), 9, long=True),
        "resnet": Workload(RESNET, Resnet, (pictures, classes), 25, 0.01, momentum=True, long=True),
    }


def contenders(name: str, work: Workload, path: str, threads: int) -> dict[str, Callable[[], Callable[[], object]]]:
    """Returns the makers of each contender's step, by its name."""
    makers: dict[str, Callable[[], Callable[[], object]]] = {
        "nacre": partial(nacre_step, work, path, threads),
        "torch": partial(torch_step, work),
        "torch.compile": partial(torch_step, work, compiled=True),
    }
    if find_spec("jax") is not None:
        makers["jax"] = partial(peer_step, jax_training, name, work, threads)
    if tinygrad_training.reason_of_absence() is None:
        makers["tinygrad"] = partial(peer_step, tinygrad_training, name, work, threads)
    return makers


SLOT = 0.15
"""The seconds in which steps follow each other before another contender runs. Threads that have slept between single
steps would be woken in the time of a short one."""


def measure_time(name: str, steps: dict[str, Callable[[], object]], work: Workload, clock: Callable[[], float]) -> None:
    """Prints the least and the median time of a step, in milliseconds, and the ratios to Nacre's."""
    contenders = [Contender(key, step, list).timed_by(clock, warm=not work.long) for key, step in steps.items()]
    times = interleave(contenders, Plan(work.rounds, 0 if work.long else SLOT))
    least = times.least()
    for key, timing in summarize(times.seconds, "nacre").items():
        ratios = f"ratio {least[key] / least['nacre']:.2f}, {timing.ratio:.2f}"
        print(f"{name}: {key} {least[key] * 1e3:.3f} ms, median {timing.median * 1e3:.3f} ms, {ratios}", flush=True)


def peak_memory() -> int:
    """Returns the most resident memory of this process so far, in KiB. `getrusage` would count its parent too."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None, "no VmHWM in /proc/self/status"
    return int(found[1])


def measure_memory(name: str, contender: str, path: str, threads: int) -> None:
    """Prints the most memory of this process in three steps, in MB, without that of the imported libraries. The
    child of `--memory` calls it."""
    work = workloads()[name]
    before = peak_memory()
    step = contenders(name, work, path, threads)[contender]()
    for _ in range(3):
        step()
    after = peak_memory()
    print(
        f"{name}: {contender} {after / 1e3:.0f} MB, {(after - before) / 1e3:.0f} MB of them for the steps", flush=True
    )


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="WORKLOAD", help="mlp, lenet, gpt or resnet; by default all")
    parser.add_argument("--compiled", action="store_true", help="adds torch.compile")
    parser.add_argument("--tinygrad", action="store_true", help="adds tinygrad to gpt and resnet: many minutes")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--target", default="native", help="the target of Nacre")
    parser.add_argument("--memory", action="store_true", help="measures memory instead of time")
    parser.add_argument("--alone", nargs=2, metavar=("CONTENDER", "ARTIFACT"), help=argparse.SUPPRESS)
    return parser.parse_args()


def chosen(makers: dict[str, Any], work: Workload, arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the contenders that take part; prints why tinygrad does not."""
    absent = set() if arguments.compiled else {"torch.compile"}
    reason = tinygrad_training.reason_of_absence()
    if reason is None and work.long and not arguments.tinygrad:
        reason = "it takes part in long steps with --tinygrad alone"
        absent.add("tinygrad")
    if reason is not None:
        print(f"tinygrad does not take part: {reason}", flush=True)
    return {key: maker for key, maker in makers.items() if key not in absent}


def main() -> None:
    arguments = read_arguments()
    threads = arguments.threads
    if arguments.alone:
        bind(threads)
        measure_memory(arguments.names[0], *arguments.alone, threads)
        return
    clock = time.process_time if threads == 1 else time.perf_counter
    works = {name: work for name, work in workloads().items() if name in (arguments.names or [name])}
    with tempfile.TemporaryDirectory() as folder:
        for name, work in works.items():
            nacre.compile(HEAD + work.text, f"{folder}/{name}.so", target=arguments.target)
        bind(threads)
        for name, work in works.items():
            path = f"{folder}/{name}.so"
            makers = chosen(contenders(name, work, path, threads), work, arguments)
            if not arguments.memory:
                measure_time(name, {key: make() for key, make in makers.items()}, work, clock)
                continue
            for contender in makers:
                command = [sys.executable, __file__, name, "--threads", str(threads), "--alone", contender, path]
                subprocess.run(command, check=True)


def bind(threads: int) -> None:
    """Binds this thread, and those that it starts from now on, to as many cores as `threads`."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])
    torch.set_num_threads(threads)


if __name__ == "__main__":
    main()
