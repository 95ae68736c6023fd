"""Reads a GGUF file as a model: its metadata configure a model source in `architectures`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ....dialect.graph import Parameter
from ...base.shortened import shortened_code
from ...model.source import SourceModel, WeightSource
from ...weights.gguf_file import open_gguf
from ...weights.header_checks import elements
from ..architectures.decoder import stored_name, with_settings
from ..architectures.resources import TOKENIZER, with_resource
from ..architectures.sources import read_source
from ..architectures.stored_formats import with_stored_formats
from .decoder_families import FAMILIES, LONG_FACTORS, SHORT_FACTORS
from .metadata import Metadata, bad_gguf, read_metadata
from .vocabulary import tokenizer_document

_ANGLES = ".attn_rot_embd.weight"
"""The angles of rotary positions, which the compiler computes."""


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
    metadata = read_metadata(opened.header, opened.checkpoint)
    family = FAMILIES.get(metadata.architecture)
    if family is None:
        known = ", ".join(FAMILIES)
        raise bad_gguf(f"`{path}` has the unknown architecture `{metadata.architecture}`", f"there are {known}")
    decoder = with_settings(family(metadata), settings or {})
    source = read_source(decoder.sources, decoder.config(), opened.checkpoint, _with_key, path.stem)
    _check_tensors(path, metadata, source, bool(decoder.long_factors))
    module = with_stored_formats(source.module, opened.checkpoint, opened.planes)
    document = tokenizer_document(opened.header)
    if document is not None:
        module = with_resource(module, TOKENIZER, document)
    weights_of = {function.name: opened.checkpoint for function in module.functions}
    return replace(source, module=module, weights=weights_of)


def _check_tensors(path: Path, metadata: Metadata, source: SourceModel, has_long_factors: bool) -> None:
    """Checks that the model reads all tensors of the file. Another one may be a part of the computation that the source
    of the architecture does not have, such as a bias."""
    read = {element.key for parameter in source.module.parameters for element in elements(parameter)}
    read |= {SHORT_FACTORS, LONG_FACTORS} if has_long_factors else set()
    unread = [name for name in metadata.shapes if name not in read and not name.endswith(_ANGLES)]
    if unread:
        raise bad_gguf(f"`{path}` has tensors that `{metadata.architecture}` does not read: {shortened_code(unread)}")


def _with_key(parameter: Parameter) -> Parameter:
    # Phi-3 stores gate and feed-forward, which one product computes, under the name of the latter.
    return replace(parameter, source=stored_name(parameter.key).replace(".ffn_gate_up.", ".ffn_up."))
