"""Blocks become instances, parameters become tensors: everything that has a path in the checkpoint.

An instance is a block, values for its hyper-parameters, and the path that leads to it. Nothing is elaborated here; an
instance is only a promise until it is called. Parameters are merged by name, and must agree where they meet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...dialect.diagnostics import Note, Span
from ...dialect.dims import Poly, Size, bounds, symbols
from ...dialect.graph import Parameter, Value, fill_braces
from . import syntax
from .context import ARRAY_COUNT, Context, suggest
from .shapes import is_static, resolve_type
from .statics import demand_integer
from .values import (
    ERROR,
    AnyValue,
    Binding,
    BlockValue,
    Frame,
    Hyper,
    Instance,
    InstanceArray,
    InstancePath,
    Kind,
    ModuleValue,
    Poison,
    contains_error,
    contains_tensor,
    describe,
)


def resolve_block(context: Context, frame: Frame, path: Sequence[syntax.Name]) -> BlockValue | Poison:
    """The block that a name, or `module.name`, stands for."""
    report = context.reporter.error
    value: AnyValue = ERROR
    file = frame.file
    for number, name in enumerate(path):
        binding = frame.lookup(name.name) if number == 0 else file.names.get(name.name)
        if binding is None:
            blocks = [n for n, b in file.names.items() if isinstance(b.value, (BlockValue, ModuleValue))]
            help_text = suggest(name.name, blocks)
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
    context: Context, frame: Frame, block: BlockValue, given: Sequence[syntax.Argument] | None, span: Span
) -> dict[str, Hyper] | Poison:
    """The hyper-parameters of a block by name, from what stands in `<...>` and from defaults."""
    report = context.reporter.error
    declared = [h.name.name for h in block.block.hypers]
    hypers: dict[str, Hyper] = {}
    failed = False
    for number, argument in enumerate(given or ()):
        value = context.evaluate(argument.value, frame)
        place = argument.value.span
        if argument.name is not None:
            name = argument.name.name
        elif number < len(declared):
            name = declared[number]
        else:
            count = f"{len(declared)} hyper-parameter{'s' if len(declared) != 1 else ''}"
            report("wrong-hypers", f"`{block.name}` has {count}, not {len(given or ())}", place)
            return ERROR
        if name not in declared:
            assert argument.name is not None
            message = f"`{block.name}` has no hyper-parameter `{name}`"
            report("wrong-hypers", message, argument.name.span, help=suggest(name, declared))
            failed = True
        elif name in hypers:
            report("wrong-hypers", f"`{name}` of `{block.name}` is given twice", place)
            failed = True
        elif contains_tensor(value) or isinstance(value, (Instance, InstanceArray)):
            message = f"the hyper-parameter `{name}` must be known at compile time, not {describe(value)}"
            report("not-constant", message, place)
            failed = True
        elif isinstance(value, Poly) and context.writer.depends_on_loop(value):
            message = f"the hyper-parameter `{name}` cannot depend on the variable of a loop"
            report("not-constant", message, place)
            failed = True
        else:
            failed |= contains_error(value)
            hypers[name] = Hyper(value, place, context.reporter.text(place))
    missing = [h for h in block.block.hypers if h.name.name not in hypers and h.default is None]
    if missing and not failed:
        names = ", ".join(f"`{h.name.name}`" for h in missing)
        note = Note(f"the definition of `{block.name}`", block.block.name.span)
        report("wrong-hypers", f"`{block.name}` lacks a value for {names}", span, notes=[note])
    if failed or missing:
        return ERROR
    for hyper in block.block.hypers:
        if hyper.name.name not in hypers:
            assert hyper.default is not None
            value = context.evaluate(hyper.default, Frame(block.file, hyper_bindings(block, hypers)))
            text = context.reporter.text(hyper.default.span)
            hypers[hyper.name.name] = Hyper(value, hyper.default.span, text, by_default=True)
    return hypers


def hyper_bindings(block: BlockValue, hypers: Mapping[str, Hyper]) -> dict[str, Binding]:
    spans = {h.name.name: h.name.span for h in block.block.hypers}
    return {name: Binding(hyper.value, Kind.HYPER, spans[name]) for name, hyper in hypers.items()}


def make_instances(context: Context, frame: Frame, use: syntax.Use) -> list[tuple[syntax.Name, AnyValue]]:
    """The instances of one `use`, by name."""
    block = resolve_block(context, frame, use.block.path)
    hypers = ERROR if block is ERROR else bind_hypers(context, frame, block, use.block.hypers, use.block.span)
    made: list[tuple[syntax.Name, AnyValue]] = []
    for item in use.instances:
        value: AnyValue = ERROR
        count: int | Poison | None = None
        if item.count is not None:
            count = _array_count(context, frame, item.count)
        if block is not ERROR and hypers is not ERROR and count is not ERROR:
            path = None if frame.path is None else frame.path.child(item.name.name)
            instance = Instance(block, hypers, path, use.block.span)
            value = instance if count is None else InstanceArray(instance, count)
        made.append((item.name, value))
    return made


def _array_count(context: Context, frame: Frame, node: syntax.Expression) -> int | Poison:
    count = demand_integer(context, context.evaluate(node, frame), node.span, "the number of instances")
    if count is not ERROR and not 0 <= count <= ARRAY_COUNT:
        return context.reporter.error("bad-range", f"there cannot be {count} instances", node.span)
    return count


def element(context: Context, array: InstanceArray, index: AnyValue, span: Span) -> Instance | Poison:
    """One instance of an array, by a number or the variable of a loop."""
    report = context.reporter.error
    if index is ERROR:
        return ERROR
    size: Size
    if isinstance(index, int) and not isinstance(index, bool):
        size = index + array.count if index < 0 else index
    elif isinstance(index, Poly) and all(s.name in context.writer.loop_names() for s in symbols(index)):
        size = index
    else:
        message = f"an instance is chosen by a number or a loop variable, not by {describe(index)}"
        return report("bad-index", message, span)
    low, high = bounds(size)
    if low < 0 or high >= array.count:
        message = f"there are {array.count} instances of `{array.element.block.name}`, there is no {index}"
        if low != high:
            message = f"there are {array.count} instances of `{array.element.block.name}`, not {low}..{high + 1}"
        label = f"expected 0..{array.count}" if array.count else ""
        return report("index-out-of-range", message, span, label)
    path = array.element.path
    return replace(array.element, path=None if path is None else path.element(array.count, size))


# --- parameters ---


def define_parameter(
    context: Context, frame: Frame, node: syntax.Param, path: InstancePath | None = None
) -> Value | Poison:
    """The tensor of a `param`, which becomes a parameter of the module."""
    report = context.reporter.error
    base = path or frame.path
    type = resolve_type(context, frame, node.type)
    if type is ERROR:
        return ERROR
    if base is None:
        name = frame.block.name.name if frame.block is not None else "the block"
        message = f"`{name}` has parameters, and those have a name only in an instance"
        notes = [Note("one of the parameters", node.span)]
        help_text = f"`use name = {name}...`, and then `name(...)`"
        return report("needs-instance", message, frame.call or node.span, notes=notes, help=help_text)
    if not is_static(type):
        message = f"the parameter `{node.name.name}` has the size {next(s for s in type.shape if isinstance(s, Poly))}"
        return report("symbolic-parameter", message, node.type.span, "sizes of parameters are known at compile time")
    transpose = _permutation(context, node, type.rank)
    source = None if node.key is None else _source(context, frame, node.key, base)
    if transpose is ERROR or source is ERROR:
        return ERROR
    place = base.child(node.name.name)
    name, counts, indices = place.pattern, place.counts, place.indices
    fixed = [i for i in indices if isinstance(i, int)]
    if len(fixed) == len(indices):
        name, counts, indices = fill_braces(name, fixed), (), ()
        source = None if source is None else fill_braces(source, fixed)
        context.program.paths[name] = place
    parameter = Parameter(name, type, counts, source, transpose, node.span)
    first = context.program.parameters.setdefault(name, parameter)
    if (first.type, first.source, first.transpose) != (type, source, transpose):
        notes = [Note(f"elsewhere it is {first.type} from `{first.key}`", first.span)]
        return report("parameter-conflict", f"`{name}` means two different tensors", node.span, notes=notes)
    return context.writer.parameter(name, type, indices, base.pattern, node.span)


def _permutation(context: Context, node: syntax.Param, rank: int) -> tuple[int, ...] | Poison | None:
    """The axes of what the checkpoint holds, in the order of the parameter's own."""
    if node.transpose is None:
        return None
    if node.transpose == ():
        if rank < 2:
            message = f"`transpose` swaps the last two axes, and `{node.name.name}` has rank {rank}"
            return context.reporter.error("bad-transpose", message, node.span)
        return (*range(rank - 2), rank - 1, rank - 2)
    axes = tuple(axis.value for axis in node.transpose)
    if sorted(axes) != list(range(rank)):
        span = node.transpose[0].span.to(node.transpose[-1].span)
        message = f"{', '.join(map(str, axes))} is no order of the {rank} axes of `{node.name.name}`"
        return context.reporter.error("bad-transpose", message, span)
    return axes


def _source(context: Context, frame: Frame, key: syntax.String, base: InstancePath) -> str | Poison:
    """The key in the checkpoint with `{}` for each index of an array.

    `{}` is the next index, `{i}` the one whose loop variable is `i`, else the value of a hyper-parameter `i`, else,
    again, the next index: blocks do not see the loop variables of those who call them, but may name them.
    """
    report = context.reporter.error
    used: list[int] = []
    loops = [_loop_name(index) for index in base.indices]
    pieces = re.split(r"(\{[^{}]*\})", key.value)
    for number, piece in enumerate(pieces):
        if number % 2 == 0:
            if "{" in piece or "}" in piece:
                return report("bad-key", "a brace in the key of a tensor has no partner", key.span)
            continue
        name = piece[1:-1].strip()
        binding = frame.names.get(name)
        value = binding.value if binding is not None else None
        if name in loops:
            used.append(loops.index(name))
        elif value is ERROR:
            return ERROR
        elif isinstance(value, (int, str)) and not isinstance(value, bool):
            pieces[number] = str(value).replace("{", "").replace("}", "")
            continue
        else:
            used.append(len(used))
        pieces[number] = "{}"
    if used != list(range(len(base.indices))):
        count = len(base.indices)
        arrays = f"{count} array{'s' if count != 1 else ''}"
        label = f"the instance `{base.pattern}` lies in {arrays}: one pair of braces for each, in this order"
        message = "the key of the tensor does not say which element of an array it belongs to"
        if len(used) > count:
            message = "the key of the tensor has braces for an index that there is not"
        return report("bad-key", message, key.span, label)
    return "".join(pieces)


def _loop_name(index: Size) -> str | None:
    found = sorted(s.name for s in symbols(index))
    return found[0].rstrip("'") if len(found) == 1 else None


def member(context: Context, instance: Instance, name: syntax.Name) -> AnyValue:
    """`instance.name`: a parameter of it, to share one, or an instance inside it."""
    block = instance.block
    bindings = hyper_bindings(block, instance.hypers)
    frame = Frame(block.file, bindings, block.block, instance.path, instance.hypers)
    known: list[str] = []
    for statement in block.block.body:
        if isinstance(statement, syntax.Param):
            known.append(statement.name.name)
            if statement.name.name == name.name:
                return define_parameter(context, frame, statement)
        elif isinstance(statement, syntax.Use):
            known += [i.name.name for i in statement.instances]
            if name.name in known[-len(statement.instances) :]:
                return dict((n.name, v) for n, v in make_instances(context, frame, statement))[name.name]
    message = f"`{block.name}` has no parameter or instance `{name.name}`"
    return context.reporter.error("unknown-attribute", message, name.span, help=suggest(name.name, known))
