"""Packs what is timed on a machine with a GPU: single operators that a limit of the device bounds, and models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from chip.timing import BYTES, Timing
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets
from packing_models import pack_models


@dataclass(frozen=True)
class Timed:
    """An operator: its text in the language, the types of its arguments and its result, and the sums of products."""

    name: str
    arguments: tuple[tuple[str, tuple[int, ...]], ...]
    result: tuple[str, tuple[int, ...]]
    body: str
    flops: int
    peer: str

    def text(self) -> str:
        def type(dtype: str, shape: Sequence[int]) -> str:
            return f"{dtype}[{', '.join(map(str, shape))}]"

        takes = ", ".join(f"x{i}: {type(*argument)}" for i, argument in enumerate(self.arguments))
        return f"model {self.name}({takes}) -> {type(*self.result)} {{ return {self.body} }}\n"

    def described(self) -> Timing:
        tensors = (*self.arguments, self.result)
        total = sum(BYTES[dtype] * prod(shape) for dtype, shape in tensors)
        return Timing(self.name, "timings", (self.name,), self.arguments, self.result, total, self.flops, self.peer)


def _matmul(dtype: str, m: int, n: int, k: int) -> Timed:
    name = f"matmul_{dtype}_{m}_{n}_{k}"
    operands = ((dtype, (m, k)), (dtype, (k, n)))
    return Timed(name, operands, (dtype, (m, n)), "x0 @ x1", 2 * m * n * k, "matmul")


def _rows(name: str, body: str, m: int, n: int, dtype: str = "f32") -> Timed:
    return Timed(f"{name}_{dtype}_{m}_{n}", ((dtype, (m, n)),), (dtype, (m, n)), body, 0, name)


def _attention(batch: int, heads: int, length: int, size: int) -> Timed:
    shape = (batch, heads, length, size)
    flops = 4 * batch * heads * length * length * size
    body = f"softmax(x0 @ transpose(x1, (0, 1, 3, 2)) * {size**-0.5}) @ x2"
    name = f"attention_{batch}_{heads}_{length}_{size}"
    return Timed(name, (("bf16", shape),) * 3, ("bf16", shape), body, flops, "attention")


def timed_operators(*, quick: bool) -> list[Timed]:
    if quick:
        rows = [_rows("relu", "relu(x0)", 8, 64), _rows("softmax", "softmax(x0)", 4, 64)]
        return [*rows, _matmul("bf16", 64, 64, 64), _attention(1, 2, 64, 64)]
    return [
        _rows("relu", "relu(x0)", 8192, 8192),
        _rows("softmax", "softmax(x0)", 8192, 4096),
        _matmul("bf16", 4096, 4096, 4096),
        _matmul("bf16", 8192, 8192, 8192),
        _matmul("f32", 2048, 2048, 2048),
        *(_matmul("bf16", m, 4096, 4096) for m in (1, 8, 32)),
        _attention(4, 16, 1024, 64),
    ]


def pack_timings(folder: Path, target: str, *, quick: bool = False) -> list[Timing]:
    """Writes the artifacts of the operators and the models, and returns what to time."""
    operators = timed_operators(quick=quick)
    source = read_model("language 1\n" + "".join(operator.text() for operator in operators))
    Build(replace(source, tests=()), Options(targets=parse_targets(target))).run(folder / "timings.so")
    models = pack_models(folder, target, quick=quick)
    # Models come first: their times and those of their peers are the ones that matter most if time is short.
    return [*models, *(operator.described() for operator in operators)]
