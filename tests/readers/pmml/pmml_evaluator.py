"""A plain evaluator of PMML, row by row, by the rules of the specification (version 4.4, https://dmg.org/pmml).

It walks the elements of the standard library's parser and shares no code with the compiler. A row is a record of
numbers and texts; None is a missing value. The result is a number or None, or a class with the shares of all classes.
"""

from __future__ import annotations

import math
import struct
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
INVALID = object()


@dataclass(frozen=True)
class Answer:
    """The predicted number or class; `shares` are the probabilities of classes."""

    value: Any
    shares: Mapping[str, float] | None = None


def local(element: Any) -> str:
    return str(element.tag).rpartition("}")[2]


def children(element: Any, *names: str) -> list[Any]:
    return [child for child in element if local(child) in names]


def words(array: Any) -> list[str]:
    text, found, word, quoted, escaped = array.text or "", [], "", False, False
    for character in text + " ":
        if escaped or character == "\\":
            word, escaped = word + character * escaped, not escaped
        elif character == '"':
            quoted = not quoted
        elif character.isspace() and not quoted:
            if word:
                found.append(word)
            word = ""
        else:
            word += character
    return found


class Evaluator:
    def __init__(self, text: str) -> None:
        root = ElementTree.fromstring(text)
        (dictionary,) = children(root, "DataDictionary")
        self.fields = {f.get("name"): f for f in children(dictionary, "DataField")}
        self.model = children(root, "TreeModel", "MiningModel", "RegressionModel")[0]

    def classes(self) -> list[str]:
        (schema,) = children(self.model, "MiningSchema")
        target = next(f.get("name") for f in children(schema, "MiningField") if f.get("usageType") == "target")
        return [v.get("value") for v in children(self.fields[target], "Value")]

    def predict(self, row: Row) -> Answer:
        try:
            return self.run(self.model, row)
        except ValueError:
            return Answer(None)

    def parse(self, name: str, text: str) -> Any:
        kind = self.fields[name].get("dataType") if name in self.fields else "double"
        if kind in ("string", "boolean"):
            return text
        (rounded,) = struct.unpack("f", struct.pack("f", float(text)))
        return rounded if kind == "float" else float(text)

    # Predicates: True, False, or None

    def holds(self, p: Any, row: Row) -> bool | None:
        kind = local(p)
        if kind in ("True", "False"):
            return kind == "True"
        if kind == "CompoundPredicate":
            return self.compound(p, row)
        name = p.get("field")
        x = row.get(name)
        if kind == "SimplePredicate" and p.get("operator") in ("isMissing", "isNotMissing"):
            return (x is None) == (p.get("operator") == "isMissing")
        if x is None:
            return None
        if kind == "SimpleSetPredicate":
            (array,) = children(p, "Array")
            return (x in [self.parse(name, w) for w in words(array)]) == (p.get("booleanOperator") == "isIn")
        value = self.parse(name, p.get("value"))
        return {
            "equal": lambda: x == value,
            "notEqual": lambda: x != value,
            "lessThan": lambda: x < value,
            "lessOrEqual": lambda: x <= value,
            "greaterThan": lambda: x > value,
            "greaterOrEqual": lambda: x >= value,
        }[p.get("operator")]()

    def compound(self, p: Any, row: Row) -> bool | None:
        parts = [self.holds(c, row) for c in p]
        operator = p.get("booleanOperator")
        if operator == "surrogate":
            return next((part for part in parts if part is not None), None)
        if operator == "xor":
            return None if None in parts else sum(map(bool, parts)) % 2 == 1
        decisive = operator == "or"
        if decisive in parts:
            return decisive
        return None if None in parts else not decisive

    # Models

    def treat(self, model: Any, row: Row) -> dict[str, Any]:
        """Returns the row as a model sees it. Raises ValueError for a value that is an error."""
        seen: dict[str, Any] = {}
        (schema,) = children(model, "MiningSchema")
        for mining in children(schema, "MiningField"):
            name = mining.get("name")
            if mining.get("usageType", "active") != "active":
                continue
            x = row.get(name)
            declared = self.fields.get(name)
            if x is not None and declared is not None:
                allowed = [self.parse(name, v.get("value")) for v in children(declared, "Value")]
                ranges = [
                    (float(i.get("leftMargin", "-inf")), float(i.get("rightMargin", "inf")))
                    for i in children(declared, "Interval")
                ]
                fits = not (allowed or ranges) or x in allowed or any(a <= x <= b for a, b in ranges)
                treatment = mining.get("invalidValueTreatment", "returnInvalid")
                if not fits and treatment == "returnInvalid":
                    raise ValueError(name)
                if not fits and treatment == "asMissing":
                    x = None
            if x is None and mining.get("missingValueReplacement") is not None:
                x = self.parse(name, mining.get("missingValueReplacement"))
            seen[name] = x
        return seen

    def run(self, model: Any, row: Row) -> Answer:
        seen = self.treat(model, row)
        if local(model) == "TreeModel":
            answer = self.tree(model, seen)
        elif local(model) == "RegressionModel":
            answer = self.regression(model, seen)
        else:
            answer = self.segments(model, seen)
        return self.rescaled(model, answer)

    def rescaled(self, model: Any, answer: Answer) -> Answer:
        x = answer.value
        for targets in children(model, "Targets"):
            for target in children(targets, "Target"):
                if x is not None and answer.shares is None:
                    x = max(x, float(target.get("min", "-inf")))
                    x = min(x, float(target.get("max", "inf")))
                    x = x * float(target.get("rescaleFactor", "1")) + float(target.get("rescaleConstant", "0"))
                    if target.get("castInteger") == "round":
                        x = math.floor(x + 0.5)
        return Answer(x, answer.shares)

    def tree(self, model: Any, row: Row) -> Answer:
        (node,) = children(model, "Node")
        classifies = model.get("functionName") == "classification"
        if self.holds(self.predicate(node), row) is not True:
            return Answer(None)
        if model.get("missingValueStrategy") in ("weightedConfidence", "aggregateNodes"):
            return self.virtual(model, node, row)
        while children(node, "Node"):
            following = self.step(model, node, row)
            if following is None:
                return Answer(None)
            if following is node:
                break
            node = following
        return self.score(node, classifies)

    def predicate(self, node: Any) -> Any:
        return children(node, "SimplePredicate", "SimpleSetPredicate", "CompoundPredicate", "True", "False")[0]

    def step(self, model: Any, node: Any, row: Row) -> Any:
        """Returns the child to go on with, the node itself if its score counts, or None for no prediction."""
        strategy = model.get("missingValueStrategy", "none")
        for child in children(node, "Node"):
            found = self.holds(self.predicate(child), row)
            if found:
                return child
            if found is None and strategy == "defaultChild":
                return next(c for c in children(node, "Node") if c.get("id") == node.get("defaultChild"))
            if found is None and strategy == "lastPrediction":
                return node
            if found is None and strategy == "nullPrediction":
                return None
        return node if model.get("noTrueChildStrategy") == "returnLastPrediction" else None

    def virtual(self, model: Any, root: Any, row: Row) -> Answer:
        """Adds up the leaves that a row may reach, if it meets an unknown predicate."""
        is_weighted = model.get("missingValueStrategy") == "weightedConfidence"
        reached: list[tuple[float, Any]] = []
        met = False

        def visit(node: Any, weight: float) -> None:
            nonlocal met
            own = children(node, "Node")
            found = [self.holds(self.predicate(child), row) for child in own]
            end = found.index(True) if True in found else len(found)
            is_unknown = None in found[:end]
            met = met or is_unknown
            if is_unknown and is_weighted:
                open_ones = [c for c, held in zip(own, found, strict=True) if held is not False]
                total = sum(float(c.get("recordCount")) for c in open_ones)
                for c in open_ones:
                    visit(c, weight * float(c.get("recordCount")) / total)
                return
            taken = [c for c, held in zip(own[: end + 1], found, strict=False) if held is not False]
            if not own or (not taken and model.get("noTrueChildStrategy") == "returnLastPrediction"):
                reached.append((weight, node))
            for c in taken:
                visit(c, weight)

        visit(root, 1.0)
        answers = [self.score(node, True) for _, node in reached]
        if not reached or any(answer.value is None for answer in answers):
            return Answer(None)
        if not met:
            return answers[0]
        shares = dict.fromkeys(self.classes(), 0.0)
        for (weight, node), answer in zip(reached, answers, strict=True):
            counts = {p.get("value"): float(p.get("recordCount")) for p in children(node, "ScoreDistribution")}
            assert answer.shares is not None
            for name in shares:
                shares[name] += weight * (answer.shares[name] if is_weighted else counts[name])
        total = sum(shares.values())
        shares = {name: share / total for name, share in shares.items()}
        return Answer(self.likeliest(shares), shares)

    def score(self, node: Any, classifies: bool) -> Answer:
        if not classifies:
            return Answer(None if node.get("score") is None else float(node.get("score")))
        parts = children(node, "ScoreDistribution")
        if not parts:
            score = node.get("score")
            return Answer(score, None if score is None else {name: float(name == score) for name in self.classes()})
        total = sum(float(part.get("recordCount")) for part in parts)
        shares = dict.fromkeys(self.classes(), 0.0)
        for part in parts:
            share = part.get("probability")
            shares[part.get("value")] = float(part.get("recordCount")) / total if share is None else float(share)
        return Answer(node.get("score") or self.likeliest(shares), shares)

    def likeliest(self, shares: Mapping[str, float]) -> str:
        return max(self.classes(), key=lambda name: shares[name])

    def segments(self, model: Any, row: Row) -> Answer:
        (segmentation,) = children(model, "Segmentation")
        method = segmentation.get("multipleModelMethod")
        found = children(segmentation, "Segment")
        models = [children(s, "TreeModel", "MiningModel", "RegressionModel")[0] for s in found]
        if method == "selectFirst":
            for segment, own in zip(found, models, strict=True):
                if self.holds(self.predicate(segment), row):
                    return self.run(own, row)
            return Answer(None)
        if method == "modelChain":
            seen = dict(row)
            for own in models:
                answer = self.run(own, seen)
                for output in (o for outputs in children(own, "Output") for o in children(outputs, "OutputField")):
                    is_share = output.get("feature") == "probability"
                    value = output.get("value")
                    assert not is_share or answer.shares is not None
                    seen[output.get("name")] = (answer.shares or {}).get(value) if is_share else answer.value
            return answer
        weights = [float(s.get("weight", "1")) if method.startswith("weighted") else 1.0 for s in found]
        return self.combined(model, method, [self.run(own, row) for own in models], weights)

    def combined(self, model: Any, method: str, answers: Sequence[Answer], weights: Sequence[float]) -> Answer:
        if any(answer.value is None for answer in answers):
            return Answer(None)
        if model.get("functionName") == "regression":
            total = 0.0
            for answer, weight in zip(answers, weights, strict=True):
                total += answer.value * weight
            return Answer(total / sum(weights) if "verage" in method else total)
        shares = dict.fromkeys(self.classes(), 0.0)
        for answer, weight in zip(answers, weights, strict=True):
            for name in shares:
                own = float(name == answer.value) if "Vote" in method else (answer.shares or {})[name]
                shares[name] += own * weight
        shares = {name: share / sum(weights) for name, share in shares.items()}
        return Answer(self.likeliest(shares), shares)

    def regression(self, model: Any, row: Row) -> Answer:
        sums: dict[Any, float | None] = {}
        for table in children(model, "RegressionTable"):
            total: float | None = float(table.get("intercept"))
            for term in children(table, "NumericPredictor"):
                x = row.get(term.get("name"))
                power = float(term.get("exponent", "1"))
                total = None if x is None or total is None else total + x**power * float(term.get("coefficient"))
            for term in children(table, "CategoricalPredictor"):
                if total is not None and row.get(term.get("name")) == term.get("value"):
                    total += float(term.get("coefficient"))
            sums[table.get("targetCategory")] = total
        if any(total is None for total in sums.values()):
            return Answer(None)
        numbers = {name: total for name, total in sums.items() if total is not None}
        link = model.get("normalizationMethod", "none")
        if model.get("functionName") == "regression":
            (x,) = numbers.values()
            return Answer({"none": x, "exp": math.exp(min(x, 700)), "logit": 1 / (1 + math.exp(-x))}[link])
        if link == "softmax":
            most = max(numbers.values())
            powers = {name: math.exp(x - most) for name, x in numbers.items()}
            shares = {name: power / sum(powers.values()) for name, power in powers.items()}
        elif link == "simplemax":
            shares = {name: x / sum(numbers.values()) for name, x in numbers.items()}
        else:
            (first, x), (second, _) = numbers.items()
            share = x if link == "none" else 1 / (1 + math.exp(-x))
            shares = {first: share, second: 1 - share}
        return Answer(self.likeliest(shares), shares)
