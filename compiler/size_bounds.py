"""Limits on sizes: dims that a graph must keep within 64 bits, and weights within the bounds of a build."""

from __future__ import annotations

from collections.abc import Sequence

from ..dialect.diagnostics import Diagnostic, DiagnosticError, Note
from ..dialect.dims import bounds, format_size, symbols
from ..dialect.graph import Module, walk
from ..dialect.ops import OPERATORS
from ..dialect.requirements import find_impossible
from ..passes.fusion.recompute import Recompute
from ..passes.manager import Pass, PassManager
from ..passes.pass_list import parse_pipeline
from ..passes.simplify.check_indices import has_unchecked_indices
from .lower.module import Lowered, lower_module
from .model.source import SourceModel
from .options import Options
from .weight_sizes import WeightSizes, bound_of, measure_weights, too_large, with_most_bytes


def check_sizes(source_model: SourceModel) -> None:
    """Raises DiagnosticError for a size that exceeds 64 bits in every call."""
    errors: list[Diagnostic] = []
    for function in source_model.module.functions:
        found = find_impossible(function)
        if found is not None:
            size, node = found
            message = f"the size {format_size(size)} is at least {max(map(abs, bounds(size)))}, which exceeds 64 bits"
            notes = tuple(Note(f"the dims are: {symbol}") for symbol in sorted(symbols(size)))
            errors.append(Diagnostic("size-too-large", message, node.span if node else function.span, notes=notes))
    if errors:
        raise DiagnosticError(errors, source_model.sources)


def bounded_passes(source_model: SourceModel, options: Options) -> tuple[Pass, ...]:
    """Returns the passes of the level, limited to as many transformed weights as the size bound allows. Raises
    DiagnosticError if the other weights alone exceed the bound."""
    passes, bound = _with_recompute(parse_pipeline(options.pipeline), source_model), options.size
    budget = bound_of(source_model.budgets, source_model.module)
    bounds = [each for each in (bound, budget) if each is not None]
    if not bounds or options.rewrite_limit is not None:
        return passes
    sizes, tried = _sizes_after(passes, source_model, options), passes
    limit = min(each.bytes(sizes.parameters) for each in bounds)
    most = sizes.transformed
    while sizes.weights > limit and most > 0:
        fitting = sizes.transformed - (sizes.weights - limit)
        # Every iteration must lower `most`; if a smaller value does not reduce the transforms, none is stored.
        most = fitting if 0 < fitting < most else 0
        tried = with_most_bytes(passes, most)
        sizes = _sizes_after(tried, source_model, options)
    if bound is not None and sizes.weights > bound.bytes(sizes.parameters):
        raise too_large(sizes, bound)
    return tried


def _with_recompute(passes: tuple[Pass, ...], source_model: SourceModel) -> tuple[Pass, ...]:
    """Returns the passes with one for each limit on the memory of a function, after `cse` and before `fuse`."""
    limits = [b for b in source_model.budgets if b.metric == "memory" and b.comparison in ("<", "<=")]
    position = next((number for number, step in enumerate(passes) if step.name == "fuse"), len(passes))
    fuses = position < len(passes)
    added = (
        Recompute(b.model, int(b.limit), tuple(f"{n}:{size}" for n, size in b.dims.items()), fuses) for b in limits
    )
    return (*passes[:position], *added, *passes[position:])


def _sizes_after(passes: Sequence[Pass], source_model: SourceModel, options: Options) -> WeightSizes:
    return sizes_of(source_model, lower_graph(PassManager(passes).run(source_model.module), options))


def sizes_of(source_model: SourceModel, lowered: Lowered) -> WeightSizes:
    """Returns the sizes of the stored weights relative to the parameters of the model as it was written."""
    return measure_weights((source_model.written or source_model).module, lowered)


def lower_graph(module: Module, options: Options) -> Lowered:
    """Lowers a graph. Raises DiagnosticError if it still contains operators that cannot be lowered."""
    check_lowerable(module)
    return lower_module(module, pack=options.panels, debug=options.debug, for_device=options.family.device)


def check_lowerable(module: Module) -> None:
    """Raises DiagnosticError if the graph still contains operators that cannot be lowered."""
    if any(node.op == "repeat" for function in module.functions for node in walk(function.body)):
        help_text = "`unroll-repeat` unrolls loops unless the graph becomes too large"
        raise DiagnosticError([Diagnostic("repeat-left", "a loop remains after the passes", help=help_text)])
    if any(OPERATORS[n.op].has("blocked") for function in module.functions for n in walk(function.body)):
        help_text = "`expand-block-quantized` and `fold-parameters` replace them by quantized values and scales"
        message = "block-quantized values remain after the passes"
        raise DiagnosticError([Diagnostic("blocks-left", message, help=help_text)])
    if any(OPERATORS[n.op].has("packed") for function in module.functions for n in walk(function.body)):
        message, help_text = "packed floats remain to be computed after the passes", "`fold-parameters` computes them"
        raise DiagnosticError([Diagnostic("planes-left", message, help=help_text)])
    if any(has_unchecked_indices(function.body) for function in module.functions):
        message = "unchecked indices remain after the passes"
        raise DiagnosticError([Diagnostic("indices-unchecked", message, help="`check-indices` is the first pass")])
