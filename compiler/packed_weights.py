"""The choice of bf16 parameters that are stored in 12 bits a number, from their data: see `pack-floats`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from ..dialect.dims import static_size
from ..dialect.graph import Module, Parameter
from ..dialect.interpreter import Load
from ..dialect.ops.packed_floats import TOGETHER, WORDS, exponents_of
from ..dialect.types import BF16, U32
from ..passes.manager import Pass
from ..passes.quantization.pack_floats import PackFloats
from .targets.target import Target
from .weight_sizes import show_bytes

LEAST = 1 << 20
"""The least bytes of a parameter that is packed: smaller ones stay in a cache, where unpacking takes time."""
NUMBERS_OF_AN_ESCAPE = 1024
"""The least numbers for each one without an index, whose product takes about as long as those of 20 others."""
NEEDED = ("avx512f", "avx512bw")
"""The features of CPUs on which the products are faster: one instruction looks up the exponents of 16 lanes."""

MULTIPLIES_PAIRS, MULTIPLIES_TILES = "avx512bf16", "amx-bf16"
"""The features of CPUs that multiply bf16: pairs in words, as packed products make them, or tiles of a plain matrix."""


def with_packed_floats(
    passes: Sequence[Pass], module: Module, targets: Sequence[Target], load: Load | None
) -> tuple[Pass, ...]:
    """Returns the passes; `pack-floats` without parameters gets those that save time on all targets. `load` reads the
    data of parameters; without it, none is packed."""
    empty = PackFloats()
    if load is None or empty not in passes or not all(target.has(f) for target in targets for f in NEEDED):
        return tuple(passes)
    bfloats = all(t.has(MULTIPLIES_PAIRS) and not t.has(MULTIPLIES_TILES) for t in targets)
    found = PackFloats(tuple(f"{name}:{count}" for name, count in _packable(module, load)), bfloats)
    return tuple(found if step == empty else step for step in passes)


def packed_notes(module: Module) -> Iterator[str]:
    """Yields a line if parameters of a graph are stored in 12 bits a number."""
    words = [p for p in module.parameters if p.formula and any(n.op == "packed_words" for n in p.formula.body)]
    if words:
        bytes = sum(static_size(p.type.bytes) * prod(p.counts) for p in words)
        plain = bytes * 2 * TOGETHER // (WORDS * U32.bytes)
        stored = "1 weight in bf16 is" if len(words) == 1 else f"{len(words)} weights in bf16 are"
        yield (
            f"{stored} stored in 12 bits a number, with unchanged values: {show_bytes(bytes)} instead of "
            f"{show_bytes(plain)}"
        )


def _packable(module: Module, load: Load) -> Iterator[tuple[str, int]]:
    for parameter in module.parameters:
        for single in _singles(parameter):
            if not _may_be_packed(single):
                continue
            data = load(single)
            _, escapes = exponents_of(data)
            if escapes * NUMBERS_OF_AN_ESCAPE <= data.size:
                yield single.name, _rounded_up(escapes)


def _singles(parameter: Parameter) -> Iterator[Parameter]:
    """Yields the parameters of each iteration of the loops around a parameter."""
    return (parameter.at(indices) for indices in product(*map(range, parameter.counts)))


def _may_be_packed(parameter: Parameter) -> bool:
    type = parameter.type
    if parameter.formula is not None or type.dtype is not BF16 or type.rank != 2:
        return False
    return static_size(type.bytes) >= LEAST and static_size(type.shape[1]) % TOGETHER == 0


def _rounded_up(count: int) -> int:
    """Returns a count with two significant bits, so that equal products of several weights share their code."""
    step = 1 << max(0, count.bit_length() - 2)
    return -(-count // step) * step
