"""The converters of all operators, by domain, name and version: one table of the families in this folder."""

from __future__ import annotations

from collections.abc import Mapping

from ...writing.families import by_name
from ..writing.use import Convert, Converters
from . import (
    activations,
    casts,
    classic_models,
    constants,
    contractions,
    control_flow,
    convolutions,
    deformable,
    detection,
    elementwise,
    encoders,
    features,
    gradients,
    grid_sampling,
    indexing,
    joining,
    linear_algebra,
    normalization,
    ordering,
    pooling,
    quantization,
    recurrent,
    reductions,
    resizing,
    sampling_grids,
    scattering,
    sequences,
    shapes,
    signal,
    slicing,
    strings,
    support_vectors,
    tensor_cache,
    training,
    tree_ensembles,
    unique,
)
from .string_operands import for_strings

FAMILIES: Mapping[str, Converters] = {
    "Elementwise": elementwise.CONVERTERS,
    "Activations": activations.CONVERTERS,
    "Conversions": casts.CONVERTERS,
    "Reductions": reductions.CONVERTERS,
    "Shapes": shapes.CONVERTERS,
    "Joining and splitting": joining.CONVERTERS,
    "Slicing and padding": slicing.CONVERTERS,
    "Indexing": {**indexing.CONVERTERS, **unique.CONVERTERS},
    "Scattering": {**scattering.CONVERTERS, **tensor_cache.CONVERTERS},
    "Ordering": ordering.CONVERTERS,
    "Constants": constants.CONVERTERS,
    "Contractions": {**contractions.CONVERTERS, **linear_algebra.CONVERTERS},
    "Convolutions": {**convolutions.CONVERTERS, **deformable.CONVERTERS},
    "Pooling": pooling.CONVERTERS,
    "Normalization": normalization.CONVERTERS,
    "Quantization": quantization.CONVERTERS,
    "Resizing": resizing.CONVERTERS,
    "Sampling": {**grid_sampling.CONVERTERS, **sampling_grids.CONVERTERS},
    "Detection": detection.CONVERTERS,
    "Recurrent layers": recurrent.CONVERTERS,
    "Signals": signal.CONVERTERS,
    "Features": features.CONVERTERS,
    "Strings": strings.CONVERTERS,
    "Trees": tree_ensembles.CONVERTERS,
    "Classic models": {**classic_models.CONVERTERS, **encoders.CONVERTERS, **support_vectors.CONVERTERS},
    "Training": {**training.CONVERTERS, **gradients.CONVERTERS},
    "Control flow": control_flow.CONVERTERS,
    "Sequences": sequences.CONVERTERS,
}

_BY_NAME: Mapping[str, Mapping[int, Convert]] = {
    name: entry if isinstance(entry, Mapping) else {1: entry} for name, entry in by_name(FAMILIES).items()
}


def find_converter(op: str, domain: str, version: int, has_strings: bool = False) -> Convert | None:
    """Returns the converter of an operator in a version of its set, or None. `has_strings` selects the converter for
    string operands, if the operator has a separate one."""
    name = f"{domain}::{op}" if domain else op
    versions = _BY_NAME.get(name, {})
    fitting = [first for first in versions if first <= version]
    found = versions[max(fitting)] if fitting else None
    return for_strings(name, found) if has_strings and found is not None else found


def operator_names() -> list[str]:
    """Returns the names of all operators with a converter; those of other operator sets have a prefix, as in
    `ai.onnx.ml::Scaler`."""
    return sorted(_BY_NAME)
