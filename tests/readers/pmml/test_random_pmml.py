"""Random PMML models beside a plain evaluator: trees of every predicate and strategy, and ways to combine them.

Rows have missing values, thresholds, texts that the dictionary lists, and numbers that stand for no text. Numbers have
the same bits, except those of means and link functions, which agree within 1e-12.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import nacre
import numpy as np
import pytest
from nacre.compiler.readers.table import read_file
from nacre.compiler.weights import Checkpoint
from nacre.dialect.graph import Parameter
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.types import Array
from pmml_evaluator import Evaluator

COLOURS = ("red", "green", 'deep "blue"', "no colour")
CLASSES = ("low", "middle", "high")
CUTS = (-1.5, -0.5, 0.0, 0.1, 1.0, 2.5)
STRATEGIES = ("none", "defaultChild", "lastPrediction", "nullPrediction")
NUMBERS = ("a", "b", "n")
MODELS = 24
ROWS = 60


def among(name: str, values: str) -> str:
    array = f'<Array type="string">{values}</Array>'
    return f'<SimpleSetPredicate field="{name}" booleanOperator="isIn">{array}</SimpleSetPredicate>'


class Writer:
    """Writes random models; with `is_sure`, most rows have a prediction."""

    def __init__(self, seed: int, *, classes: bool) -> None:
        self.rng, self.has_classes, self.nodes, self.is_sure = np.random.default_rng(seed), classes, 0, False
        self.treatments = {
            name: str(self.rng.choice(["", "", 'invalidValueTreatment="asIs"', 'invalidValueTreatment="asMissing"']))
            for name in (*NUMBERS, "colour", "flag")
        }
        replaced = 'missingValueReplacement="0.1" '
        self.replacements = {name: replaced if self.rng.random() < 0.15 else "" for name in ("a", "b")}

    def pick(self, *values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def file(self, model: str) -> str:
        colours = "".join(f"<Value value={quoteattr(c)}/>" for c in COLOURS)
        target = "".join(f'<Value value="{c}"/>' for c in CLASSES) if self.has_classes else ""
        kind = 'optype="categorical" dataType="string"' if self.has_classes else 'optype="continuous" dataType="double"'
        limits = '<Interval closure="closedClosed" leftMargin="-2" rightMargin="9"/>'
        return (
            '<PMML version="4.4" xmlns="http://www.dmg.org/PMML-4_4"><Header/><DataDictionary>'
            '<DataField name="a" optype="continuous" dataType="double"/>'
            '<DataField name="b" optype="continuous" dataType="float"/>'
            f'<DataField name="n" optype="continuous" dataType="integer">{limits}</DataField>'
            f'<DataField name="colour" optype="categorical" dataType="string">{colours}</DataField>'
            '<DataField name="flag" optype="categorical" dataType="boolean"><Value value="false"/>'
            f'<Value value="true"/></DataField><DataField name="y" {kind}>{target}</DataField>'
            f"</DataDictionary>{model}</PMML>"
        )

    def schema(self) -> str:
        fields = "".join(
            f'<MiningField name="{name}" {self.treatments[name]} {self.replacements.get(name, "")}/>'
            for name in (*NUMBERS, "colour", "flag")
        )
        return f'<MiningSchema>{fields}<MiningField name="y" usageType="target"/></MiningSchema>'

    def function(self) -> str:
        return f'functionName="{"classification" if self.has_classes else "regression"}"'

    def simple(self, names: tuple[str, ...] = (*NUMBERS, "colour", "flag")) -> str:
        name = self.pick(*names)
        if self.rng.random() < 0.1:
            return f'<SimplePredicate field="{name}" operator="{self.pick("isMissing", "isNotMissing")}"/>'
        if name == "colour" and self.rng.random() < 0.7:
            return self.colours(int(self.rng.integers(1, 15)))
        if name in ("colour", "flag"):
            value = self.pick(*COLOURS) if name == "colour" else self.pick("true", "false")
            operator = self.pick("equal", "notEqual")
            return f'<SimplePredicate field="{name}" operator="{operator}" value={quoteattr(value)}/>'
        if self.rng.random() < 0.1:
            return among(name, "0.1 1 -0.5")
        orders = ("lessThan", "lessOrEqual", "greaterThan", "greaterOrEqual")
        operator = self.pick(*orders) if self.rng.random() < 0.9 else self.pick("equal", "notEqual")
        return f'<SimplePredicate field="{name}" operator="{operator}" value="{self.pick(*CUTS)}"/>'

    def colours(self, bits: int) -> str:
        own = " ".join('"' + c.replace('"', '\\"') + '"' for i, c in enumerate(COLOURS) if bits >> i & 1)
        return among("colour", own)

    def predicate(self, depth: int = 0) -> str:
        if depth > 2 or self.rng.random() < 0.8:
            return self.pick(self.simple(), self.simple(), self.simple(), self.simple(), "<True/>", "<False/>") if (
                depth or self.rng.random() < 0.1) else self.simple()  # fmt: skip
        parts = "".join(self.predicate(depth + 1) for _ in range(int(self.rng.integers(2, 4))))
        operator = self.pick("and", "or", "xor", "surrogate")
        return f'<CompoundPredicate booleanOperator="{operator}">{parts}</CompoundPredicate>'

    def pair(self) -> list[str]:
        """Returns a predicate and its opposite."""
        if self.rng.random() < 0.3:
            bits = int(self.rng.integers(1, 15))
            return [self.colours(bits), self.colours(15 - bits)]
        name, cut = self.pick(*NUMBERS), self.pick(*CUTS)
        below, above = self.pick(("lessThan", "greaterOrEqual"), ("lessOrEqual", "greaterThan"))
        both = [f'<SimplePredicate field="{name}" operator="{o}" value="{cut}"/>' for o in (below, above)]
        return both if self.rng.random() < 0.5 else both[::-1]

    def score(self) -> str:
        if not self.has_classes:
            return f'score="{self.rng.normal():.6f}"' if self.is_sure or self.rng.random() < 0.95 else ""
        return f'score="{self.pick(*CLASSES)}"' if self.rng.random() < 0.6 else ""

    def node(self, predicate: str, depth: int) -> str:
        self.nodes += 1
        own, inner, default = self.nodes, "", ""
        if self.has_classes:
            counts = self.rng.integers(1, 9, len(CLASSES))
            inner = "".join(
                f'<ScoreDistribution value="{c}" recordCount="{n}"/>' for c, n in zip(CLASSES, counts, strict=True)
            )
        if depth and self.rng.random() < 0.85:
            style = self.rng.random()
            if style < 0.5:
                tests = self.pair()
            elif style < 0.6:
                tests = [self.pair()[0], "<True/>"]
            else:
                tests = [self.predicate() for _ in range(int(self.rng.integers(1, 4)))]
            first = []
            for test in tests:
                first.append(self.nodes + 1)
                inner += self.node(test, depth - 1)
            default = f'defaultChild="{self.pick(*first)}"'
        default += f' recordCount="{sum(counts)}"' if self.has_classes else ""
        return f'<Node id="{own}" {self.score()} {default}>{predicate}{inner}</Node>'

    def tree(self, extra: str = "", strategy: str = "") -> str:
        start = "<True/>" if self.is_sure or self.rng.random() < 0.9 else self.simple()
        last = self.pick("returnLastPrediction", *([] if self.is_sure else ["returnNullPrediction"]))
        strategy = strategy or self.pick(*STRATEGIES[: 3 if self.is_sure else 4])
        return (
            f'<TreeModel {self.function()} missingValueStrategy="{strategy}" '
            f'noTrueChildStrategy="{last}">{self.schema()}{extra}{self.node(start, 4)}</TreeModel>'
        )

    def mining(self, method: str, parts: list[str], conditions: list[str] | None = None) -> str:
        conditions = conditions or ["<True/>"] * len(parts)
        segments = "".join(
            f'<Segment id="{i}" weight="{self.pick(0.5, 1, 3)}">{conditions[i]}{part}</Segment>'
            for i, part in enumerate(parts)
        )
        head = f"<MiningModel {self.function()}>{self.schema()}"
        return f'{head}<Segmentation multipleModelMethod="{method}">{segments}</Segmentation></MiningModel>'


def random_rows(rng: np.random.Generator) -> tuple[Array, list[dict[str, Any]]]:
    """Returns rows as numbers, and as records for the evaluator."""
    near = [f(c) for c in CUTS for f in (float, lambda c: np.nextafter(c, 9), lambda c: np.nextafter(c, -9))]
    x = np.stack(
        [
            rng.choice(near, ROWS),
            rng.choice(np.float32(near), ROWS).astype(np.float64),
            rng.integers(-3, 11, ROWS),
            rng.integers(0, 5, ROWS),
            rng.integers(0, 2, ROWS),
        ],
        1,
    ).astype(np.float64)
    x[rng.random(x.shape) < 0.15] = np.nan
    records = []
    for a, b, n, colour, flag in x:
        record = {"a": a, "b": b, "n": n}
        record = {name: None if np.isnan(value) else float(value) for name, value in record.items()}
        record["colour"] = None if np.isnan(colour) else (*COLOURS, "none of these")[int(colour)]
        record["flag"] = None if np.isnan(flag) else ("false", "true")[int(flag)]
        records.append(record)
    return x, records


def interpret(path: Path, entry: str, x: Array) -> Array:
    source = read_file(path)
    weights = source.weights[entry]

    def load(parameter: Parameter) -> Array:
        assert isinstance(weights, Checkpoint)
        read = weights.tensors[parameter.name].load
        assert read is not None
        return read()

    with np.errstate(all="ignore"):
        return np.asarray(Interpreter(source.module, load).run(entry, [x])[0])


def expected(text: str, records: list[dict[str, Any]], *, classes: bool) -> tuple[Array, Array]:
    evaluator = Evaluator(text)
    answers = [evaluator.predict(record) for record in records]
    if not classes:
        return np.asarray([np.nan if a.value is None else a.value for a in answers]), np.zeros((len(records), 0))
    shares = np.asarray([[np.nan if a.shares is None else a.shares[c] for c in CLASSES] for a in answers])
    return np.asarray([np.nan if a.value is None else CLASSES.index(a.value) for a in answers], np.float64), shares


def check(text: str, seed: int, folder: Path, *, classes: bool, rtol: float = 0.0) -> int:
    """Compares a model with the evaluator; returns the number of rows with a prediction."""
    path = folder / "model.pmml"
    path.write_text(text)
    x, records = random_rows(np.random.default_rng(seed))
    values, shares = expected(text, records, classes=classes)
    np.testing.assert_allclose(interpret(path, "main", x), values, rtol=rtol, err_msg=f"seed {seed}")
    if classes:
        np.testing.assert_allclose(interpret(path, "probabilities", x), shares, rtol=max(rtol, 1e-15))
    return int((~np.isnan(values)).sum())


@pytest.mark.parametrize("classes", [False, True], ids=["numbers", "classes"])
def test_trees(classes: bool, tmp_path: Path) -> None:
    predicted = 0
    for seed in range(MODELS):
        writer = Writer(seed, classes=classes)
        predicted += check(writer.file(writer.tree()), seed, tmp_path, classes=classes)
    assert predicted > MODELS * ROWS // 8, predicted


@pytest.mark.parametrize("strategy", ["weightedConfidence", "aggregateNodes"])
def test_missing_values_that_lead_to_several_leaves(strategy: str, tmp_path: Path) -> None:
    predicted = 0
    for seed in range(6):
        writer = Writer(600 + seed, classes=True)
        writer.is_sure = seed % 2 > 0
        predicted += check(writer.file(writer.tree(strategy=strategy)), seed, tmp_path, classes=True, rtol=1e-12)
    parts = [writer.tree(strategy=strategy), writer.tree()]
    predicted += check(writer.file(writer.mining("average", parts)), 1, tmp_path, classes=True, rtol=1e-12)
    assert predicted > ROWS, predicted


@pytest.mark.parametrize("method", ["sum", "weightedSum", "average", "weightedAverage"])
def test_sums_of_numbers(method: str, tmp_path: Path) -> None:
    for seed in range(4):
        writer = Writer(100 + seed, classes=False)
        writer.is_sure = seed > 1
        parts = [writer.tree() for _ in range(4)]
        check(writer.file(writer.mining(method, parts)), seed, tmp_path, classes=False, rtol=1e-12)


@pytest.mark.parametrize("method", ["average", "weightedAverage", "majorityVote", "weightedMajorityVote"])
def test_votes_for_classes(method: str, tmp_path: Path) -> None:
    for seed in range(4):
        writer = Writer(200 + seed, classes=True)
        writer.is_sure = seed > 1
        parts = [writer.tree() for _ in range(4)]
        check(writer.file(writer.mining(method, parts)), seed, tmp_path, classes=True, rtol=1e-12)


TARGETS = '<Targets><Target field="y" rescaleFactor="0.5" rescaleConstant="3" min="-1" max="1"/></Targets>'


def test_targets_and_nested_ensembles(tmp_path: Path) -> None:
    for seed in range(4):
        writer = Writer(300 + seed, classes=False)
        inner = writer.mining("average", [writer.tree(), writer.tree(TARGETS)])
        parts = [writer.tree(TARGETS), inner, writer.tree()]
        check(writer.file(writer.mining("sum", parts)), seed, tmp_path, classes=False, rtol=1e-12)


@pytest.mark.parametrize("classes", [False, True], ids=["numbers", "classes"])
def test_the_first_segment_whose_condition_holds(classes: bool, tmp_path: Path) -> None:
    for seed in range(3):
        writer = Writer(400 + seed, classes=classes)
        parts = [writer.tree() for _ in range(3)]
        conditions = [writer.simple(), writer.predicate(), writer.pick("<True/>", writer.simple())]
        text = writer.file(writer.mining("selectFirst", parts, conditions))
        check(text, seed, tmp_path, classes=classes)


@pytest.mark.parametrize("link", ["softmax", "simplemax"])
def test_a_chain_that_ends_with_a_regression(link: str, tmp_path: Path) -> None:
    """The scores of three sums of trees become probabilities."""
    writer = Writer(500, classes=False)
    writer.is_sure = True
    parts = []
    for name in CLASSES:
        sums = writer.mining("sum", [writer.tree() for _ in range(3)])
        output = f'<Output><OutputField name="score {name}" feature="predictedValue"/></Output>'
        parts.append(sums.replace("<Segmentation", f"{output}<Segmentation", 1))
    writer.has_classes = True
    fields = "".join(f'<MiningField name="score {name}"/>' for name in CLASSES)
    tables = "".join(
        f'<RegressionTable intercept="0.25" targetCategory="{name}"><NumericPredictor name="score {name}" '
        'coefficient="2"/></RegressionTable>' for name in reversed(CLASSES)
    )  # fmt: skip
    parts.append(
        f'<RegressionModel functionName="classification" normalizationMethod="{link}"><MiningSchema>{fields}'
        f'<MiningField name="y" usageType="target"/></MiningSchema>{tables}</RegressionModel>'
    )
    assert check(writer.file(writer.mining("modelChain", parts)), 1, tmp_path, classes=True, rtol=1e-12)


@pytest.mark.usefixtures("unchecked")  # the evaluator is a stricter check
def test_compiled_code(tmp_path: Path) -> None:
    writer = Writer(7, classes=False)
    text = writer.file(writer.mining("sum", [writer.tree() for _ in range(5)]))
    (tmp_path / "model.pmml").write_text(text)
    model = nacre.compile(tmp_path / "model.pmml", tmp_path / "model.so")
    x, records = random_rows(np.random.default_rng(1))
    values, _ = expected(text, records, classes=False)
    for rows in (len(x), 0, 1, 7):
        np.testing.assert_array_equal(model(x[:rows]), values[:rows])
