"""Opens a checkpoint of any format: a file with a known suffix, or a folder in the layout of Hugging Face."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from ...dialect.diagnostics import DiagnosticError
from .checkpoint import Checkpoint, checkpoint_error

_READERS: Mapping[str, tuple[str, str]] = {
    ".safetensors.index.json": ("safetensors_file", "read_sharded"),
    ".safetensors": ("safetensors_file", "read_safetensors"),
    ".gguf": ("gguf_file", "read_gguf"),
    ".npz": ("numpy_file", "read_npz"),
    ".npy": ("numpy_file", "read_npy"),
    ".bin.index.json": ("torch_file", "read_sharded_torch"),
    **dict.fromkeys((".pt", ".pth", ".ckpt", ".bin"), ("torch_file", "read_torch")),
}
"""For each suffix, a function from a path to a checkpoint, and its module, which is imported when a file is opened."""
_PREFERRED = (
    "model.safetensors.index.json",
    "model.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
)
"""The files that are tried first in a folder, before any other file with a known suffix."""

_PICKLES = (".pkl", ".pickle")


def _find_in_folder(folder: Path) -> Path:
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    for name in _PREFERRED:
        if name in names:
            return folder / name
    for suffix in _READERS:
        found = [name for name in names if name.endswith(suffix)]
        if len(found) == 1:
            return folder / found[0]
        if found:
            shown = ", ".join(f"`{name}`" for name in found[:4]) + (", ..." if len(found) > 4 else "")
            raise checkpoint_error(
                "checkpoint-unknown", f"`{folder}` has several checkpoints: {shown}", "name one of the files"
            )
    if any(name.endswith(_PICKLES) for name in names):
        raise checkpoint_error(
            "checkpoint-unknown", f"`{folder}` has pickled weights only, which are not read", _PICKLE_HELP
        )
    raise checkpoint_error(
        "checkpoint-unknown", f"`{folder}` has no checkpoint", f"known suffixes are {', '.join(_READERS)}"
    )


_MISSING_HELP = "`--checkpoint`, or `weights=` in Python, names another checkpoint"
_PICKLE_HELP = "convert them to safetensors; reading a pickle would execute code of the file"


def open_tensors(path: str | os.PathLike[str]) -> Checkpoint:
    """Reads the headers of a tensor file that is not a checkpoint, such as inputs. Raises DiagnosticError."""
    if not Path(path).exists():
        raise checkpoint_error("missing-file", f"there is no file `{path}`")
    return open_checkpoint(path)


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Reads the headers of a checkpoint. Raises DiagnosticError if it is missing, of unknown format, or damaged."""
    path = Path(path)
    try:
        if not path.exists():
            raise checkpoint_error("checkpoint-missing", f"the checkpoint `{path}` does not exist", _MISSING_HELP)
        file = _find_in_folder(path) if path.is_dir() else path
        for suffix, (module, function) in _READERS.items():
            if file.name.endswith(suffix):
                opened = getattr(import_module(f".{module}", __package__), function)(file)
                assert isinstance(opened, Checkpoint), opened
                return opened
    except DiagnosticError:
        raise
    except OSError as error:
        raise checkpoint_error("checkpoint-missing", f"cannot read `{path}`: {error.strerror or error}") from error
    except ValueError as error:  # a path with a null character
        raise checkpoint_error("checkpoint-missing", f"cannot read `{path}`: {error}") from error
    if file.name.endswith(_PICKLES):
        raise checkpoint_error("checkpoint-unknown", f"`{path}` has pickled weights, which are not read", _PICKLE_HELP)
    raise checkpoint_error(
        "checkpoint-unknown", f"`{path}` has no known suffix", f"known suffixes are {', '.join(_READERS)}"
    )
