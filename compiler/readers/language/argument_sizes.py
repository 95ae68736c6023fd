"""Sizes that the arguments of a block determine: `H` and `W` in `x: f32[B, C, H, W]`.

A name that stands alone as a size of an argument, and that is defined nowhere, is bound by each call to the size of
that axis. The rest of the signature and the body may use it. A model has none: its sizes are dims, with a range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ....dialect.diagnostics import Span
from ....dialect.dims import Size, Symbol
from ....dialect.graph import Value
from ....dialect.types import DTYPES
from . import syntax
from .context import Context
from .statics import CONSTANTS
from .values import ERROR, AnyValue, Binding, FileScope, Frame, Given, Hyper, Kind


def argument_sizes(block: syntax.Block, file: FileScope) -> dict[str, Span]:
    """Returns the names of the sizes that arguments determine, each with its first source location."""
    if isinstance(block, syntax.Model):
        return {}
    known = {hyper.name.name for hyper in block.hypers} | file.names.keys() | DTYPES.keys() | CONSTANTS.keys()
    found: dict[str, Span] = {}
    for parameter in block.parameters:
        for dim in parameter.type.dims:
            if isinstance(dim, syntax.Name) and dim.name not in known:
                found.setdefault(dim.name, dim.span)
    return found


def bind_sizes(context: Context, inner: Frame, parameter: syntax.Parameter, given: Given | None) -> list[str]:
    """Binds the sizes that this argument is the first to have; returns their names.

    An argument that does not fit leaves sizes of unknown value, for a message with their names.
    """
    assert inner.block is not None
    sizes = argument_sizes(inner.block, inner.file)
    declared = parameter.type.dims
    shape = None if given is None else _shape(given.value)
    if shape is not None and len(shape) < sum(not isinstance(dim, syntax.Dots) for dim in declared):
        shape = None
    bound: list[str] = []
    for axis in range(-1, -len(declared) - 1, -1):
        dim = declared[axis]
        if not isinstance(dim, syntax.Name) or dim.name not in sizes or dim.name in inner.names:
            continue
        size: Size = Symbol(dim.name, 0).size
        if shape is not None:
            size = shape[axis]
        span = dim.span if given is None else given.span
        inner.names[dim.name] = Binding(size, Kind.SIZE, dim.span)
        inner.hypers = {**inner.hypers, dim.name: Hyper(size, span, context.reporter.text(span))}
        bound.append(dim.name)
    return bound


def forget_sizes(inner: Frame, names: list[str]) -> None:
    """Makes sizes unknown, after an error in the argument that determines them."""
    for name in names:
        inner.names[name] = replace(inner.names[name], value=ERROR)


def unknown_sizes(block: syntax.Block, file: FileScope) -> Mapping[str, Binding]:
    """Returns sizes without a value for a block that nothing calls."""
    return {name: Binding(Symbol(name, 1).size, Kind.SIZE, span) for name, span in argument_sizes(block, file).items()}


def _shape(value: AnyValue) -> tuple[Size, ...] | None:
    """Returns the shape of a tensor, or of nested lists of numbers; None for another value."""
    if isinstance(value, Value):
        return value.type.shape
    shape: list[Size] = []
    while isinstance(value, tuple):
        shape.append(len(value))
        value = value[0] if value else 0.0
    return tuple(shape) if isinstance(value, (int, float)) else None
