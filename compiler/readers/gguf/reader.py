"""Reads a GGUF file as a model: its architecture names the source, its metadata are the configuration of the source.

The graph of a source reads parameters under the names of the file, behind the name of the instance `decoder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ....dialect.graph import Module, Parameter
from ...model.source import SourceModel, WeightSource
from ...weights.gguf_file import open_gguf
from ..language import load_module
from .configuration import Family, Gpt2, Llama, bad_gguf, read_metadata
from .resources import TOKENIZER, with_resource
from .stored_codes import with_stored_codes
from .vocabulary import tokenizer_document

_FOLDER = Path(__file__).with_name("architectures")
_INSTANCE = "decoder."


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model source, and the function that makes its configuration of metadata."""

    source: str
    family: Family


ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture("llama.nacre", Llama(neighbours=True)),
    "mistral": Architecture("llama.nacre", Llama(neighbours=True)),
    "qwen2": Architecture("llama.nacre", Llama()),
    "qwen3": Architecture("llama.nacre", Llama()),
    "gpt2": Architecture("gpt2.nacre", Gpt2()),
    "gemma": Architecture("llama.nacre", Llama(gelu=True, embedding_scaled=True)),
}
"""The sources by the name of the architecture in a file."""


def read_gguf_model(path: Path, weights: WeightSource | None = None) -> SourceModel:
    """Reads the model of a file. Raises DiagnosticError."""
    if weights is not None:
        raise bad_gguf(f"`{path}` holds its own weights, and no others can be given")
    try:
        opened = open_gguf(path)
    except OSError as error:
        raise DiagnosticError(
            [Diagnostic("missing-file", f"`{path}` cannot be read: {error.strerror or error}")]
        ) from error
    metadata = read_metadata(opened.header)
    architecture = ARCHITECTURES.get(metadata.architecture)
    if architecture is None:
        known = ", ".join(ARCHITECTURES)
        raise bad_gguf(f"`{path}` has the unknown architecture `{metadata.architecture}`", f"there are {known}")
    config = architecture.family.config(metadata)
    source = load_module(
        _FOLDER / architecture.source, weights=opened.checkpoint, configs={"hyperparameters.json": config}
    )
    module = with_stored_codes(_with_keys(source.module), opened.checkpoint, opened.planes)
    document = tokenizer_document(opened.header)
    if document is not None:
        module = with_resource(module, TOKENIZER, document)
    weights_of = {function.name: opened.checkpoint for function in module.functions}
    return replace(source, module=replace(module, name=_identifier(path.stem)), weights=weights_of)


def _identifier(stem: str) -> str:
    word = "".join(c if c.isascii() and c.isalnum() else "_" for c in stem)
    return f"_{word}" if word[:1].isdigit() else word or "model"


def _with_keys(module: Module) -> Module:
    def named(parameter: Parameter) -> Parameter:
        return replace(parameter, source=parameter.key.removeprefix(_INSTANCE))

    return replace(module, parameters=tuple(map(named, module.parameters)))
