"""Reads a Hugging Face folder as a model: `config.json`, safetensors in one or several files, and the tokenizer."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ....dialect.graph import Module, Parameter, parameters_read
from ...base.shortened import shortened_code
from ...model.source import SourceModel, WeightSource
from ...weights import Checkpoint, open_checkpoint
from ..architectures.decoder import stored_name, with_settings
from ..architectures.resources import TOKENIZER, with_resource
from ..architectures.sources import read_source
from ..architectures.stored_formats import with_stored_formats
from .config_json import Configuration, bad_folder, read_json
from .decoders import DECODERS
from .encoders import ENCODERS
from .naming import Names, with_stacks
from .tokenizer import tokenizer_document

CONFIG = "config.json"
_BUFFERS = (".inv_freq", ".attn.bias", ".attn.masked_bias")
"""The ends of the names of tensors that are no parameters: angles of rotary positions, and masks."""


def read_folder(
    path: Path, weights: WeightSource | None = None, settings: Mapping[str, Any] | None = None
) -> SourceModel:
    """Reads the model of a folder; `weights` replace its checkpoint, and `settings` are those of its configuration that
    a caller chooses. Raises DiagnosticError."""
    if not (path / CONFIG).is_file():
        help_text = "name a model file; a Hugging Face folder has a `config.json` and weights in safetensors"
        models = list(path.glob("*.nacre"))
        if len(models) == 1:
            help_text = f"did you mean `{models[0]}`?"
        raise bad_folder(f"`{path}` is a directory without a `{CONFIG}`", help_text)
    values = read_json(path / CONFIG)
    kind = values.get("model_type")
    if not isinstance(kind, str) or (kind not in DECODERS and kind not in ENCODERS):
        known = ", ".join(sorted({**DECODERS, **ENCODERS}))
        said = f"has the unknown `model_type` `{kind}`" if isinstance(kind, str) else "does not state its `model_type`"
        raise bad_folder(f"`{path / CONFIG}` {said}", f"known are {known}")
    checkpoint = weights if isinstance(weights, Checkpoint) else open_checkpoint(weights or path)
    configuration = Configuration(path / CONFIG, values, checkpoint)
    read_kind = _read_decoder if kind in DECODERS else _read_encoder
    read = read_kind(configuration, kind, path.resolve().name, settings or {})
    document = tokenizer_document(path, values)
    module = with_stored_formats(read.module, checkpoint, {})
    module = module if document is None else with_resource(module, TOKENIZER, document)
    opened = with_stacks(checkpoint, (parameter.key for parameter in module.parameters))
    return replace(read, module=module, weights=dict.fromkeys(names_of(module), opened))


def _read_decoder(c: Configuration, kind: str, name: str, settings: Mapping[str, Any]) -> SourceModel:
    configure, names = DECODERS[kind]
    config = with_settings(configure(c), settings)
    prefix = names.prefix(c.checkpoint, "token_embd.weight")

    def named(parameter: Parameter) -> Parameter:
        return names.parameter(parameter, stored_name(parameter.key), prefix)

    read = read_source(config.sources, config.config(), c.checkpoint, named, name)
    return replace(read, warnings=(*read.warnings, *_unread(c, names, prefix, read.module)))


def _unread(c: Configuration, names: Names, prefix: str, module: Module) -> list[Diagnostic]:
    """Returns a warning about tensors of layers that the model does not read. They may be a part of the computation
    that the source of the architecture does not have, such as a bias, or layers that the configuration leaves out."""
    patterns = {re.escape(parameter.key).replace(r"\*", r"\d+") for parameter in module.parameters}
    read = re.compile("|".join(sorted(patterns)))
    layers = f"{prefix}{names.layers}."
    unread = [
        key
        for key in sorted(c.checkpoint.tensors)
        if key.startswith(layers) and not key.endswith(_BUFFERS) and not read.fullmatch(key)
    ]
    if not unread:
        return []
    message = f"the model does not read these tensors of its layers: {shortened_code(unread)}"
    return [Diagnostic("unread-weights", message, severity="warning")]


def _read_encoder(c: Configuration, kind: str, name: str, settings: Mapping[str, Any]) -> SourceModel:
    if settings:
        raise DiagnosticError([Diagnostic("bad-setting", f"an encoder has no setting `{next(iter(settings))}`")])
    encoder = ENCODERS[kind](c)

    def named(parameter: Parameter) -> Parameter:
        first, _, rest = parameter.key.partition(".")
        own = rest if first in ("encoder", *encoder.names) else parameter.key
        names = encoder.names.get(first, encoder.names[""])
        return names.parameter(parameter, own, encoder.names[""].prefix(c.checkpoint, encoder.probe))

    read = read_source([encoder.source], encoder.config, c.checkpoint, named, name)
    return replace(read, module=_with_entries(read.module, encoder.entries))


def _with_entries(module: Module, entries: Collection[str]) -> Module:
    functions = tuple(function for function in module.functions if function.name in entries)
    used = {name for function in functions for name in parameters_read(function.body)}
    return replace(module, functions=functions, parameters=tuple(p for p in module.parameters if p.name in used))


def names_of(module: Module) -> list[str]:
    return [function.name for function in module.functions]
