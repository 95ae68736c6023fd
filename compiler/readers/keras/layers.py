"""The configuration of a model as records: layers, and the calls of layers with the tensors that they take.

Keras 2 and 3 write the operands of a call in different ways; both become `(layer, call, result)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

from ....dialect.diagnostics import Diagnostic, DiagnosticError

_DEEPEST = 20
_MOST_LAYERS = 20_000
_MODELS = ("Sequential", "Functional", "Model")

Source: TypeAlias = tuple[str, int, int]
"""The name of a layer, the number of its call, and the number of the result."""


@dataclass(slots=True, eq=False)
class Layer:
    """A layer. `group` is the name of its group in the weights file of Keras 3; `model` is set if it is a model."""

    kind: str
    name: str
    config: Mapping[str, Any]
    group: str
    model: Model | None
    calls: list[Call] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call of a layer. `keywords` are its tensor arguments by keyword, `flags` its other keyword arguments. Arguments
    that are numbers are listed in the flag `numbers`."""

    layer: Layer
    number: int
    sources: Sequence[Source]
    keywords: Mapping[str, Source] = field(default_factory=dict)
    flags: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    layers: Sequence[Layer]
    inputs: Sequence[Layer]
    outputs: Sequence[Source]

    def walk(self) -> Iterator[Layer]:
        """Yields all layers, also those of models inside."""
        for layer in self.layers:
            yield layer
            if layer.model is not None:
                yield from layer.model.walk()


class _BadConfigError(Exception):
    """The configuration does not have the form that Keras writes."""


def decode_model(config: Mapping[str, Any], file: str) -> Model:
    """Returns the record of a model from its configuration. Raises DiagnosticError."""
    try:
        if config.get("class_name") not in _MODELS:
            kind = config.get("class_name")
            message = f"`{file}` holds a {kind!r}; sequential and functional models are supported"
            raise DiagnosticError([Diagnostic("unsupported-operator", message)])
        return _model(config, [_MOST_LAYERS], 0)
    except (_BadConfigError, KeyError, TypeError, IndexError, AttributeError, ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, _BadConfigError) else f"{type(error).__name__} {error}"
        message = f"`{file}` has a configuration that Keras does not write: {reason}"
        raise DiagnosticError([Diagnostic("bad-keras", message)]) from None


def _model(config: Mapping[str, Any], left: list[int], depth: int) -> Model:
    inner = config["config"]
    # The first versions of Keras 2 wrote only a list of layers.
    listed = inner if isinstance(inner, list) else inner["layers"]
    left[0] -= len(listed)
    if left[0] < 0 or depth > _DEEPEST:
        raise _BadConfigError(f"more than {_MOST_LAYERS} layers, or models in models {_DEEPEST} deep")
    layers: list[Layer] = []
    counts: dict[str, int] = {}
    for record in listed:
        kind = record["class_name"]
        if not isinstance(kind, str) or not isinstance(record["config"], (dict, list)):
            raise _BadConfigError("a layer without a class or a configuration")
        snake = _snake(_CLASSES.get(kind, kind))
        group = snake if snake not in counts else f"{snake}_{counts[snake]}"
        counts[snake] = counts.get(snake, 0) + 1
        found = record["config"] if isinstance(record["config"], dict) else {}
        name = record.get("name") or found.get("name") or group
        if not isinstance(name, str):
            raise _BadConfigError("a layer whose name is not a string")
        model = _model(record, left, depth + 1) if kind in _MODELS else None
        layers.append(Layer(kind, name, found, group, model))
    names = {layer.name: layer for layer in layers}
    if len(names) != len(layers):
        raise _BadConfigError("two layers of one name")
    if config["class_name"] == "Sequential":
        return _sequential(layers)
    for layer, record in zip(layers, listed, strict=True):
        for number, call in enumerate(record.get("inbound_nodes") or []):
            layer.calls.append(Call(layer, number, *_sources(call)))
    inputs = [names[source[0]] for source in _references(inner["input_layers"])]
    if not inputs or any(layer.kind != "InputLayer" for layer in inputs):
        raise _BadConfigError("no input layer")
    return Model(layers, inputs, _references(inner["output_layers"]))


def _sequential(layers: list[Layer]) -> Model:
    if not layers:
        raise _BadConfigError("a sequential model without layers")
    first = layers[0]
    if first.kind != "InputLayer":
        shape = first.config.get("batch_input_shape", first.config.get("batch_shape"))
        if shape is None and first.model is not None:
            shape = first.model.inputs[0].config.get(
                "batch_shape", first.model.inputs[0].config.get("batch_input_shape")
            )
        if shape is None:
            raise _BadConfigError("a sequential model without the shape of its input")
        dtype = first.config.get("dtype")
        config = {"batch_shape": shape, "dtype": dtype if isinstance(dtype, str) else "float32"}
        layers = [Layer("InputLayer", f"{first.name}_input", config, "", None), *layers]
    for before, layer in pairwise(layers):
        layer.calls.append(Call(layer, 0, [(before.name, 0, 0)]))
    return Model(layers, layers[:1], [(layers[-1].name, 0, 0)])


def _sources(call: Any) -> tuple[list[Source], dict[str, Source], dict[str, Any]]:
    """Returns the positional tensors of a call, its tensors by keyword, and its other keyword arguments."""
    if isinstance(call, Mapping):
        given = call.get("kwargs", {})
        listed = {name: list(_histories(value)) for name, value in given.items()}
        states = listed.pop("initial_state", [])  # as in HDF5 files of Keras 2: further operands
        if any(len(sources) > 1 for sources in listed.values()):
            raise _BadConfigError("a layer gets several tensors by one keyword")
        keywords = {name: sources[0] for name, sources in listed.items() if sources}
        flags = {name: value for name, value in given.items() if name not in keywords and name != "initial_state"}
        numbers = [each for each in call["args"] if isinstance(each, (int, float))]
        flags |= {"numbers": numbers} if numbers else {}
        return [*_histories(call["args"]), *states], keywords, flags
    found: list[Source] = []
    keywords = {}
    flags = {}
    for each in call:
        found.append((str(each[0]), int(each[1]), int(each[2])))
        for name, value in each[3].items() if len(each) > 3 else ():
            if isinstance(value, list) and value:
                keywords[name] = (str(value[0]), int(value[1]), int(value[2]))
            else:
                flags[name] = value
    return found, keywords, flags


def _histories(value: Any) -> Iterator[Source]:
    """Yields the tensors in the arguments of a call, as Keras 3 writes them."""
    if isinstance(value, Mapping):
        if value.get("class_name") == "__keras_tensor__":
            name, call, result = value["config"]["keras_history"]
            yield str(name), int(call), int(result)
        else:
            for each in value.values():
                yield from _histories(each)
    elif isinstance(value, list):
        for each in value:
            yield from _histories(each)


def _references(value: Any) -> list[Source]:
    """Returns one tensor or several: `[name, call, result]`, or a list of such."""
    if isinstance(value, Mapping):
        return [source for each in value.values() for source in _references(each)]
    if len(value) == 3 and isinstance(value[0], str) and type(value[1]) is int:
        return [(value[0], int(value[1]), int(value[2]))]
    return [source for each in value for source in _references(each)]


_CLASSES = {"GroupQueryAttention": "GroupedQueryAttention"}
"""The Python names of classes that a configuration names otherwise: groups of weights are named by these."""


def _snake(name: str) -> str:
    """Returns the name of a group for a class: `Conv2DTranspose` is `conv2d_transpose`."""
    name = re.sub(r"\W+", "", name)
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()
