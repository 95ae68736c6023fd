"""The models of a PMML file: trees, ensembles of trees, and chains that end with a regression.

Trees of one ensemble become one `tree_ensemble`, or trees on ranks for many rows, as `trees/graph.py` selects; their
results are added in the order of the segments, in f64, or in f32 where the file says `x-mathContext="float"`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....dialect.graph import Value
from ....dialect.operator import Builder
from ....dialect.types import F32, F64, dtype_of
from ..trees.ensemble import assemble
from ..trees.graph import TreeModel, find_ranks, identity, write_raw
from ..trees.ranked import Ranked
from ..trees.tree import Numbers, Tree
from ..writing.graph_writer import GraphWriter
from ..writing.tensors import Tensor, known
from .expressions import derive, write_expression
from .fields import Column, Field, Scope, apply_schema, target_of
from .many_leaves import ManyLeaves, has_many_leaves
from .markup import Element
from .nodes import TreeReader
from .predicates import PREDICATES, Predicates
from .regression import write_regression
from .results import Result, apply_targets, choose_first, of_probabilities
from .scores import Classes, Distribution, Numeric, Vote, classes_of

MODELS = ("TreeModel", "MiningModel", "RegressionModel")
_SUMS = ("sum", "weightedSum", "average", "weightedAverage")
_VOTES = ("majorityVote", "weightedMajorityVote")


@dataclass
class _Tables:
    """The tables of one ensemble as parameters named after it."""

    writer: GraphWriter
    name: str
    ranked: Ranked | None
    made: dict[str, Value] = field(default_factory=dict)

    @property
    def builder(self) -> Builder:
        return self.writer.builder

    def table(self, name: str, array: Numbers) -> Value:
        if name not in self.made:
            self.made[name] = self.writer.value(known(array, label=f"{self.name}.{name}"))
        return self.made[name]


@dataclass
class ModelWriter:
    """Writes the models of a file. `rows` is a column, for the number of rows; `derived` are the fields that all models
    read; `target` is the one of models that name none."""

    g: GraphWriter
    dictionary: Mapping[str, Field]
    rows: Tensor
    derived: Mapping[str, Column]
    target: Field | None
    ensembles: int = 0

    def write(self, scope: Scope, model: Element, trees: str = "tree 0") -> Result:
        """Returns the result of a model that reads the fields of `scope`."""
        inner = self._inside(scope, model)
        result = self._write(inner, model, trees)
        return apply_targets(self.g, model, result)

    def _inside(self, scope: Scope, model: Element) -> Scope:
        inner = apply_schema(scope, model.required("MiningSchema"))
        inner.columns = {**self.derived, **inner.columns}
        derive(inner, model.first("LocalTransformations"))
        return inner

    def _write(self, inner: Scope, model: Element, trees: str) -> Result:
        if model.name == "TreeModel" and has_many_leaves(model):
            return self._write_many_leaves(inner, model, trees)
        if model.name == "TreeModel":
            score = Distribution(self._classes(model)) if self._has_classes(model) else Numeric(_float_of(model))
            return self._write_trees(inner, [(model, inner, score)], model, trees)
        if model.name == "RegressionModel":
            classes = self._classes(model) if self._has_classes(model) else None
            return write_regression(inner, model, classes, self.rows)
        if model.name != "MiningModel":
            model.fail(f"`{model.name}` is not supported", code="unsupported-trees")
        segmentation = model.required("Segmentation")
        method = segmentation.attribute("multipleModelMethod")
        segments = [s for s in segmentation.all("Segment") if self._predicate(s).name != "False"]
        if not segments:
            segmentation.fail("the model has no segments")
        for segment in segments:
            if sum(child.name in MODELS for child in segment.children) != 1:
                shown = ", ".join(c.name for c in segment.children if c.name not in (*PREDICATES, "Extension"))
                code = "unsupported-trees" if shown else "bad-tree"
                segment.fail(f"a segment holds {shown or 'no model'}, expected one of {', '.join(MODELS)}", code=code)
        if method == "modelChain":
            return self._chain(inner, segments)
        if method == "selectFirst":
            return self._select_first(inner, segments)
        if method in (*_SUMS, *_VOTES):
            return self._combine(inner, model, segments, method)
        segmentation.fail(f"the method `{method}` is not supported", code="unsupported-trees")

    def _write_many_leaves(self, inner: Scope, model: Element, label: str) -> Result:
        if not self._has_classes(model):
            strategy = model.attributes["missingValueStrategy"]
            model.fail(f"`{strategy}` has a meaning for classes, not for numbers", code="unsupported-trees")
        predicates = Predicates(inner, lambda x: float(np.nextafter(x, np.inf)), {})
        return ManyLeaves(model, predicates, self._classes(model), label, self.rows).write()

    def _has_classes(self, model: Element) -> bool:
        return model.choice("functionName", "regression", "classification") == "classification"

    def _classes(self, model: Element) -> Classes:
        name = target_of(model.required("MiningSchema"))
        return classes_of(model, self.target if name is None else self.dictionary.get(name))

    def _predicate(self, segment: Element) -> Element:
        found = segment.first(*PREDICATES)
        if found is None:
            segment.fail("a segment has no predicate")
        return found

    def _model_of(self, segment: Element) -> Element:
        return next(segment.all(*MODELS))

    def _require_true(self, segments: Sequence[Element], method: str) -> None:
        for segment in segments:
            if self._predicate(segment).name != "True":
                segment.fail(f"a segment of the method `{method}` has a condition", code="unsupported-trees")

    # Ensembles

    def _combine(self, inner: Scope, model: Element, segments: Sequence[Element], method: str) -> Result:
        self._require_true(segments, method)
        has_weights = method.startswith("weighted")
        weights = [s.number("weight", 1.0) if has_weights else 1.0 for s in segments]
        models = [self._model_of(segment) for segment in segments]
        has_classes = self._has_classes(model)
        if has_classes and method in ("sum", "weightedSum"):
            model.fail(f"classes are combined by `{method}`, which has no meaning for them", code="unsupported-trees")
        if not has_classes and method in _VOTES:
            model.fail(f"numbers are combined by `{method}`", code="unsupported-trees")
        if any(each.attributes.get("functionName") != model.attributes.get("functionName") for each in models):
            model.fail("segments have another `functionName` than the model", code="unsupported-trees")
        classes = self._classes(model) if has_classes else None
        total = 1.0 if method in ("sum", "weightedSum") else float(sum(weights))
        if total == 0:
            model.fail("the weights of the segments have the sum 0")
        if any(each.name != "TreeModel" or each.first("Targets") or has_many_leaves(each) for each in models):
            return self._combine_results(inner, models, weights, total, classes, method)
        parts = []
        for each, weight in zip(models, weights, strict=True):
            if classes is None:
                score: Any = Numeric(_float_of(model), weight)
            else:
                score = (Vote if method in _VOTES else Distribution)(classes, weight)
            parts.append((each, self._inside(inner, each), score))
        return self._divide(self._write_trees(inner, parts, model, "tree"), total, classes)

    def _divide(self, summed: Result, total: float, classes: Classes | None) -> Result:
        g = self.g
        if classes is None:
            return summed if total == 1.0 else Result(g.divide(summed.value, g.like(total, summed.value)))
        assert summed.probabilities is not None, summed
        return of_probabilities(g, g.divide(summed.probabilities, known(total, F64)), classes.names)

    def _combine_results(
        self,
        inner: Scope,
        models: Sequence[Element],
        weights: Sequence[float],
        total: float,
        classes: Classes | None,
        method: str,
    ) -> Result:
        g, added = self.g, None
        for number, (model, weight) in enumerate(zip(models, weights, strict=True)):
            result = self.write(inner, model, f"tree {number}")
            part = result.value
            if classes is not None:
                assert result.probabilities is not None, model
                part = result.probabilities
                if method in _VOTES:
                    position = g.unsqueeze(result.value, axes=(1,))
                    hot = g.cast(g.equal(position, known(np.arange(len(classes.names)), F64)), dtype=F64)
                    part = g.where(g.isnan(position), position, hot)
            part = part if weight == 1.0 else g.multiply(part, g.like(weight, part))
            added = part if added is None else g.add(added, part)
        assert added is not None, models
        return self._divide(Result(added, None if classes is None else added), total, classes)

    def _write_trees(
        self, inner: Scope, parts: Sequence[tuple[Element, Scope, Any]], owner: Element, label: str
    ) -> Result:
        g, dtype = self.g, _float_of(owner)
        columns, trees, shared = dict[str, int](), list[Tree](), dict[str, Tensor]()
        is_single = all(own.field.kind == "float" for _, scope, _ in parts for own in scope.columns.values())
        kind = np.float32 if is_single else np.float64
        for number, (model, scope, score) in enumerate(parts):
            made: dict[str, Tensor] = {}
            predicates = Predicates(scope, lambda x: float(np.nextafter(kind(x), kind(np.inf))), made)
            own = dict[str, int]()
            name = f"{label} {number}" if len(parts) > 1 or label == "tree" else label
            tree = TreeReader(model, predicates, own, score, name).read()
            positions = [self._place(column, scope, made, columns, shared) for column in own]
            if positions:
                feature = np.asarray(positions, np.int64)[tree.feature]
                tree = Tree(feature, tree.threshold, tree.left, tree.right, tree.flags, tree.values, tree.sets)
            trees.append(tree)
        matrix = [shared[name] for name in columns] or [g.like(0.0, self.rows)]
        matrix = [g.broadcast_to(x, shape=self.rows.shape) if x.shape != self.rows.shape else x for x in matrix]
        features = g.stack(*(g.cast(x, dtype=F32) if is_single else x for x in matrix), axis=1)
        width = parts[0][2].width
        initial = np.zeros((1, width), np.float64 if width > 1 or not isinstance(parts[0][2], Numeric) else dtype)
        ensemble = assemble(trees, [0] * len(trees), initial, features=len(matrix), compare="lt", dtype=kind)
        made_model = TreeModel(ensemble, len(matrix), dtype_of(np.zeros(0, kind)), identity, identity)
        tables = _Tables(g, f"trees.{self.ensembles}", find_ranks(made_model))
        self.ensembles += 1
        raw = write_raw(tables, made_model, g.value(features))
        total = Tensor(raw.type, raw)
        score = parts[0][2]
        if isinstance(score, Numeric):
            return Result(total)
        names = score.classes.names
        if isinstance(score, Vote):
            return Result(total, g.reshape(total, shape=(self.rows.shape[0], score.width)), names)
        count = len(names)
        probabilities = g.slice(total, starts=(None, 0), stops=(None, count))
        return Result(g.gather(total, known(np.int64(count)), axis=1, mode="clamp"), probabilities, names)

    def _place(
        self, name: str, scope: Scope, made: Mapping[str, Tensor], columns: dict[str, int], shared: dict[str, Tensor]
    ) -> int:
        """Returns the number of a column among those of the ensemble; equal tensors have one number."""
        tensor = made[name] if name in made else scope.columns[name].values
        for other, position in columns.items():
            if shared[other] is tensor:
                return position
        key = f"{len(columns)} {name}"
        shared[key] = tensor
        return columns.setdefault(key, len(columns))

    # Chains

    def _chain(self, inner: Scope, segments: Sequence[Element]) -> Result:
        """Each model reads the outputs of the previous ones; the last one gives the result."""
        self._require_true(segments, "modelChain")
        scope = Scope(inner.g, dict(inner.columns), inner.invalid)
        for number, segment in enumerate(segments):
            model = self._model_of(segment)
            result = self.write(scope, model, f"tree {number}")
            if number == len(segments) - 1:
                return result
            self._add_outputs(scope, model, result)
        raise AssertionError(segments)

    def _add_outputs(self, scope: Scope, model: Element, result: Result) -> None:
        outputs = model.first("Output")
        for output in outputs.all("OutputField") if outputs is not None else ():
            name, feature = output.attribute("name"), output.attributes.get("feature", "predictedValue")
            value: Tensor | None = None
            if feature == "predictedValue":
                value = result.value
            elif feature == "probability" and result.probabilities is not None:
                position = Classes(None, result.classes).index(output.attribute("value"), output)
                value = self.g.gather(result.probabilities, known(np.int64(position)), axis=1, mode="clamp")
            elif feature == "transformedValue":
                expression = output.first("FieldRef", "Apply", "Constant", "NormContinuous")
                value = None if expression is None else write_expression(scope, expression)
            if value is None:
                output.fail(f"an output has the feature `{feature}`, which is not supported", code="unsupported-trees")
            is_class = feature == "predictedValue" and result.probabilities is not None
            own = Field(name, "string" if is_class else "double", result.classes if is_class else (), (), (), output)
            value = value if value.dtype == F64 else self.g.cast(value, dtype=F64)
            scope.columns[name] = Column(own, value)

    def _select_first(self, inner: Scope, segments: Sequence[Element]) -> Result:
        predicates = Predicates(inner, lambda x: float(np.nextafter(x, np.inf)), {})
        guarded = []
        for number, segment in enumerate(segments):
            holds, _ = predicates.write(self._predicate(segment))
            guarded.append((holds, self.write(inner, self._model_of(segment), f"tree {number}")))
        return choose_first(self.g, guarded)


def _float_of(model: Element) -> Any:
    return np.float32 if model.choice("x-mathContext", "double", "float") == "float" else np.float64
