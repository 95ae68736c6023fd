"""Trained parameters: in a training step, and in every model of the same file, they are states.

A state that begins with the value of its parameter keeps the parameter's name, so a step and a model that use the same
block under the same path share it. Loops over arrays of instances with trained parameters are elaborated for each
iteration, since a region cannot carry states.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import replace

from ....dialect.diagnostics import Span
from ....dialect.graph import Formula, Parameter, State, Value
from ....dialect.types import TensorType
from ....passes.selection import Selector
from . import syntax
from .context import Context
from .formulas import formula_writer, read_formula
from .values import ERROR, Binding, Frame, Kind, Poison
from .writer import KeptState

SEED = "seed"
"""The name, in an initial value, of an integer that differs from tensor to tensor."""


def is_trained(context: Context, pattern: str, name: str, type: TensorType) -> bool:
    """Returns whether a parameter is a state. `name` is the pattern `pattern` with all known indices filled in."""
    program = context.program
    if context.writer.formula:
        return False
    if program.frozen is None:
        return name in program.trained or (name == pattern and "{}" in name and pattern in program.trained_arrays)
    return type.dtype.is_differentiable and not any(s.matches("", [name]) for s in program.frozen)


def keep_trained(context: Context, frame: Frame, node: syntax.Param, parameter: Parameter, pattern: str) -> Value:
    """Returns the value of a trained parameter before the call. No loop may surround the parameter."""
    program, writer, name = context.program, context.writer, parameter.name
    program.trained.add(name)
    program.trained_arrays.add(pattern)
    program.states.setdefault(name, State(name, parameter.type, name, parameter.span))
    if name not in writer.states:
        value = Value(writer.name(name), parameter.type)
        writer.states[name] = KeptState(value, value)
        writer.declare(value, frame, node.type)
    return writer.states[name].argument


def read_frozen(step: syntax.Train) -> list[Selector]:
    """Returns the selectors of the parameters that a training step does not change."""
    lines = (line for s in step.body if isinstance(s, syntax.Minimize) for line in s.lines)
    return [Selector(p.value) for line in lines if isinstance(line, syntax.Freeze) for p in line.patterns]


def with_seed(frame: Frame, name: str, span: Span) -> Frame:
    """Returns the frame for the initial value of a tensor, in which `seed` is defined unless the name has a meaning
    already."""
    inner = replace(frame, names=dict(frame.names))
    if frame.lookup(SEED) is None:
        inner.names[SEED] = Binding(zlib.crc32(name.encode()), Kind.CONSTANT, span)
    return inner


def _is_stored(context: Context, key: str) -> bool:
    keys = context.program.stored_keys
    if not context.program.stored or keys is None:
        return context.program.stored
    if "{" not in key:
        return key in keys
    pattern = re.compile(re.sub(r"\\\{.*?\\\}", r"\\d+", re.escape(key)))
    return any(pattern.fullmatch(each) for each in keys)


def initial_value(
    context: Context, frame: Frame, node: syntax.Param, name: str, key: str, type: TensorType
) -> Formula | Poison | None:
    """Returns the computation of a parameter that no checkpoint holds; None if it has no initial value, or if a
    checkpoint holds its key."""
    if node.initial is None or _is_stored(context, key):
        return None
    inner = with_seed(frame, name, node.initial.span)
    saved, context.writer = context.writer, formula_writer(context)
    try:
        formula = read_formula(context, inner, node.initial, type)
        if formula is ERROR:
            return ERROR
        value = formula.result
        leading = type.rank - value.type.rank
        if value.type.dtype != type.dtype or leading < 0 or type.shape[leading:] != value.type.shape:
            message = f"the parameter is {type} and cannot begin with {value.type}"
            help_text = "an initial value has the dtype of the parameter and the sizes of its last axes"
            if value.type.dtype != type.dtype:
                help_text = context.reporter.conversion(node.initial.span, type.dtype)
            return context.reporter.error("state-type", message, node.initial.span, help=help_text)
        if leading:
            value = context.writer.emit("broadcast_to", (value,), {"shape": type.shape}, span=node.initial.span)[0]
        body = context.writer.bodies[0].all_nodes
        # Without spans, so that two declarations of one parameter agree.
        return Formula((), tuple(replace(inside, span=None, scope="") for inside in body), value)
    finally:
        saved.count = context.writer.count
        context.writer = saved
