"""Blocks of operators beside PyTorch eager, one thread, in four dtypes: `python tests/bench/blocks.py [NAME ...]`.

Names are those of `workloads/blocks.py`, or patterns. Both contenders of a block run in turn, round after round, in one
process, and the ratio is the median of the rounds' ratios: PyTorch's time over ours. With `--symbolic`, sizes are not
known when the model is compiled. With `--training`, a call is a step: the block, its gradients by the weights and by a
number in each input, and their updates. On a busy machine `--cpu-time` counts the time of the calling thread alone.
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
import torch
from beside_torch import (
    OURS,
    TORCH,
    Measured,
    Sweep,
    as_array,
    format_note,
    format_ratio,
    listed,
    measure,
    options,
    parse,
    tensor,
    torch_contender,
    use_one_core,
)
from measure import Contender
from nacre.dialect.diagnostics import NacreWarning
from nacre.dialect.types import BF16, F16, F32, F64, Array, DType
from workloads.blocks import BLOCKS, TRAINED, Block, shape_of

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


def step_contenders(block: Block, dtype: DType, folder: Path, *, symbolic: bool) -> list[Contender]:
    """Training steps of rate 0, which keep their parameters. The results are the gradients."""
    inputs, weights = make_arrays(block, dtype)
    trained = {**{n: np.zeros((), np.float32) for n in inputs}, **{n: w.astype(np.float32) for n, w in weights.items()}}
    parameters = {TRAINED + name: array for name, array in trained.items()}
    upstream = np.random.default_rng(1).standard_normal(shape_of(block.result)).astype(dtype.numpy)
    text, path = block.write_step(str(dtype), symbolic=symbolic), folder / "step.so"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NacreWarning)
        model = nacre.compile(text, path, weights=parameters, threads=1)
    session, arrays = model.session(), [*inputs.values(), upstream]
    still, one = np.float32(0), np.float32(1)

    def our_gradients(_: object) -> list[Array]:
        changed = model.session()
        changed.block(*arrays, one)
        return [array - changed.states[name] for name, array in parameters.items()]

    leaves = [tensor(array.copy()).requires_grad_() for array in trained.values()]
    *given, factor = map(tensor, arrays)

    def their_step() -> list[torch.Tensor]:
        operands = [leaf.to(factor.dtype) for leaf in leaves]
        read = [x + squared * x * x for x, squared in zip(given, operands, strict=False)]
        loss = (block.torch(*read, *operands[len(given) :]) * factor).sum().float()
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        found = [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, gradients, strict=True)]
        with torch.no_grad():
            torch._foreach_add_(leaves, found, alpha=0.0)
        return found

    return [
        Contender(OURS, lambda: session.block(*arrays, still), our_gradients),
        Contender(TORCH, their_step, lambda gradients: [as_array(each) for each in gradients]),
    ]


def measure_line(name: str, dtypes: Sequence[DType], sweep: Sweep, *, symbolic: bool, training: bool = False) -> Line:
    found, make = {}, step_contenders if training else contenders
    for dtype in dtypes:
        with TemporaryDirectory(prefix="nacre-bench-") as folder:
            pair = make(BLOCKS[name], dtype, Path(folder), symbolic=symbolic)
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
    parser.add_argument("--training", action="store_true", help="a call is a training step")
    parser.add_argument("--dtype", action="append", choices=[str(d) for d in DTYPES], help="only this one; repeatable")
    given = parse(parser, BLOCKS)
    dtypes = [dtype for dtype in DTYPES if not given.dtype or str(dtype) in given.dtype]
    use_one_core()
    lines = []
    print(f"{'':40} {'us':>9}  {'  '.join(f'{dtype!s:>6}' for dtype in dtypes)}")
    for name in given.chosen:
        if given.symbolic and not BLOCKS[name].sizes:
            continue
        line = measure_line(name, dtypes, given.sweep, symbolic=given.symbolic, training=given.training)
        lines.append(line)
        wrong = [str(dtype) for dtype, measured in line.measured.items() if measured.wrong]
        own = line.measured[dtypes[0]].timings[OURS].median * 1e6
        cells = "  ".join(f"{cell:>6}" for cell in _cells(line))
        print(f"{name:40} {own:9.1f}  {cells}{f'  differs: {wrong}' if wrong else ''}", flush=True)
    title = "Training steps of blocks" if given.training else "Blocks of operators"
    title += ", sizes known in the call" if given.symbolic else ""
    flags = {"training": given.training, "symbolic": given.symbolic, "cpu-time": given.cpu_time}
    chosen = [f"--dtype {dtype}" for dtype in given.dtype or ()]
    command = " ".join(["blocks.py", *(f"--{flag}" for flag, is_set in flags.items() if is_set), *chosen])
    if given.markdown:
        note = format_note(given.sweep, (TORCH,), command)
        given.markdown.write_text("\n".join(format_lines(lines, dtypes, title, note)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
