"""Diagnostics for undefined names: the nearest defined name, or the reason why a name is not visible."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from ....dialect.diagnostics import Note
from ....dialect.types import DTYPES
from . import static_functions, statics, syntax
from .argument_sizes import argument_sizes
from .context import Context, suggest
from .operators import BUILTINS
from .sugar import FORMS
from .synonyms import ADVICE, synonym
from .values import Frame, Poison

FUNCTIONS = frozenset({*BUILTINS, *FORMS, *static_functions.FUNCTIONS})
"""Every name that can be called without being defined."""


def counterpart(name: str) -> str:
    """Returns the equivalent function for a name of another library; empty if there is none."""
    return synonym(name, FUNCTIONS)


_KEYWORDS = frozenset({"true", "false", "None"})
_MODULES = frozenset({"torch", "nn", "np", "numpy", "jax", "jnp", "tf", "keras", "math", "functional"})
"""The modules of other libraries in which functions stand."""
_DIM = re.compile(r"[A-Z][A-Z0-9]*")


def _array_around(frame: Frame, name: syntax.Name) -> str | None:
    """Returns the array of instances whose hyper-parameters use a name, and whose index has none."""
    uses = [s for s in frame.block.body if isinstance(s, syntax.Use)] if frame.block is not None else []
    for use in uses:
        arrays = [item.name.name for item in use.instances if item.count is not None and item.variable is None]
        if arrays and use.block is not None and any(node is name for node in syntax.walk(use.block)):
            return arrays[0]
    return None


def _is_in_a_size(frame: Frame, name: str) -> bool:
    """Returns whether a size of an argument of the block is computed with a name."""
    if frame.block is None or isinstance(frame.block, syntax.Model):
        return False
    sizes = [dim for parameter in frame.block.parameters for dim in parameter.type.dims]
    return any(isinstance(node, syntax.Name) and node.name == name for dim in sizes for node in syntax.walk(dim))


def unknown_name(context: Context, frame: Frame, name: syntax.Name, what: str = "") -> Poison:
    """Reports an undefined name, with the nearest defined one."""
    notes: list[Note] = []
    if name.name in frame.gone:
        notes = [Note("it is only assigned inside a loop or branch and not visible after it", frame.gone[name.name])]
    elif frame.block is not None:
        later = [s for s in _definitions(frame.block.body) if s.name == name.name]
        is_before = bool(later) and later[0].span.line < name.span.line
        text = "`grad` does not read the values of the body" if is_before else "it is defined later"
        notes = [Note(text, later[0].span)] if later else []
    foreign = counterpart(name.name)
    if name.name in _MODULES:
        help_text = "functions are called without a module, as in `softmax(x)`"
    elif notes:
        help_text = ""
    elif name.name in ADVICE:
        help_text = ADVICE[name.name]
    elif foreign in FUNCTIONS or foreign in DTYPES or foreign in _KEYWORDS:
        help_text = f"did you mean `{foreign}`?"
    elif (array := _array_around(frame, name)) is not None:
        help_text = f"`use {array}[{name.name} in 0..n]` names the index of each instance"
    elif not _DIM.fullmatch(name.name) and _is_in_a_size(frame, name.name):
        help_text = f"a size that an argument determines stands alone, as in `f32[{name.name}]`"
    else:
        own = {**frame.file.names, **frame.names}
        help_text = suggest(name.name, own)
        # Names that the file defines come first; the many built-in names have to be closer.
        far = [*FUNCTIONS, *DTYPES, *statics.CONSTANTS]
        close = difflib.get_close_matches(name.name, far, 1, 0.75) if not help_text else []
        help_text = help_text or (f"did you mean `{close[0]}`?" if close else "")
        if not help_text and not what and (name.name == "_" or _DIM.fullmatch(name.name)):
            shown = "N" if name.name == "_" else name.name
            help_text = f"a symbolic size is declared as `dim {shown} in 1..64`"
            if frame.block is not None and not isinstance(frame.block, syntax.Model):
                help_text += f", and a size that an argument determines stands alone, as in `f32[{shown}]`"
    message = f"there is no {what or 'name'} `{name.name}`"
    if frame.block is not None and name.name in argument_sizes(frame.block, frame.file):
        block = frame.block.name.name
        message, help_text = f"`{name.name}` is known in a call of `{block}` alone", "an argument determines it"
        notes = []
    return context.reporter.error("unknown-name", message, name.span, notes=notes, help=help_text)


def _definitions(body: Sequence[syntax.Statement]) -> list[syntax.Name]:
    found: list[syntax.Name] = []
    for statement in body:
        if isinstance(statement, (syntax.Param, syntax.State)):
            found.append(statement.name)
        elif isinstance(statement, syntax.Use):
            found += [i.name for i in statement.instances]
        elif isinstance(statement, syntax.Assign):
            found += statement.targets
            found += _definitions(statement.value.body) if isinstance(statement.value, syntax.Repeat) else []
        elif isinstance(statement, syntax.Repeat):
            found += _definitions(statement.body)
    return found
