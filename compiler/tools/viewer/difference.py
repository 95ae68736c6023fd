"""The page of two models: the graph of each, with the nodes of the second that the first does not have.

Names of values differ where a node was inserted, so nodes are compared by what they compute: the operator, the types,
the attributes and the block. The longest common subsequence of each function's nodes is the same in both; a node in the
place of another one of the same operator has changed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from difflib import SequenceMatcher

from .data import Json, PageData
from .drawing import Drawing


def add_both(
    data: PageData, drawings: tuple[Drawing, Drawing], stages: tuple[int, int], names: tuple[str, str]
) -> None:
    """Adds a stage of each of two drawings to an empty page; `data.sources` are the texts of both."""
    shown: list[list[int]] = []
    first_source = 0
    for drawing, number, name in zip(drawings, stages, names, strict=True):
        stage = drawing.stages[number]
        count = len(drawing.sources)
        data.read_sources = range(first_source, first_source + count)
        file: dict[str, Json] = {"file": first_source} if count else {}
        first_source += count
        root, depth = data.show(stage.module)
        shown.append(data.shown_nodes())
        what = f"The graph of {name}{f' after the pass {stage.name}' if stage.number else ', as the file says it'}."
        unmarked: dict[str, Json] = {"added": [], "changed": [], "removed": 0}
        data.stages.append({"root": root, "depth": depth, **unmarked, "name": name, "what": what, "rules": [], **file})
    data.stages[1] |= compare_nodes(
        [data.nodes.rows[n] for n in shown[0]], [data.nodes.rows[n] for n in shown[1]], shown[1]
    )


def compare_nodes(before: Sequence[Json], now: Sequence[Json], numbers: Sequence[int]) -> Mapping[str, Json]:
    """Returns the marks of the second graph's nodes, given the rows of both; `numbers` are those of the second."""
    added: list[int] = []
    changed: list[int] = []
    removed = 0
    matcher = SequenceMatcher(None, [_key(row) for row in before], [_key(row) for row in now], autojunk=False)
    for kind, i, after_i, j, after_j in matcher.get_opcodes():
        if kind == "equal":
            continue
        old = [_operator(row) for row in before[i:after_i]]
        for number, row in zip(numbers[j:after_j], now[j:after_j], strict=True):
            if _operator(row) in old:
                old.remove(_operator(row))
                changed.append(number)
            else:
                added.append(number)
        removed += len(old)
    return {"added": added, "changed": changed, "removed": removed}


def _key(row: Json) -> Hashable:
    function, op, results, operands, attributes, scope, *_ = row
    types = tuple(type for _, type in results)
    # The constant of an operand has no node of its own: its type is compared.
    return function, op, scope, types, attributes, tuple((type, parameter) for _, type, parameter in operands)


def _operator(row: Json) -> Hashable:
    function, op, *_ = row
    return function, op
