"""Reads a Keras model: orders the calls of layers by their operands, and calls the converter of each layer.

The reader supports sequential and functional models; in `.keras` files, a model may be a layer of another one. It
refuses layers that contain Python code, and classes without a converter, and reports all of them before it converts any
layer.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ....dialect.dims import INFINITY, DimError, Size, Symbol
from ....dialect.graph import Function, Module, Value
from ....dialect.operator import InferenceError
from ....dialect.types import BOOL, F16, F32, F64, I8, I16, I32, I64, U8, DType, TensorType
from ....dialect.verifier import verify
from ...base.shortened import shortened_code
from ...model.source import SourceModel, WeightSource
from ...weights import open_arrays
from ..writing.graph_writer import GraphWriter
from ..writing.tensors import Elements, Tensor
from .convert import find_converter, keywords_of, layer_names
from .convert.masks import as_mask, check_masks, masks_after
from .keras_file import Archive, open_archive
from .layers import Call, Layer, Model, Source, decode_model
from .writing.use import Use

_DTYPES: Mapping[str, DType] = {
    "float32": F32, "float16": F16, "float64": F64, "int8": I8, "int16": I16, "int32": I32, "int64": I64, "uint8": U8,
    "bool": BOOL,
}  # fmt: skip


def read_keras(path: Path, weights: WeightSource | None = None) -> SourceModel:
    """Reads a `.keras` or `.h5` file. Raises DiagnosticError."""
    return read_archive(open_archive(path), path, weights)


def read_archive(archive: Archive, path: Path, weights: WeightSource | None = None) -> SourceModel:
    """Reads the content of the file `path`. Raises DiagnosticError."""
    file = str(path)
    model = decode_model(archive.config, file)
    errors = list(_find_unsupported(model))
    if errors:
        raise DiagnosticError(errors)
    entry = re.sub(r"\W+", "_", path.stem, flags=re.ASCII).strip("_") or "model"
    run = _Run(archive, file)
    module = run.module(model, f"_{entry}" if entry[0].isdigit() else entry)
    verify(module)
    (function,) = module.functions
    stored = open_arrays(run.writer.arrays) if run.writer.arrays else None
    return SourceModel(module, file, {function.name: stored if weights is None else weights})


def _find_unsupported(model: Model) -> Iterator[Diagnostic]:
    """Yields one error for each class of layers that has no converter, with the names of the layers."""
    unknown: dict[str, list[str]] = {}
    for layer in model.walk():
        if layer.model is None and layer.kind != "InputLayer" and find_converter(layer.kind) is None:
            unknown.setdefault(layer.kind, []).append(layer.name)
    for kind, names in unknown.items():
        shown = shortened_code(names)
        if kind in ("Lambda", "TFOpLambda"):
            help_text = "replace it by layers of Keras"
            yield Diagnostic("python-code", f"layers of class `{kind}` run Python code: {shown}", help=help_text)
            continue
        close = difflib.get_close_matches(kind, layer_names(), 1, cutoff=0.6)
        help_text = f"the nearest supported class is `{close[0]}`; " if close else ""
        help_text += f"known classes are {', '.join(layer_names())}"
        yield Diagnostic("unsupported-operator", f"layers of class `{kind}` are not supported: {shown}", help=help_text)


@dataclass(frozen=True, slots=True)
class _Held:
    """A tensor, and the mask of its steps if it has one."""

    tensor: Tensor
    mask: Tensor | None = None


@dataclass
class _Run:
    archive: Archive
    file: str
    writer: GraphWriter = field(default_factory=GraphWriter)
    batch: Symbol | None = None
    made: dict[int, Tensor] = field(default_factory=dict)

    @property
    def version(self) -> int:
        found = re.match(r"\d+", self.archive.version)
        return int(found[0]) if found else 3

    def module(self, model: Model, name: str) -> Module:
        taken: set[str] = set()
        arguments = []
        for position, layer in enumerate(model.inputs):
            word = re.sub(r"\W+", "_", layer.name, flags=re.ASCII).strip("_") or f"input_{position}"
            word = f"_{word}" if word[0].isdigit() else word
            if word in taken:
                raise _error(f"`{self.file}` has two inputs `{word}`")
            taken.add(word)
            arguments.append(Value(word, self._input_type(layer)))
        given = [_Held(Tensor(value.type, value)) for value in arguments]
        outputs = [held.tensor for held in self.run(model, given, "")]
        results = tuple(self.writer.value(tensor) for tensor in outputs)
        names = ("output",) if len(results) == 1 else tuple(f"output_{position}" for position in range(len(results)))
        body = (*self.writer.prologue, *self.writer.builder.nodes)
        function = Function(name, tuple(arguments), body, results, names)
        return Module(name, function.symbols(), tuple(self.writer.parameters.values()), (function,))

    def _input_type(self, layer: Layer) -> TensorType:
        shape = layer.config.get("batch_shape", layer.config.get("batch_input_shape"))
        if not isinstance(shape, list) or not shape or len(shape) > 8:
            raise _error(f"the input `{layer.name}` of `{self.file}` has no shape")
        dtype = layer.config.get("dtype") or "float32"
        if not isinstance(dtype, str) or dtype not in _DTYPES:
            raise _error(f"the input `{layer.name}` is {dtype!r}, which is not supported", "unsupported-dtype")
        sizes: list[Size] = []
        for axis, size in enumerate(shape):
            if size is not None and (type(size) is not int or not 0 < size < 1 << 31):
                raise _error(f"the input `{layer.name}` of `{self.file}` has the size {size!r}")
            if axis == 0:
                # The batch size of training does not restrict calls.
                self.batch = self.batch or Symbol("batch", 1, INFINITY)
                sizes.append(self.batch.size)
            elif size is None:
                word = re.sub(r"\W+", "_", layer.name, flags=re.ASCII)
                sizes.append(Symbol(f"{word}_{axis}", 1, INFINITY).size)
            else:
                sizes.append(size)
        return TensorType(_DTYPES[dtype], tuple(sizes))

    def run(self, model: Model, given: Sequence[_Held], path: str) -> list[_Held]:
        """Calls the layers of a model and returns its outputs. `path` is that of the model in the file of weights."""
        if len(given) != len(model.inputs):
            raise _error(f"a model of `{self.file}` has {len(model.inputs)} inputs, and gets {len(given)}")
        held: dict[Source, _Held] = {}
        for layer, tensor in zip(model.inputs, given, strict=True):
            held[layer.name, 0, 0] = tensor
        waiting = [call for layer in model.layers for call in layer.calls if layer.kind != "InputLayer"]
        while waiting:
            later: list[Call] = []
            for call in waiting:
                if all(source in held for source in (*call.sources, *call.keywords.values())):
                    named = {name: held[source] for name, source in call.keywords.items()}
                    results = self._call(call, [held[source] for source in call.sources], named, path)
                    held.update(((call.layer.name, call.number, n), result) for n, result in enumerate(results))
                else:
                    later.append(call)
            if len(later) == len(waiting):
                names = ", ".join(f"`{call.layer.name}`" for call in later[:8])
                raise _error(
                    f"layers of `{self.file}` depend on each other, or on results that no layer computes: {names}"
                )
            waiting = later
        missing = [source for source in model.outputs if source not in held]
        if missing:
            raise _error(f"`{self.file}` has the output `{missing[0][0]}`, which no layer computes")
        return [held[source] for source in model.outputs]

    def _call(self, call: Call, given: Sequence[_Held], named: Mapping[str, _Held], path: str) -> Sequence[_Held]:
        layer = call.layer
        inside = f"{path}layers/{layer.group}/"
        further = sorted(set(named) - keywords_of(layer.kind))
        if further:
            message = f"the layer `{layer.name}` ({layer.kind}) gets the tensor `{further[0]}` by keyword"
            raise _error(message, "wrong-operands")
        # Keras 2 keeps `training=True` in inference; Keras 3 does not.
        if call.flags.get("training") is True and self.version < 3:
            message = f"the layer `{layer.name}` ({layer.kind}) is called with `training=True`"
            raise _error(message, "unsupported-attribute")
        if layer.model is not None:
            if self.archive.orders is not None:
                message = f"the layer `{layer.name}` is a model; such layers are read from `.keras` files"
                raise _error(message, "unsupported-operator")
            return self.run(layer.model, given, inside)
        weights = self._weights(layer, inside)
        self.writer.at("", None)
        positions: dict[int | str, _Held] = dict(enumerate(given))
        positions.update(named.items())
        masks = {position: held.mask for position, held in positions.items() if held.mask is not None}
        keywords = {name: held.tensor for name, held in named.items()}
        use = Use(
            layer.kind, layer.name, layer.config, self.version, self.writer, tuple(held.tensor for held in given),
            weights, self.file, keywords, call.flags, masks,
        )  # fmt: skip
        if "mask" in keywords:
            use = replace(use, masks={**masks, 0: as_mask(use, keywords["mask"])})
        check_masks(use)
        convert = find_converter(layer.kind)
        assert convert is not None, layer.kind
        try:
            results, found = convert(use), masks_after(use)
            return [
                _Held(tensor, found[position] if position < len(found) else None)
                for position, tensor in enumerate(results)
            ]
        except InferenceError as error:
            use.fail(f"does not fit its operands: {error.message}", code=error.code)
        except (DimError, ValueError, OverflowError) as error:
            use.fail(f"does not fit its operands: {error}", code="bad-size")

    def _weights(self, layer: Layer, inside: str) -> list[tuple[str, Elements]]:
        """Returns the weights of a layer in their order."""
        arrays = self.archive.arrays
        if self.archive.orders is None:
            names = sorted((name for name in arrays if name.startswith(inside)), key=_in_order)
        else:
            found = [group for group in self.archive.orders if group.split("/")[-1] == layer.name]
            names = [f"{group}/{name}" for group in found[:1] for name in self.archive.orders[group]]
        absent = [name for name in names if name not in arrays]
        if absent:
            raise _error(f"`{self.file}` has no weight `{absent[0]}`", "missing-weight")
        return [(name, np.asarray(arrays[name])) for name in names]


def _in_order(name: str) -> list[tuple[int, str]]:
    """Returns a key by which parts that are numbers have their order, and the forward direction is first."""
    return [
        (int(part), "") if part.isdigit() and len(part) < 9 else (0, _DIRECTIONS.get(part, part))
        for part in name.split("/")
    ]


_DIRECTIONS = {"forward_layer": "0", "backward_layer": "1"}


def _error(message: str, code: str = "bad-keras") -> DiagnosticError:
    return DiagnosticError([Diagnostic(code, message)])
