"""Checks unused blocks, as far as possible without values for their hyper-parameters.

In a block without hyper-parameters, whose arguments have known sizes, shapes are checked too. In the others, a
hyper-parameter becomes an unknown size. Only errors that exist for every value are reported; shape errors, which may
disappear for some sizes, are not.
"""

from __future__ import annotations

from ....dialect.dims import Symbol
from ....dialect.types import F32
from . import syntax
from .argument_sizes import argument_sizes, unknown_sizes
from .calls import run_block
from .context import Context, LimitError, Program
from .shapes import resolve_pattern
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

OF_SIZES = frozenset(
    {
        "bad-attribute",
        "bad-axis",
        "bad-gradient",
        "bad-index",
        "branch-type",
        "carried-type",
        "index-out-of-range",
        "negative-size",
        "not-a-size",
        "not-a-tensor",
        "not-constant",
        "not-divisible",
        "rank-mismatch",
        "repeat-type",
        "shape-mismatch",
        "state-type",
        "wrong-results",
        "wrong-targets",
    }
)
"""The codes of further errors, which depend on sizes. Those that depend on the path of an instance are not among
them."""


def check_unused_blocks(context: Context, scope: FileScope) -> None:
    """Elaborates every block of the file that no model uses, and discards the result."""
    for item in scope.tree.items:
        is_block = isinstance(item, syntax.Block) and not isinstance(item, syntax.Model)
        if is_block and id(item) not in context.program.elaborated:
            assert isinstance(item, syntax.Block)
            _check(context, BlockValue(item, scope))


def is_complete(block: syntax.Block, file: FileScope) -> bool:
    """Returns whether each call of the block has the same sizes, so that its shapes can be checked without a call."""
    dims = [dim for parameter in block.parameters for dim in parameter.type.dims]
    is_fixed = not any(isinstance(dim, syntax.Dots) for dim in dims)
    return is_fixed and not block.hypers and not argument_sizes(block, file)


def unchecked_blocks(context: Context, scope: FileScope) -> list[str]:
    """Returns the names of the blocks that nothing uses, and whose sizes only a use determines."""
    blocks = [i for i in scope.tree.items if isinstance(i, syntax.Block) and not isinstance(i, syntax.Model)]
    unused = [block for block in blocks if id(block) not in context.program.elaborated]
    return [block.name.name for block in unused if not is_complete(block, scope)]


def _check(context: Context, value: BlockValue) -> None:
    block = value.block
    reporter, program, writer = context.reporter, context.program, context.writer
    context.program = Program(dict(program.dims), elaborated=program.elaborated, folders=program.folders)
    context.writer = Writer(count=writer.count)
    reporter.admitted = ADMITTED | OF_SIZES if is_complete(block, value.file) else ADMITTED
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
        run_block(context, frame, block)
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
