"""Parameters: a `param` becomes a tensor with a path, which is its default key in the checkpoint.

They are merged by name, and must agree. No checkpoint is read here.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ....dialect.diagnostics import Note
from ....dialect.dims import Poly, Size, symbols
from ....dialect.graph import Parameter, Value, fill_braces
from ....dialect.types import TensorType
from . import syntax
from .context import Context, suggest
from .instances import hyper_bindings, is_present, make_instances
from .shapes import is_static, resolve_type
from .trained import initial_value, is_trained, keep_trained
from .values import ERROR, AnyValue, Frame, Instance, InstancePath, Poison

ReadState = Callable[[Context, Frame, syntax.State], Value | Poison]


def define_parameter(
    context: Context, frame: Frame, node: syntax.Param, path: InstancePath | None = None
) -> Value | Poison:
    """Returns the tensor of a `param`, and adds it to the parameters of the module."""
    report = context.reporter.error
    resolved = resolve_stored(context, frame, node, path, "parameters")
    if isinstance(resolved, Poison):
        return ERROR
    base, type = resolved
    if not is_static(type):
        message = f"the parameter `{node.name.name}` has the size {next(s for s in type.shape if isinstance(s, Poly))}"
        return report(
            "symbolic-parameter", message, node.type.span, "sizes of parameters must be known at compile time"
        )
    transpose = _permutation(context, node, type.rank)
    source = None if node.key is None else stored_key(context, frame, node.key, base)
    if source is None and context.program.prefix:
        source = f"{context.program.prefix}{base.child(node.name.name).pattern}"
    if transpose is ERROR or source is ERROR:
        return ERROR
    own = base.child(node.name.name)
    name, counts, indices = own.pattern, own.counts, own.indices
    fixed = [i for i in indices if isinstance(i, int)]
    if len(fixed) == len(indices):
        name, counts, indices = fill_braces(name, fixed), (), ()
        source = None if source is None else fill_braces(source, fixed)
        context.program.paths[name] = own
    trained = is_trained(context, own.pattern, name, type)
    if trained and indices:
        # The loop around it is elaborated again, iteration by iteration: see `unroll_states`.
        context.writer.stateful = node.span
        return _stand_in(context, frame, node, type)
    formula = initial_value(context, frame, node, name, source or name, type)
    if formula is ERROR:
        return ERROR
    if formula is not None and indices:
        context.writer.stateful = node.span
        return _stand_in(context, frame, node, type)
    parameter = Parameter(name, type, counts, source, transpose, node.span, formula)
    if formula is not None:
        parameter = Parameter(name, type, span=node.span, formula=formula)
    first = context.program.parameters.setdefault(name, parameter)
    if (first.type, first.source, first.transpose, first.formula) != (
        type,
        parameter.source,
        parameter.transpose,
        formula,
    ):
        notes = [Note(f"elsewhere it is {first.type} from `{first.key}`", first.span)]
        return report("parameter-conflict", f"`{name}` means two different tensors", node.span, notes=notes)
    if trained:
        return keep_trained(context, frame, node, first, own.pattern)
    value = context.writer.parameter(name, type, indices, base.scope, node.span)
    context.writer.declare(value, frame, node.type)
    return value


def _stand_in(context: Context, frame: Frame, node: syntax.Param, type: TensorType) -> Value:
    """Returns a value of the type in a region that is elaborated again."""
    value = context.writer.fresh(type)
    context.writer.declare(value, frame, node.type)
    return value


def resolve_stored(
    context: Context, frame: Frame, node: syntax.Param | syntax.State, path: InstancePath | None, kind: str
) -> tuple[InstancePath, TensorType] | Poison:
    """Returns the instance that a parameter or a state belongs to, and its type; `kind` is the plural of the noun."""
    dots = frame.dots if isinstance(node, syntax.State) else None
    base, type = path or frame.path, resolve_type(context, frame, node.type, dots)
    if isinstance(type, Poison):
        return ERROR
    if base is not None:
        return base, type
    name = frame.block.name.name if frame.block is not None else "the block"
    message = f"`{name}` has {kind} and must be instantiated"
    notes = [Note(f"one of the {kind}", node.span)]
    help_text = f"`use name = {name}...`, and then `name(...)`"
    return context.reporter.error("needs-instance", message, frame.call or node.span, notes=notes, help=help_text)


def _permutation(context: Context, node: syntax.Param, rank: int) -> tuple[int, ...] | Poison | None:
    """Returns the permutation of the checkpoint's axes to the parameter's axes."""
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
        message = f"{', '.join(map(str, axes))} is not a permutation of the {rank} axes of `{node.name.name}`"
        return context.reporter.error("bad-transpose", message, span)
    return axes


def stored_key(context: Context, frame: Frame, key: syntax.String, base: InstancePath) -> str | Poison:
    """Returns the key in the checkpoint with `{}` for each index of an array.

    `{path}` is the path of the instance, with its indices. `{}` is the next index. `{i}` is the index with the loop
    variable `i`, else the value of a hyper-parameter `i`, else the next index: a block may use the loop variables of
    its callers here, although they are not in its scope. Integers and integer hyper-parameters may be added to it:
    `{i+1}`, `{i+first}`.
    """
    report = context.reporter.error
    used: list[int] = []
    loops = [_loop_name(index) for index in base.indices]
    pieces = re.split(r"(\{[^{}]*\})", key.value)
    for number, piece in enumerate(pieces):
        if number % 2 == 0:
            if "{" in piece or "}" in piece:
                return report("bad-key", "a brace in the key is unmatched", key.span)
            continue
        if piece == "{path}" and _hyper(frame, "path") is None:
            pieces[number] = base.pattern
            used += range(len(base.indices))
            continue
        name, *added = (term.strip() for term in piece[1:-1].split("+"))
        offsets = [int(term) if term.isdecimal() else _hyper(frame, term) for term in added]
        if ERROR in offsets:
            return ERROR
        if not all(isinstance(offset, int) and not isinstance(offset, bool) and offset >= 0 for offset in offsets):
            message = f"only known integers can be added to `{name}` in the key of a tensor"
            return report("bad-key", message, key.span)
        offset = sum(offset for offset in offsets if isinstance(offset, int))
        value = _hyper(frame, name)
        if name in loops:
            used.append(loops.index(name))
        elif value is ERROR:
            return ERROR
        elif isinstance(value, int) and not isinstance(value, bool):
            pieces[number] = str(value + offset)
            continue
        elif isinstance(value, str) and not added:
            pieces[number] = value.replace("{", "").replace("}", "")
            continue
        else:
            used.append(len(used))
        pieces[number] = f"{{+{offset}}}" if offset else "{}"
    if used != list(range(len(base.indices))):
        count = len(base.indices)
        arrays = f"{count} array{'s' if count != 1 else ''}"
        owner = f"the instance `{base.pattern}`" if base.pattern else "the model"
        label = f"{owner} is inside {arrays}: one pair of braces for each, in this order"
        message = "the key does not depend on the index of the enclosing array"
        if len(used) > count:
            message = "the key has more braces than there are enclosing arrays"
        return report("bad-key", message, key.span, label)
    if not base.pattern:
        pieces = ["".join(pieces).removeprefix(".")] if pieces[:2] == ["", ""] else pieces
    return context.program.prefix + "".join(pieces)


def _hyper(frame: Frame, name: str) -> AnyValue:
    binding = frame.names.get(name)
    return None if binding is None else binding.value


def _loop_name(index: Size) -> str | None:
    found = sorted(s.name for s in symbols(index))
    return found[0].rstrip("'") if len(found) == 1 else None


def member(context: Context, instance: Instance, name: syntax.Name, read_state: ReadState) -> AnyValue:
    """Returns `instance.name`: a shared parameter or state of the instance, or an instance inside it."""
    block = instance.block
    bindings = hyper_bindings(block, instance.hypers)
    frame = Frame(block.file, bindings, block.block, instance.path, instance.hypers)
    known: list[str] = []
    for statement in block.block.body:
        if isinstance(statement, syntax.Param):
            known.append(statement.name.name)
            if statement.name.name == name.name:
                if not is_present(context, frame, statement.condition):
                    return None
                return define_parameter(context, frame, statement)
        elif isinstance(statement, syntax.State):
            known.append(statement.name.name)
            if statement.name.name == name.name:
                return read_state(context, frame, statement)
        elif isinstance(statement, syntax.Use):
            known += [i.name.name for i in statement.instances]
            if name.name in known[-len(statement.instances) :]:
                return dict((n.name, v) for n, v in make_instances(context, frame, statement))[name.name]
    message = f"`{block.name}` has no parameter, state or instance `{name.name}`"
    return context.reporter.error("unknown-attribute", message, name.span, help=suggest(name.name, known))
