"""Reads a JSON model of XGBoost or CatBoost, by the fields that it has."""

from __future__ import annotations

from pathlib import Path

from ...model.source import SourceModel, WeightSource
from . import catboost, xgboost
from .fields import parse_json, read_bytes
from .graph import write_model
from .tree import tree_error


def read_json_file(path: Path, weights: WeightSource | None = None) -> SourceModel:
    """Reads a model of a JSON file. Raises DiagnosticError."""
    record = parse_json(read_bytes(path), str(path))
    if catboost.is_catboost(record):
        model = catboost.read_record(record, str(path))
    elif isinstance(record, dict) and "learner" in record:
        model = xgboost.read_record(record, str(path))
    else:
        raise tree_error(
            f"`{path}` is a JSON file of neither XGBoost nor CatBoost: it has no `learner`, `features_info`"
        )
    return write_model(model, str(path), weights, {})
