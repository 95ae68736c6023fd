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
from ..dialect.wrapping import counted
from ..passes.manager import Pass
from ..passes.quantization.pack_floats import COLUMN_BYTES, PackFloats
from .codegen.isa import find_exponents
from .targets.target import Target
from .weight_sizes import show_bytes

LEAST = 1 << 20
"""The least bytes of a parameter that is packed: smaller ones stay in a cache, where unpacking takes time."""
NUMBERS_OF_AN_ESCAPE = 1024
"""The least numbers for each one without an index, whose product takes about as long as those of 20 others."""
LANES = 16
"""The lanes of vectors of 512 bits, for whose panels the default bytes of a column are."""
FEWEST_STEPS = 1024
"""The fewest steps of a product with a packed parameter in vectors of 256 bits. They take twice as many instructions to
unpack a number: with the shapes of GPT-2, a row gains 3 to 5 % and many rows lose 14 %."""

MULTIPLIES_PAIRS, MULTIPLIES_TILES = "avx512bf16", "amx-bf16"
"""The features of CPUs that multiply bf16: pairs in words, as packed products make them, or tiles of a plain matrix."""


def packable(passes: Sequence[Pass], module: Module, targets: Sequence[Target]) -> tuple[Parameter, ...]:
    """Returns the parameters that `pack-floats` stores in 12 bits a number if their data permits it."""
    if PackFloats() not in passes or not all(map(looks_up_exponents, targets)):
        return ()
    fewest = FEWEST_STEPS if min(_lanes(targets)) < LANES else 0
    return tuple(single for p in module.parameters for single in _singles(p) if _may_be_packed(single, fewest))


def looks_up_exponents(target: Target) -> bool:
    """Returns whether products with packed parameters are faster on a CPU: without an instruction for a vector, each
    exponent is looked up alone."""
    if target.family is None or target.unit is None:
        return False
    unit = target.family.choose_unit(tuple(filter(target.has, target.family.used)))
    return find_exponents(unit.panels.lanes, unit.features) is not None


def with_packed_floats(
    passes: Sequence[Pass], parameters: Sequence[Parameter], targets: Sequence[Target], load: Load
) -> tuple[Pass, ...]:
    """Returns the passes; `pack-floats` without parameters gets those of `parameters`, which are packable, whose data
    permits it. `load` reads the data."""
    bfloats = all(t.has(MULTIPLIES_PAIRS) and not t.has(MULTIPLIES_TILES) for t in targets)
    escapes = tuple(f"{name}:{count}" for name, count in _counts(parameters, load))
    found = PackFloats(escapes, bfloats, COLUMN_BYTES * LANES // max(_lanes(targets)))
    return tuple(found if step == PackFloats() else step for step in passes)


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


def _counts(parameters: Sequence[Parameter], load: Load) -> Iterator[tuple[str, int]]:
    """Yields the names of the parameters that are packed, and the lengths of their lists of escapes."""
    for parameter in parameters:
        data = load(parameter)
        _, escapes = exponents_of(data)
        if escapes * NUMBERS_OF_AN_ESCAPE <= data.size:
            yield parameter.name, _rounded_up(escapes)


def _singles(parameter: Parameter) -> Iterator[Parameter]:
    """Yields the parameters of each iteration of the loops around a parameter."""
    return (parameter.at(indices) for indices in product(*map(range, parameter.counts)))


def _lanes(targets: Sequence[Target]) -> list[int]:
    """Returns the number of f32 in a vector of each target that has vectors."""
    units = (target.unit for target in targets)
    return [unit.panels.lanes for unit in units if unit is not None]


def _may_be_packed(parameter: Parameter, fewest: int) -> bool:
    type = parameter.type
    if parameter.formula is not None or type.dtype is not BF16 or type.rank != 2:
        return False
    steps = static_size(type.shape[1])
    return static_size(type.bytes) >= LEAST and steps >= fewest and steps % TOGETHER == 0


def unread_note(parameters: Sequence[Parameter]) -> str:
    """Returns the line for packable parameters whose data is absent."""
    count = counted(len(parameters), "weight")
    return f"{count} in bf16 could be stored in 12 bits a number; this depends on the data, which is absent"


def _rounded_up(count: int) -> int:
    """Returns a count with two significant bits, so that equal products of several weights share their code."""
    step = 1 << max(0, count.bit_length() - 2)
    return -(-count // step) * step
