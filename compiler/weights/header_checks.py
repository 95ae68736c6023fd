"""Checks from headers, before data is read, that a checkpoint holds all parameters of a model in the right shapes.

A float may be stored in another float dtype than the declared one: it is converted to the declared dtype, and quantized
if that is a block dtype. A block-quantized tensor has its own dtype or is dequantized to a float; it is not quantized
again. Integers and floats are not converted to each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...dialect.diagnostics import Diagnostic, Note
from ...dialect.graph import Parameter
from ...dialect.types import DType
from ..base.shortened import shortened_code
from . import Checkpoint

REPORTED_KEYS = 4
"""The maximum number of missing tensors, and of tensors that do not fit, that are reported one by one."""
REPORTED_ELEMENTS = 3
"""The maximum number of elements that are named if several elements of a parameter array have the same error."""


def stored_shape(parameter: Parameter) -> tuple[int, ...]:
    """Returns the shape that the checkpoint must hold: the declared shape before its transpose."""
    shape = [s for s in parameter.type.shape if isinstance(s, int)]
    assert len(shape) == parameter.type.rank, parameter
    if parameter.transpose is None:
        return tuple(shape)
    stored = [0] * len(shape)
    for axis, source in enumerate(parameter.transpose):
        stored[source] = shape[axis]
    return tuple(stored)


def elements(parameter: Parameter) -> Iterator[Parameter]:
    """Yields the single parameters of a parameter array."""
    for indices in itertools.product(*(range(count) for count in parameter.counts)):
        yield parameter.at(indices)


def converts(stored: DType | None, declared: DType) -> bool:
    if stored is None or stored.is_blocked:
        return stored == declared or (stored is not None and declared.is_float)
    becomes_float = declared.is_float or declared.is_blocked
    return stored == declared or (stored.is_float and becomes_float)


def check_parameters(parameters: Sequence[Parameter], checkpoint: Checkpoint) -> list[Diagnostic]:
    """Returns the differences between a model and a checkpoint. Errors of an array are reported a few times at most,
    and a shape or a dtype that many parameters do not have, once."""
    errors: list[Diagnostic] = []
    unlike: dict[str, list[tuple[str, Diagnostic]]] = {"tensor-shape": [], "tensor-dtype": []}
    other = _other_model(parameters, checkpoint)
    for parameter in parameters:
        found: list[Diagnostic] = []
        for element in elements(parameter):
            if other is not None and element.key not in checkpoint:
                continue
            checkpoint_error = _check(element, checkpoint)
            if checkpoint_error is not None:
                found.append(checkpoint_error)
        if found and found[0].code in unlike:
            unlike[found[0].code].append((parameter.name, found[0]))
        errors += found[:REPORTED_ELEMENTS]
        if len(found) > REPORTED_ELEMENTS:
            rest = len(found) - REPORTED_ELEMENTS
            first = found[0]
            errors.append(Diagnostic(first.code, f"and {rest} more of `{parameter.name}`", first.span))
    for code, several in unlike.items():
        if len(several) > REPORTED_KEYS:
            _, first = several[0]
            note = Note(f"{shortened_code([name for name, _ in several[1:]], REPORTED_ELEMENTS)} have other ones too")
            errors = [replace(first, notes=(*first.notes, note)), *(e for e in errors if e.code != code)]
    return errors if other is None else [other, *errors]


def _other_model(parameters: Sequence[Parameter], checkpoint: Checkpoint) -> Diagnostic | None:
    """Returns one error for all missing tensors if a prefix of their keys differs, or if many parameters have none, or
    all of several, with no key that is near."""
    missing = [e for p in parameters for e in elements(p) if e.key not in checkpoint]
    prefix = _common_prefix([e.key for e in missing], checkpoint) if len(missing) > 1 else ""
    if prefix:
        message = f"`{checkpoint.path.name}` is missing `{missing[0].key}` and {len(missing) - 1} more tensors"
        return Diagnostic("missing-tensor", message, missing[0].span, help=prefix)
    without = sum(any(e.key not in checkpoint for e in elements(p)) for p in parameters)
    hopeless = 1 < without == len(parameters) and not any(checkpoint.closest(e.key) for e in missing)
    if without <= REPORTED_KEYS and not hopeless:
        return None
    message = f"`{checkpoint.path.name}` has no tensor {shortened_code([e.key for e in missing], REPORTED_ELEMENTS)}"
    label = f"{len(missing)} of {sum(1 for p in parameters for _ in elements(p))} parameters are missing"
    help_text = "the checkpoint is empty"
    for first in checkpoint.names()[:1]:
        help_text = f"another checkpoint, or another `prefix` of its keys, may be meant: its first key is `{first}`"
    return Diagnostic("missing-tensor", message, missing[0].span, label, help=help_text)


def _common_prefix(keys: Sequence[str], checkpoint: Checkpoint) -> str:
    """Returns the help text if the checkpoint holds all keys, but with an added or missing prefix."""
    names, first = list(checkpoint.names()), keys[0]
    more = [n.removesuffix(first) for n in names if n.endswith(f".{first}")]
    less = [first.removesuffix(n) for n in names if first.endswith(f".{n}")]
    for prefix in more:
        if all(prefix + key in checkpoint for key in keys):
            return f"all of them exist with the prefix `{prefix}`"
    for prefix in less:
        if all(key.startswith(prefix) and key.removeprefix(prefix) in checkpoint for key in keys):
            return f"all of them exist without the prefix `{prefix}`"
    return ""


def _check(parameter: Parameter, checkpoint: Checkpoint) -> Diagnostic | None:
    key, span = parameter.key, parameter.span
    named = f"`{parameter.name}`" if key == parameter.name else f"`{parameter.name}` (`{key}` in the checkpoint)"
    if key not in checkpoint:
        close = checkpoint.closest(key)
        help_text = f"the closest keys are {', '.join(f'`{name}`' for name in close)}" if close else ""
        return Diagnostic("missing-tensor", f"`{checkpoint.path.name}` has no tensor `{key}`", span, help=help_text)
    dtype, shape = checkpoint.info(key)
    expected = stored_shape(parameter)
    stored = f"{checkpoint.stored_as(key) if dtype is None else dtype}{list(shape)}"
    note = Note(f"`{checkpoint.path.name}` holds {stored}")
    if shape != expected:
        help_text = ""
        is_matrix = len(shape) == len(expected) >= 2
        if parameter.transpose is None and is_matrix and shape == (*expected[:-2], expected[-1], expected[-2]):
            help_text = "it fits if transposed: `param ... transpose`"
        elif parameter.transpose is not None and shape == parameter.type.shape:
            help_text = "it fits without `transpose`"
        wanted = f"{parameter.type.dtype}{list(expected)}"
        message = f"{named} must be {wanted} in the checkpoint, not {stored}"
        return Diagnostic("tensor-shape", message, span, help=help_text)
    if not converts(dtype, parameter.type.dtype):
        message = f"{named} is declared {parameter.type.dtype}, and the stored dtype cannot be converted to it"
        return Diagnostic("tensor-dtype", message, span, notes=(note,))
    return None
