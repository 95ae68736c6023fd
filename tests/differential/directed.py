"""Graphs written by hand for the same checks as random ones: one function, run with many sizes of its dims."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence

from nacre.dialect.dims import Symbol, parse_size
from nacre.dialect.graph import Function, Module, Node, Parameter, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import DTYPES, Array, TensorType

from .check import check_graphs
from .maker import Binding, Graph
from .native import Level

# Not a dim of random graphs: every size that a case asks for is in range.
DIMS = {name: Symbol(name, 0, 4096) for name in ("M", "N", "K", "T", "S", "L", "B")}
# What LLVM makes of vectors is the same for both; without it, the second target takes half the time.
LEVELS = (Level(2), Level(2, "x86-64-v3", quick=True))
Write = Callable[..., Value | Sequence[Value]]


def parse_type(text: str) -> TensorType:
    """`f32[M, 33]`; a leading `*` tells a parameter and is not part of the type."""
    name, _, shape = text.lstrip("*").rstrip("]").partition("[")
    return TensorType(DTYPES[name], tuple(parse_size(s, DIMS) for s in shape.split(",")) if shape else ())


def case(
    name: str,
    write: Write,
    *types: str,
    sizes: Sequence[Binding] = ({},),
    given: Mapping[int, Callable[[Sequence[int]], Array]] | None = None,
) -> Graph:
    """A graph of what `write` makes of a builder and a value for each type, run for each of `sizes`."""
    b = Builder(OPERATORS)
    arguments: list[Value] = []
    parameters: list[Parameter] = []
    values: list[Value] = []
    for i, text in enumerate(types):
        type = parse_type(text)
        if text.startswith("*"):
            parameters.append(Parameter(f"{name}.w{i}", type))
            values.append(b.fresh(type))
            b.nodes.append(Node("parameter", (), (values[-1],), (("name", parameters[-1].name),)))
        else:
            values.append(Value(f"x{i}", type))
            arguments.append(values[-1])
    written = write(b, *values)
    results = (written,) if isinstance(written, Value) else tuple(written)
    function = Function(name, tuple(arguments), tuple(b.nodes), results)
    module = Module(name, function.symbols(), tuple(parameters), (function,))
    named = {f"x{i}": make for i, make in (given or {}).items()}
    return Graph(zlib.crc32(name.encode()), module, tuple(sizes), {}, named)


def assert_right(graphs: Sequence[Graph], level: Level) -> None:
    assert len({g.name for g in graphs}) == len(graphs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        failures = check_graphs(graphs, level)
    lines = [f"{f.name}: {f.kind}: {f.message} with {f.binding}, {f.inputs} inputs" for f in failures]
    assert not failures, f"{len(failures)} of {len(graphs)} fail at {level}:\n" + "\n".join(lines)
