"""Facts about the checkpoints of a model that are not errors: files that do not exist, and tensors that nothing reads.

Only headers are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...dialect.wrapping import counted
from ..base.shortened import shortened
from ..weights import open_checkpoint
from ..weights.header_checks import elements
from .parameters import absent_checkpoints, needed_checkpoints, used_parameters
from .source import SourceModel

_LISTED = 5


def weight_notes(source_model: SourceModel) -> Iterator[str]:
    """Yields a line for each checkpoint file that is absent or has tensors that no model reads. Raises DiagnosticError
    if a file is damaged."""
    absent = {str(path) for path in absent_checkpoints(source_model).values() if path is not None}
    for name in sorted(absent):
        yield f"there is no file `{name}`: the parameters are not compared with it"
    used = used_parameters(source_model.module)
    read: dict[Path, set[str]] = {}
    for model, path in needed_checkpoints(source_model).items():
        if isinstance(path, Path) and str(path) not in absent:
            read.setdefault(path, set()).update(e.key for parameter in used[model] for e in elements(parameter))
    for path, keys in read.items():
        unread = [name for name in open_checkpoint(path).names() if name not in keys]
        if unread:
            yield f"nothing reads {counted(len(unread), 'tensor')} of `{path}`: {shortened(unread, _LISTED)}"
    yield from initial_value_notes(source_model)


def initial_value_notes(source_model: SourceModel) -> Iterator[str]:
    """Yields a line for parameters that a given checkpoint does not hold, and that have values in the model file."""
    if any(weights is not None for weights in source_model.weights.values()):
        formulas = {p.name: p.formula for p in source_model.module.parameters if p.formula is not None}
        begun = [name for name, formula in formulas.items() if not formula.parameters]
        if begun:
            verb = "begins" if len(begun) == 1 else "begin"
            names = shortened(begun, _LISTED)
            yield f"no checkpoint holds {counted(len(begun), 'tensor')}, which {verb} with values of the file: {names}"
