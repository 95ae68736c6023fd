"""Checks unused blocks, as far as possible without values for their hyper-parameters.

A hyper-parameter becomes an unknown size. Only errors that exist for every value are reported; shape errors, which may
disappear for some sizes, are not.
"""

from __future__ import annotations

from ....dialect.dims import Symbol
from ....dialect.types import F32
from . import syntax
from .argument_sizes import unknown_sizes
from .calls import match_results
from .context import Context, LimitError, Program
from .shapes import resolve_pattern
from .statements import run_body
from .values import ERROR, AnyValue, Binding, BlockValue, FileScope, Frame, Hyper, InstancePath, Kind
from .writer import Writer

ADMITTED = frozenset(
    {
        "bad-pattern",
        "dtype-mismatch",
        "duplicate-name",
        "fixed-name",
        "misplaced-dots",
        "misplaced-statement",
        "missing-return",
        "recursive-block",
        "unknown-attribute",
        "unknown-dtype",
        "unknown-key",
        "unknown-name",
        "unsupported-dtype",
        "wrong-arguments",
        "wrong-hypers",
    }
)
"""The codes of errors that do not depend on the value of a hyper-parameter."""


def check_unused_blocks(context: Context, scope: FileScope) -> None:
    """Elaborates every block of the file that no model uses, and discards the result."""
    for item in scope.tree.items:
        is_block = isinstance(item, syntax.Block) and not isinstance(item, syntax.Model)
        if is_block and id(item) not in context.program.elaborated:
            assert isinstance(item, syntax.Block)
            _check(context, BlockValue(item, scope))


def _check(context: Context, value: BlockValue) -> None:
    block = value.block
    reporter, program, writer = context.reporter, context.program, context.writer
    context.program = Program(dict(program.dims), elaborated=program.elaborated, folders=program.folders)
    context.writer = Writer(count=writer.count)
    reporter.admitted = ADMITTED
    try:
        dtypes = _dtype_names(block)
        bindings: dict[str, Binding] = {}
        for hyper in block.hypers:
            found: AnyValue = F32 if hyper.name.name in dtypes else Symbol(hyper.name.name, 1).size
            if hyper.default is not None:
                found = context.evaluate(hyper.default, Frame(value.file, dict(bindings)))
            bindings[hyper.name.name] = Binding(found, Kind.HYPER, hyper.name.span)
        hypers = {name: Hyper(b.value, b.span, name) for name, b in bindings.items()}
        bindings.update(unknown_sizes(block, value.file))
        frame = Frame(value.file, bindings, block, InstancePath(), hypers)
        for parameter in block.parameters:
            pattern = resolve_pattern(context, frame, parameter.type)
            bound: AnyValue = ERROR
            if pattern is not ERROR:
                frame.dots = () if pattern.dots else frame.dots
                type = pattern.fill(())
                assert type is not None
                bound = context.writer.fresh(type)
                context.writer.declare(bound, frame, parameter.type)
            frame.names[parameter.name.name] = Binding(bound, Kind.ARGUMENT, parameter.name.span)
        match_results(context, frame, block, run_body(context, frame, block.body))
    except LimitError:
        pass  # a limit that only the placeholders reach
    finally:
        reporter.admitted = None
        writer.count = context.writer.count
        context.program, context.writer = program, writer


def _dtype_names(block: syntax.Block) -> set[str]:
    """Returns the names that the block uses as dtypes."""
    types = [p.type for p in block.parameters] + [r.type for r in block.results]
    types += [s.type for s in block.body if isinstance(s, (syntax.Param, syntax.State))]
    return {type.dtype.name for type in types}
