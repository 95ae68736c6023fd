"""A lower bound of the time of a call on a GPU that is not present, by its data sheet (roofline).

    seconds of a kernel >= max(operations / rate of their arithmetic, bytes / bandwidth)

The code decides the arithmetic of products: tensor cores multiply weights that are decoded to bf16 at the rate of bf16,
and a product without instructions of tensor cores runs at the rate of all other operations, whatever its dtype.
Bytes are those of the tensors that a kernel reads and writes, each once: no cache, no launch and no memory between the
launches of one kernel is counted, so that the bound is below any time that the chip can reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ....dialect.lazy_dataclass import dataclass
from ....runtime.observe import Call, evaluate
from ...targets.chips import Chip
from .device_code import Code
from .profile import count_products


@dataclass(frozen=True, slots=True)
class Bound:
    """The bound of a kernel's call, whose launches are `code`. `compute` and `memory` are seconds."""

    kernel: str
    kind: str
    flops: int
    bytes: int
    compute: float
    memory: float
    code: tuple[Code, ...]

    @property
    def seconds(self) -> float:
        return max(self.compute, self.memory)

    @property
    def by(self) -> str:
        return "compute" if self.compute > self.memory else "memory"


def count_operations(call: Call, dims: Mapping[str, int]) -> int:
    """Returns the floating-point operations of a call."""
    return sum(evaluate(operation.flops, dims) for operation in call.operations)


def bound_calls(calls: Sequence[Call], codes: Sequence[Code], dims: Mapping[str, int], chip: Chip) -> Iterator[Bound]:
    """Yields the bounds of an entry's calls at sizes of its dims."""
    for call in calls:
        flops = count_operations(call, dims)
        products = count_products(call.operations, dims)
        others = flops - sum(products.values())
        own = tuple(code for code in codes if code.name.startswith(call.kernel))
        compute = others / chip.flops + sum(count / product_rate(chip, own, of) for of, count in products.items())
        bytes = evaluate(call.bytes, dims)
        yield Bound(call.kernel, call.kind, flops, bytes, compute, bytes / chip.bandwidth, own)


def product_rate(chip: Chip, code: Sequence[Code], factors: str) -> float:
    """Returns the operations per second of a kernel's products: those of the fastest tensor core instructions in its
    launches. Without any, `factors`, the dtype of the model, decides between f64 and other numbers."""
    multiplied = {dtype for launch in code for dtype in launch.factors}
    if multiplied:
        return max(map(chip.rate, multiplied))
    return min(chip.flops, chip.rate(factors))
