"""Reads a GGUF file as a model: its metadata configure a model source in `architectures`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ....dialect.graph import Parameter
from ...model.source import SourceModel, WeightSource
from ...weights.gguf_file import open_gguf
from ..architectures.decoder import stored_name, with_settings
from ..architectures.resources import TOKENIZER, with_resource
from ..architectures.sources import read_source
from .metadata import Family, Gpt2, Llama, bad_gguf, read_metadata
from .stored_formats import with_stored_formats
from .vocabulary import tokenizer_document

ARCHITECTURES: Mapping[str, Family] = {
    "llama": Llama(neighbours=True),
    "mistral": Llama(neighbours=True),
    "qwen2": Llama(),
    "qwen3": Llama(),
    "qwen2moe": Llama(shares_are_normed=False),
    "qwen3moe": Llama(),
    "gpt2": Gpt2(),
    "gemma": Llama(activation="gelu-tanh", embedding_scaled=True),
}
"""The families by the name of the architecture in a file."""


def read_gguf_model(
    path: Path, weights: WeightSource | None = None, settings: Mapping[str, Any] | None = None
) -> SourceModel:
    """Reads the model of a file; `settings` are those of its configuration that a caller chooses. Raises
    DiagnosticError."""
    if weights is not None:
        raise bad_gguf(f"`{path}` contains its weights, and accepts no other checkpoint")
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
    decoder = with_settings(architecture.config(metadata), settings or {})
    source = read_source(decoder.sources, decoder.config(), opened.checkpoint, _with_key, path.stem)
    module = with_stored_formats(source.module, opened.checkpoint, opened.planes)
    document = tokenizer_document(opened.header)
    if document is not None:
        module = with_resource(module, TOKENIZER, document)
    weights_of = {function.name: opened.checkpoint for function in module.functions}
    return replace(source, module=module, weights=weights_of)


def _with_key(parameter: Parameter) -> Parameter:
    return replace(parameter, source=stored_name(parameter.key))
