"""Definitions: of a name in this file or an imported one, of a file in quotes, of a parameter in its checkpoint.

A checkpoint is a binary file. Its tensors are listed in a text of the cache folder, one per line, and the definition of
a parameter is its line there.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from ....dialect.diagnostics import Span
from ....dialect.graph import Parameter
from ...base.cache_folder import cache_folder
from ...base.files import write_whole
from ...readers.language import syntax
from ...weights import Checkpoint
from .document import Document, contains


def locate(document: Document, line: int, column: int) -> tuple[Path, Span] | None:
    """Returns the file and the span of the definition of the name at a position."""
    study = document.readable or document.study
    occurrence = document.occurrence(line, column)
    if occurrence is not None and occurrence.definition != occurrence.span:
        return Path(occurrence.definition.file), occurrence.definition
    for node in syntax.walk(study.tree):
        if isinstance(node, syntax.String) and contains(node.span, line, column):
            path = document.path.parent / node.value
            if path.is_file():
                return path, Span(str(path), 1, 1, 1, 1)
        if isinstance(node, syntax.Param) and contains(node.span, line, column):
            return _in_checkpoint(document, node)
    return None


def _in_checkpoint(document: Document, node: syntax.Param) -> tuple[Path, Span] | None:
    checkpoint = document.open_checkpoint()
    if checkpoint is None:
        return None
    study = document.readable or document.study
    for parameter in study.program.parameters.values():
        if parameter.span == node.span and (key := first_key(parameter)) in checkpoint:
            path = list_checkpoint(checkpoint)
            line = list(checkpoint.names()).index(key) + 2
            return path, Span(str(path), line, 1, line, len(key) + 1)
    return None


def first_key(parameter: Parameter) -> str:
    """Returns the key of a parameter, or of the first one of an array."""
    return parameter.at(0 for _ in parameter.counts).key


def list_checkpoint(checkpoint: Checkpoint) -> Path:
    """Writes the list of the tensors of a checkpoint to the cache folder; returns its path."""
    lines = [f"# {checkpoint.path}"]
    for name, stored in checkpoint.tensors.items():
        shape = ", ".join(map(str, stored.shape))
        lines.append(f"{name}  {stored.dtype or stored.stored_as}[{shape}]  {stored.file.name} at {stored.offset:,}")
    text = "\n".join(lines) + "\n"
    folder = cache_folder() / "checkpoints"
    path = folder / f"{checkpoint.path.name}.{hashlib.sha256(text.encode()).hexdigest()[:12]}.txt"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    return path
