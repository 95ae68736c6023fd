"""Reads a PMML file (`.pmml`): a tree, an ensemble of trees, a regression, or a chain of these.

The entries take `features` [B, F], the active fields of the model in the order of its mining schema: numbers as they
are, text as the index of its value in the data dictionary, booleans as 0 and 1, NaN for a missing value. They are f32
if all fields have the type `float`, else f64. `main` returns the number of a regression, or the class: the value of a
target of numbers, else its index. `probabilities` returns those of classes. NaN is a row without a prediction.

Derived fields of other functions than arithmetic, models other than these, and segments with conditions outside of
`selectFirst` are refused.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ....dialect.dims import Symbol
from ....dialect.graph import Function, Module, Parameter, Value
from ....dialect.types import F32, F64, Array, TensorType
from ....dialect.verifier import verify
from ...model.source import SourceModel, WeightSource
from ...weights import open_arrays
from ..writing.graph_writer import GraphWriter
from ..writing.tensors import Tensor, known
from .expressions import derive
from .fields import Scope, active_fields, read_dictionary, target_of, write_column
from .markup import Element, parse
from .models import MODELS, ModelWriter
from .results import labels_of

_VERSIONS = ("3.0", "3.1", "3.2", "4.0", "4.1", "4.2", "4.2.1", "4.3", "4.4", "4.4.1")
_ASIDE = ("Header", "MiningBuildTask", "DataDictionary", "TransformationDictionary", "Extension")
_INLINE_INTEGERS = 16
MAIN, PROBABILITIES = "main", "probabilities"


def read_pmml(path: Path, weights: WeightSource | None = None) -> SourceModel:
    """Reads the first model of a file. Raises DiagnosticError."""
    root = parse(path)
    if root.name != "PMML":
        root.fail(f"the file holds `{root.name}`, expected `PMML`")
    if root.attribute("version") not in _VERSIONS:
        message = (
            f"the version of PMML is {root.attributes['version']}; {_VERSIONS[0]} to {_VERSIONS[-1]} are supported"
        )
        root.fail(message, code="unsupported-version")
    model = _find_model(root)
    has_classes = model.attributes.get("functionName") == "classification"
    functions, parameters, arrays = [], dict[str, Parameter](), dict[str, Array]()
    for entry in (MAIN, PROBABILITIES) if has_classes else (MAIN,):
        g = GraphWriter(_INLINE_INTEGERS)
        functions.append(_write_entry(g, root, model, entry))
        parameters |= g.parameters
        arrays |= g.arrays
    rows = Symbol("B")
    module = Module(MAIN, (rows,), tuple(parameters.values()), tuple(functions))
    verify(module)
    stored = open_arrays(arrays) if weights is None else weights
    return SourceModel(module, str(path), {function.name: stored for function in functions})


def _find_model(root: Element) -> Element:
    models = [child for child in root.children if child.name not in _ASIDE]
    found = next((child for child in models if child.name in MODELS), None)
    if found is None:
        shown = ", ".join(child.name for child in models) or "no model"
        root.fail(f"the file holds {shown}; {', '.join(MODELS)} are supported", code="unsupported-trees")
    return found


def _write_entry(g: GraphWriter, root: Element, model: Element, entry: str) -> Function:
    dictionary = read_dictionary(root)
    schema = model.required("MiningSchema")
    own = []
    for element in active_fields(schema):
        name = element.attribute("name")
        if name not in dictionary:
            element.fail(f"the field `{name}` is not in the data dictionary")
        own.append(dictionary[name])
    if not own:
        schema.fail("the model has no active fields")
    dtype = F32 if all(each.kind == "float" for each in own) else F64
    features = Value("features", TensorType(dtype, (Symbol("B").size, len(own))))
    matrix, scope = Tensor(features.type, features), Scope(g)
    for position, each in enumerate(own):
        values = g.gather(matrix, known(np.int64(position)), axis=1, mode="clamp")
        scope.columns[each.name] = write_column(scope, each, values)
    rows = scope.columns[own[0].name].values
    derive(scope, root.first("TransformationDictionary"))
    # Fields derived from all others are visible to the model besides those of its schema.
    derived = {name: column for name, column in scope.columns.items() if name not in dictionary}
    target = dictionary.get(target_of(schema) or "")
    result = ModelWriter(g, dictionary, rows, derived, target).write(scope, model)
    if entry == PROBABILITIES:
        assert result.probabilities is not None, model.name
        value = result.probabilities
    else:
        value = result.value if result.probabilities is None else labels_of(g, result, target)
    for mask in scope.invalid:
        value = g.where(g.unsqueeze(mask, axes=(1,)) if value.rank == 2 else mask, g.like(np.nan, value), value)
    name = "probabilities" if entry == PROBABILITIES else "prediction"
    finished = g.value(value)
    return Function(entry, (features,), (*g.prologue, *g.builder.nodes), (finished,), (name,))
