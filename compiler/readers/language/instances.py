"""Turns blocks into instances and parameters into tensors: everything with a path in the checkpoint.

An instance is a block, values for its hyper-parameters, and its path. Nothing is elaborated here; the body of an
instance is elaborated when it is called. Parameters are merged by name, and must agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ....dialect.diagnostics import Note, Span
from ....dialect.dims import Poly, Size, bounds, symbols
from . import syntax
from .context import ARRAY_COUNT, Context, suggest
from .statics import demand_integer, demand_truth
from .unknown import counterpart
from .values import (
    ERROR,
    AnyValue,
    Binding,
    BlockValue,
    Frame,
    Hyper,
    Instance,
    InstanceArray,
    Kind,
    ModuleValue,
    Poison,
    contains_error,
    contains_tensor,
    describe,
)


def resolve_block(context: Context, frame: Frame, path: Sequence[syntax.Name]) -> BlockValue | Poison:
    """Returns the block that a name, or `module.name`, refers to. In a file with a training step, the blocks of the
    library's updates are known, so that a copied update finds the blocks that it uses."""
    report, library = context.reporter.error, context.program.optimizers
    value: AnyValue = ERROR
    file = frame.file
    for number, name in enumerate(path):
        binding = frame.lookup(name.name) if number == 0 else file.names.get(name.name)
        if binding is None:
            kept = library.names.get(name.name) if library is not None and len(path) == 1 else None
            if kept is not None and isinstance(kept.value, BlockValue):
                return kept.value
            if file.lacks_blocks:
                return ERROR  # of the import, which is reported
            blocks = [n for n, b in file.names.items() if isinstance(b.value, (BlockValue, ModuleValue))]
            help_text = suggest(name.name, blocks)
            function = counterpart(name.name)
            if not help_text and function:
                help_text = f"`{function}` is a function; a block declares the parameters that it takes"
            return report("unknown-name", f"there is no block `{name.name}`", name.span, help=help_text)
        value = binding.value
        if value is ERROR:
            return ERROR
        if binding.kind is Kind.MODEL:
            return report("not-a-block", f"`{name.name}` is a model: only blocks have instances", name.span)
        last = number == len(path) - 1
        if isinstance(value, ModuleValue) and not last:
            file = value.file
        elif not isinstance(value, BlockValue) or not last:
            return report("not-a-block", f"`{name.name}` is {describe(value)}, not a block", name.span)
    assert isinstance(value, BlockValue), value
    return value


def bind_hypers(
    context: Context,
    frame: Frame,
    block: BlockValue,
    given: Sequence[syntax.Argument] | None,
    span: Span,
    settings: Mapping[str, Hyper] | None = None,
) -> dict[str, Hyper] | Poison:
    """Returns the hyper-parameters of a block by name, from the arguments in `<...>`, from settings and from
    defaults."""
    report = context.reporter.error
    declared = [h.name.name for h in block.block.hypers]
    hypers: dict[str, Hyper] = dict(settings or {})
    failed = False
    for number, argument in enumerate(given or ()):
        value = context.evaluate(argument.value, frame)
        where = argument.value.span
        if argument.name is not None:
            name = argument.name.name
        elif number < len(declared):
            name = declared[number]
        else:
            count = f"{len(declared)} hyper-parameter{'s' if len(declared) != 1 else ''}"
            message = f"`{block.name}` has {count}, not {len(given or ())}"
            report("wrong-hypers", message, where, notes=[_definition(block)])
            return ERROR
        if name not in declared:
            assert argument.name is not None
            message = f"`{block.name}` has no hyper-parameter `{name}`"
            notes = [_definition(block)]
            report("wrong-hypers", message, argument.name.span, notes=notes, help=suggest(name, declared))
            failed = True
        elif name in hypers:
            report("wrong-hypers", f"`{name}` of `{block.name}` is given twice", where)
            failed = True
        elif contains_tensor(value) or isinstance(value, (Instance, InstanceArray)):
            message = f"the hyper-parameter `{name}` must be known at compile time, not {describe(value)}"
            report("not-constant", message, where)
            failed = True
        elif isinstance(value, Poly) and context.writer.depends_on_loop(value):
            message = f"the hyper-parameter `{name}` cannot depend on a loop variable"
            report("not-constant", message, where)
            failed = True
        else:
            failed |= contains_error(value)
            hypers[name] = Hyper(value, where, context.reporter.text(where))
    missing = [h for h in block.block.hypers if h.name.name not in hypers and h.default is None]
    if missing and not failed:
        names = ", ".join(f"`{h.name.name}`" for h in missing)
        form = f"{block.name}<{', '.join(declared)}>"
        is_model = isinstance(block.block, syntax.Model)
        help_text = (
            f"hyper-parameters are given between `<` and `>`: `use name = {form}`"
            if given is None and not is_model
            else f"`nacre compile --set {missing[0].name.name}=...` gives the value"
            if is_model
            else ""
        )
        message = f"`{block.name}` is missing hyper-parameters: {names}"
        report("wrong-hypers", message, span, notes=[_definition(block)], help=help_text)
    if failed or missing:
        return ERROR
    for hyper in block.block.hypers:
        if hyper.name.name not in hypers:
            assert hyper.default is not None
            value = context.evaluate(hyper.default, Frame(block.file, hyper_bindings(block, hypers)))
            text = context.reporter.text(hyper.default.span)
            hypers[hyper.name.name] = Hyper(value, hyper.default.span, text, by_default=True)
    return hypers


def _definition(block: BlockValue) -> Note:
    return Note(f"the definition of `{block.name}`", block.block.name.span)


def hyper_bindings(block: BlockValue, hypers: Mapping[str, Hyper]) -> dict[str, Binding]:
    spans = {h.name.name: h.name.span for h in block.block.hypers}
    return {name: Binding(hyper.value, Kind.HYPER, spans[name]) for name, hyper in hypers.items()}


def is_present(context: Context, frame: Frame, condition: syntax.Expression | None) -> bool:
    """Returns whether a `param` or `use` with this condition exists."""
    if condition is None:
        return True
    truth = demand_truth(context, context.evaluate(condition, frame), condition.span)
    return truth is ERROR or truth


def make_instances(context: Context, frame: Frame, use: syntax.Use) -> list[tuple[syntax.Name, AnyValue]]:
    """Returns the instances of one `use`, by name."""
    used = use.block if is_present(context, frame, use.condition) else use.otherwise
    if used is None:
        return [(item.name, None) for item in use.instances]
    block = resolve_block(context, frame, used.path)
    shared: dict[str, Hyper] | Poison = ERROR
    if block is not ERROR and any(item.variable is None for item in use.instances):
        shared = bind_hypers(context, frame, block, used.hypers, used.span)
    made: list[tuple[syntax.Name, AnyValue]] = []
    for item in use.instances:
        value: AnyValue = ERROR
        count: int | Poison | None = None
        if item.count is not None:
            count = _array_count(context, frame, item.count)
        if block is not ERROR and count is not ERROR:
            path = None if frame.path is None else frame.path.child(item.name.name)
            if count is not None and item.variable is not None:
                value = _indexed_array(context, frame, used, Instance(block, {}, path, used.span), item, count)
            elif shared is not ERROR:
                instance = Instance(block, shared, path, used.span)
                value = instance if count is None else InstanceArray(instance, count)
        made.append((item.name, value))
    return made


def _indexed_array(
    context: Context,
    frame: Frame,
    used: syntax.BlockReference,
    instance: Instance,
    item: syntax.Instance,
    count: int,
) -> InstanceArray | Poison:
    """Returns the array of `use layer[i in 0..n] = Layer<2**i>`. `instance` has no hyper-parameters yet."""
    assert item.variable is not None and item.start is not None, item
    start = demand_integer(context, context.evaluate(item.start, frame), item.start.span, "the first index")
    if start is not ERROR and start:
        return context.reporter.error("bad-range", "the indices of an array of instances begin at 0", item.start.span)
    name = item.variable.name
    hidden = frame.names.get(name)
    each: list[Mapping[str, Hyper]] = []
    try:
        for index in range(max(count, 1)):
            frame.names[name] = Binding(index, Kind.LOOP, item.variable.span)
            hypers = bind_hypers(context, frame, instance.block, used.hypers, used.span)
            if hypers is ERROR:
                return ERROR
            each.append(hypers)
    finally:
        frame.names.pop(name, None)
        if hidden is not None:
            frame.names[name] = hidden
    values = [{key: hyper.value for key, hyper in hypers.items()} for hypers in each]
    differ = any(found != values[0] for found in values)
    return InstanceArray(replace(instance, hypers=each[0]), count, tuple(each) if differ else ())


def _array_count(context: Context, frame: Frame, node: syntax.Expression) -> int | Poison:
    count = demand_integer(context, context.evaluate(node, frame), node.span, "the number of instances")
    if count is not ERROR and not 0 <= count <= ARRAY_COUNT:
        return context.reporter.error("bad-range", f"the number of instances cannot be {count}", node.span)
    return count


def element(context: Context, array: InstanceArray, index: AnyValue, span: Span) -> Instance | Poison:
    """One instance of an array, by a number or the variable of a loop."""
    report = context.reporter.error
    if index is ERROR:
        return ERROR
    size: Size
    if isinstance(index, int) and not isinstance(index, bool):
        size = index + array.count if index < 0 else index
    elif isinstance(index, Poly) and context.writer.depends_on_scan(index):
        message = "an instance cannot be selected by the variable of a `scan`"
        help_text = "`repeat` has a number of iterations that is known at compile time, and selects instances"
        return report("not-constant", message, span, help=help_text)
    elif isinstance(index, Poly) and all(s.name in context.writer.loop_names() for s in symbols(index)):
        size = index
    else:
        message = f"an instance is selected by a number or a loop variable, not by {describe(index)}"
        return report("bad-index", message, span)
    low, high = bounds(size)
    if low < 0 or high >= array.count:
        problem = f"there is no {index}" if low == high else f"the index ranges over {low}..{high + 1}"
        message = f"there are {array.count} instances of `{array.element.block.name}`, {problem}"
        label = f"expected 0..{array.count}" if array.count else ""
        return report("index-out-of-range", message, span, label)
    path = array.element.path
    found = replace(array.element, path=None if path is None else path.element(array.count, size))
    if not array.varying:
        return found
    if not isinstance(size, int):
        help_text = "a loop runs over such an array where it names it: `repeat layer in layers`, or `layers[i]`"
        message = "the instances of this array have different hyper-parameters, and are selected by numbers alone"
        return report("not-constant", message, span, help=help_text)
    return replace(found, hypers=array.varying[size])
