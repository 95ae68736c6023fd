"""The scores of nodes: a number, or the shares of classes and the chosen class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..trees.tree import Numbers
from .fields import Field
from .markup import Element


@dataclass(frozen=True, slots=True)
class Numeric:
    """Scores of a regression, multiplied by a weight."""

    dtype: Any
    weight: float = 1.0
    width: int = 1

    def __call__(self, node: Element | None) -> Numbers:
        text = None if node is None else node.attributes.get("score")
        if node is None or text is None:
            return np.asarray([np.nan])
        value = np.asarray([node.parse_number(text, "`score` of `Node`")]).astype(self.dtype)
        return np.asarray(value * self.dtype(self.weight))


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes of a target. `names` grow where the file does not list them."""

    target: Field | None
    names: tuple[str, ...]

    def index(self, text: str, at: Element) -> int:
        if text in self.names:
            return self.names.index(text)
        if self.target is not None and self.target.is_numeric:
            # A class may be written in another way, such as 1.0.
            number = at.parse_number(text, "a class")
            for position, name in enumerate(self.names):
                if float(name) == number:
                    return position
        at.fail(f"`{text}` is not a class of the target")


def classes_of(model: Element, target: Field | None) -> Classes:
    """Returns the values of the target; if it lists none, the classes of the model in the order of the file."""
    if target is not None and target.values:
        return Classes(target, target.values)
    found: dict[str, None] = {}
    pending = [model]
    while pending:
        element = pending.pop()
        if element.name == "ScoreDistribution":
            found[element.attribute("value")] = None
        elif element.name == "RegressionTable" and "targetCategory" in element.attributes:
            found[element.attributes["targetCategory"]] = None
        elif element.name == "Node" and "score" in element.attributes and element.first("ScoreDistribution") is None:
            found[element.attributes["score"]] = None
        pending += reversed(element.children)
    if not found:
        model.fail("the classes of the model are not listed")
    return Classes(target, tuple(found))


@dataclass(frozen=True, slots=True)
class Distribution:
    """The shares of the classes, multiplied by a weight, followed by the index of the chosen class."""

    classes: Classes
    weight: float = 1.0

    @property
    def width(self) -> int:
        return len(self.classes.names) + 1

    def __call__(self, node: Element | None) -> Numbers:
        shares, chosen = self.read(node)
        return np.append(shares * self.weight, chosen)

    def read(self, node: Element | None) -> tuple[Numbers, float]:
        names, none = self.classes.names, np.full(len(self.classes.names), np.nan)
        if node is None:
            return none, np.nan
        listed = list(node.all("ScoreDistribution"))
        if not listed:
            if "score" not in node.attributes:
                return none, np.nan
            position = self.classes.index(node.attributes["score"], node)
            return np.eye(len(names))[position], float(position)
        shares = np.zeros(len(names))
        has_shares = all("probability" in part.attributes for part in listed)
        for part in listed:
            value = part.number("probability" if has_shares else "recordCount")
            shares[self.classes.index(part.attribute("value"), part)] = value
        if not has_shares:
            if shares.sum() <= 0:
                node.fail("the counts of classes of a node do not have a positive sum")
            shares = shares / shares.sum()
        score = node.attributes.get("score")
        return shares, float(np.argmax(shares) if score is None else self.classes.index(score, node))


@dataclass(frozen=True, slots=True)
class Vote:
    """A weighted vote for the chosen class."""

    classes: Classes
    weight: float = 1.0

    @property
    def width(self) -> int:
        return len(self.classes.names)

    def __call__(self, node: Element | None) -> Numbers:
        _, chosen = Distribution(self.classes).read(node)
        if np.isnan(chosen):
            return np.full(self.width, np.nan)
        return np.asarray(np.eye(self.width)[int(chosen)] * self.weight)
