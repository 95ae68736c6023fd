"""Reads the files that a source names, with a diagnostic for each kind of failure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from . import syntax
from .context import Context, suggest
from .values import ERROR, FileScope, Poison

BYTES = 16 << 20


def find_file(
    context: Context, file: FileScope, node: syntax.String, further: Sequence[Path] = (), *, or_folder: bool = False
) -> Path | Poison:
    """Returns the file that the text names, relative to the source file or else to the additional folders. With
    `or_folder` it may be a folder of files."""
    report = context.reporter.error
    if file.folder is None:
        return report("missing-file", f'"{node.value}" cannot be read: the source is text without a folder', node.span)
    folders = (file.folder, *further)
    try:
        for folder in folders:
            path = folder / node.value
            if path.is_file() or (or_folder and path.is_dir()):
                return path
        first = folders[0] / node.value
        exists = first.exists()
        near = [p.name for p in first.parent.iterdir() if p.suffix == first.suffix] if first.parent.is_dir() else []
    except (OSError, ValueError) as error:
        return report("missing-file", f'"{node.value}" cannot be read: {_reason(error)}', node.span)
    if exists:
        return report("missing-file", f'"{node.value}" is not a file', node.span)
    help_text = suggest(first.name, near)
    return report("missing-file", f'there is no file "{node.value}"', node.span, help=help_text)


def read_file(
    context: Context, file: FileScope, node: syntax.String, further: Sequence[Path] = ()
) -> tuple[Path, bytes] | Poison:
    """Returns the file that the text names, with its content."""
    path = find_file(context, file, node, further)
    if path is ERROR:
        return ERROR
    try:
        with path.open("rb") as stream:
            data = stream.read(BYTES + 1)
    except OSError as error:
        message = f'"{node.value}" cannot be read: {_reason(error)}'
        return context.reporter.error("missing-file", message, node.span)
    if len(data) > BYTES:
        return context.reporter.error("too-large", f'"{node.value}" is larger than {BYTES >> 20} MiB', node.span)
    return path, data


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return (error.strerror or "the system refuses access").lower()
    return "this is not a valid file name"
