"""Blocks of operators beside PyTorch eager, one thread, in four dtypes: `python tests/bench/blocks.py [NAME ...]`.

Names are those of `workloads/blocks.py`, or patterns. Both contenders of a block run in turn, round after round, in one
process, and the ratio is the median of the rounds' ratios: PyTorch's time over ours. With `--symbolic`, sizes are not
known when the model is compiled. On a busy machine `--cpu-time` counts the time of the calling thread alone.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import nacre
import numpy as np
from beside_torch import (
    OURS,
    TORCH,
    Measured,
    Sweep,
    format_note,
    format_ratio,
    listed,
    measure,
    options,
    parse,
    torch_contender,
    use_one_core,
)
from measure import Contender
from nacre.dialect.diagnostics import NacreWarning
from nacre.dialect.types import BF16, F16, F32, F64, Array, DType
from workloads.blocks import BLOCKS, Block, shape_of

DTYPES = (F32, BF16, F16, F64)
UNITS = 16.0
"""Results of blocks may be further apart than those of operators: PyTorch rounds after each operator."""


@dataclass(frozen=True)
class Line:
    name: str
    measured: Mapping[DType, Measured]


def make_arrays(block: Block, dtype: DType) -> tuple[dict[str, Array], dict[str, Array]]:
    """The inputs, and the weights, which keep the variance of what they multiply."""
    random = np.random.default_rng(0)
    inputs = {name: random.standard_normal(shape_of(shape)) for name, shape in block.inputs.items()}
    shapes = {name: shape_of(shape) for name, shape in block.weights.items()}
    weights = {n: random.standard_normal(s) / np.prod(s[1:] or s) ** 0.5 for n, s in shapes.items()}

    def narrow(given: dict[str, Array]) -> dict[str, Array]:
        return {name: array.astype(dtype.numpy) for name, array in given.items()}

    return narrow(inputs), narrow(weights)


def contenders(block: Block, dtype: DType, folder: Path, *, symbolic: bool) -> list[Contender]:
    inputs, weights = make_arrays(block, dtype)
    path = folder / "block.so"
    with warnings.catch_warnings():
        # The table states what the dtype costs.
        warnings.simplefilter("ignore", NacreWarning)
        model = nacre.compile(block.write(str(dtype), symbolic=symbolic), path, weights=weights or None, threads=1)
    arrays = list(inputs.values())
    return [
        Contender(OURS, lambda: model(*arrays), listed),
        torch_contender(block.torch, [*arrays, *weights.values()]),
    ]


def measure_line(name: str, dtypes: Sequence[DType], sweep: Sweep, *, symbolic: bool) -> Line:
    found = {}
    for dtype in dtypes:
        with TemporaryDirectory(prefix="nacre-bench-") as folder:
            pair = contenders(BLOCKS[name], dtype, Path(folder), symbolic=symbolic)
            found[dtype] = measure(pair, sweep, units=UNITS)
    return Line(name, found)


def format_lines(lines: Sequence[Line], dtypes: Sequence[DType], title: str, note: str) -> Iterator[str]:
    """A table in markdown, in the order of the blocks."""
    yield f"# {title}"
    yield ""
    yield note
    yield ""
    yield f"| block | ours in {dtypes[0]} | {' | '.join(map(str, dtypes))} |"
    yield f"|---|---|{'---|' * len(dtypes)}"
    for line in lines:
        own = line.measured[dtypes[0]].timings[OURS].median * 1e6
        yield f"| {line.name} | {own:.1f} us | {' | '.join(_cells(line))} |"
    for line in lines:
        wrong = [str(dtype) for dtype, measured in line.measured.items() if measured.wrong]
        if wrong:
            yield ""
            yield f"`{line.name}`: the results in {', '.join(wrong)} differ from those of {TORCH}."


def _cells(line: Line) -> list[str]:
    return [format_ratio(measured.ratio(TORCH)) for measured in line.measured.values()]


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--symbolic", action="store_true", help="sizes are known when a model is called")
    parser.add_argument("--dtype", action="append", choices=[str(d) for d in DTYPES], help="only this one; repeatable")
    given = parse(parser, BLOCKS)
    dtypes = [dtype for dtype in DTYPES if not given.dtype or str(dtype) in given.dtype]
    use_one_core()
    lines = []
    print(f"{'':40} {'us':>9}  {'  '.join(f'{dtype!s:>6}' for dtype in dtypes)}")
    for name in given.chosen:
        if given.symbolic and not BLOCKS[name].sizes:
            continue
        line = measure_line(name, dtypes, given.sweep, symbolic=given.symbolic)
        lines.append(line)
        wrong = [str(dtype) for dtype, measured in line.measured.items() if measured.wrong]
        own = line.measured[dtypes[0]].timings[OURS].median * 1e6
        cells = "  ".join(f"{cell:>6}" for cell in _cells(line))
        print(f"{name:40} {own:9.1f}  {cells}{f'  differs: {wrong}' if wrong else ''}", flush=True)
    title = "Blocks of operators, sizes known in the call" if given.symbolic else "Blocks of operators"
    command = f"blocks.py{' --symbolic' if given.symbolic else ''}{' --cpu-time' if given.cpu_time else ''}"
    if given.markdown:
        note = format_note(given.sweep, (TORCH,), command)
        given.markdown.write_text("\n".join(format_lines(lines, dtypes, title, note)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
