"""Figures of the weights that a page shows: range, mean, a histogram and the first values of each parameter.

The parameters of a loop count as one. Of a large parameter, a regular sample is read. Parameters that are computed from
others have no figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ....dialect.graph import Parameter
from ...artifact.graphs import StoredGraphs
from ...lower.packing import read_packing
from ...model.parameters import ParameterReader, absent_checkpoints, open_parameters, used_parameters
from ...model.source import SourceModel
from ...weights.header_checks import elements

BINS = 32
_MOST = 1 << 20
"""The maximum number of elements of a parameter that are counted."""
_FIRST = 6


def weight_data(source_model: SourceModel) -> dict[str, Mapping[str, Any]]:
    """Returns the figures of each parameter by its name, as JSON data; none where a checkpoint is absent.

    Raises DiagnosticError if a checkpoint does not fit the model.
    """
    if absent_checkpoints(source_model):
        return {}
    reader = open_parameters(source_model)
    used = {p.name: p for found in used_parameters(source_model.module).values() for p in found}
    return {name: _figures(parameter, reader) for name, parameter in used.items()}


def artifact_weights(path: Path, stored: StoredGraphs) -> dict[str, Mapping[str, Any]]:
    """Returns the figures of each weight that an artifact holds, by the name of its parameter: those of the stored
    form, which may be padded with zeros."""
    found: dict[str, Mapping[str, Any]] = {}
    for tensor in stored.tensors:
        data = stored.read(path, tensor)
        if data is not None:
            found[read_packing(tensor.name)[0]] = _count(tensor.type, 1, _sample(data, _MOST))
    return found


def _figures(parameter: Parameter, reader: ParameterReader) -> Mapping[str, Any]:
    parts = list(elements(parameter))
    values = np.concatenate([_sample(np.asarray(reader(part)), _MOST // len(parts)) for part in parts] or [np.empty(0)])
    return _count(str(parameter.type), len(parts), values)


def _count(type: str, copies: int, values: npt.NDArray[np.float64]) -> Mapping[str, Any]:
    finite = values[np.isfinite(values)]
    data = {
        "type": type,
        "copies": copies,
        "counted": values.size,
        "unusual": int(values.size - finite.size),
        "zeros": int(np.count_nonzero(finite == 0)),
        "first": [_number(value) for value in values[:_FIRST].tolist()],
    }
    if not finite.size:
        return data
    low, high = float(finite.min()), float(finite.max())
    counts, _ = np.histogram(finite, BINS, (low, high) if high > low else (low - 0.5, low + 0.5))
    range_ = {"min": low, "max": high, "mean": float(finite.mean()), "deviation": float(finite.std())}
    return {**data, **range_, "counts": counts.tolist()}


def _sample(array: npt.NDArray[Any], most: int) -> npt.NDArray[np.float64]:
    if array.dtype.names:  # blocks of quantized values
        return np.empty(0)
    flat: Any = array.reshape(-1)
    return np.asarray(flat[:: max(1, math.ceil(flat.size / max(1, most)))]).astype(np.float64)


def _number(value: float) -> float | str:
    """Returns a number, or the text of one that JSON lacks."""
    return value if math.isfinite(value) else str(value)
