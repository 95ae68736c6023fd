"""Tree ensembles in model text: a block with their tables, and comments in it that show the trees.

    block Trees(x: f64[B, 4]) -> total: f64[B, 1, 1], leaves: i32[B, 1, 1] {
      # 1 tree, 1 node, 2 leaves, depth 1, 1 feature read
      # tree 0
      #   node 0: x2 <= 0.5
      #     yes: leaf 0: 1.25
      #     no: leaf 1: -3.0
      feature = tensor([2], i32)
      ...
      total = tree_ensemble(x, feature, ...)
      leaves = tree_leaves(x, feature, ...)
      return total, leaves
    }

All models of a file share the block of an ensemble. Parameters as tables, which have no values here, need no block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ....dialect.graph import Attribute, Constant, Function, Node, constant_of, read_values
from ....dialect.lazy_dataclass import dataclass
from ....dialect.operator import Operator
from ....dialect.ops import OPERATORS
from ....dialect.ops.support.tree_text import EnsembleText
from ....dialect.ops.support.trees import OPERANDS_BEFORE, TABLES
from .model_text import Words, write_constant

_ENSEMBLE, _LEAVES, _LINEAR = "tree_ensemble", "tree_leaves", "linear_tree_sum"
_RESULTS = {_ENSEMBLE: "total", _LEAVES: "leaves", _LINEAR: "total"}
Key = tuple[bytes, ...]
_LEAVES_KEY = 3 + 2 * len(TABLES)
"""The length of the key of `tree_leaves`."""
AttributeWriter = Callable[[Node, Operator], Sequence[str]]


@dataclass(frozen=True, slots=True)
class TreeBlock:
    """A block that computes the result of a node: the name of its instance, its header, its lines, the number of its
    arguments, the names of its results, and the index of the node's result among them."""

    instance: str
    head: str
    lines: str
    arguments: int
    results: Sequence[str]
    own: int


@dataclass(frozen=True, slots=True)
class TreeNodes:
    """The nodes of a module that read an ensemble whose tables are constants, by that ensemble."""

    nodes: Mapping[Key, Mapping[str, Node]]
    tables: Mapping[Key, Sequence[Constant]]
    """The most tables that a node reads: those of the sum, if a node computes it."""

    @staticmethod
    def of(functions: Sequence[Function]) -> TreeNodes:
        nodes: dict[Key, dict[str, Node]] = {}
        tables: dict[Key, Sequence[Constant]] = {}
        for function in functions:
            known = _constants(function)
            for node in function.body:
                found = _tables_of(node, known)
                if found is not None:
                    key = _key(node, found)
                    nodes.setdefault(key, {}).setdefault(node.op, node)
                    tables.setdefault(key, found)
        # The leaves of an ensemble belong to the first sum over it.
        for key in [key for key in nodes if len(key) == _LEAVES_KEY]:
            sums = next((other for other in nodes if len(other) > len(key) and other[: len(key)] == key), None)
            if sums is not None:
                nodes[sums] |= nodes.pop(key)
                del tables[key]
        return TreeNodes(nodes, tables)

    def key(self, node: Node, found: Sequence[Constant]) -> Key:
        """Returns the key of a node's ensemble: that of a sum, if there is one over the same tables."""
        own = _key(node, found)
        return own if own in self.nodes else next(key for key in self.nodes if key[: len(own)] == own)

    def blocks(self, function: Function, words: Words, attributes: AttributeWriter) -> Mapping[str, TreeBlock]:
        """Returns the blocks of nodes of a function, by the names of their results."""
        known = _constants(function)
        found = [(node, _tables_of(node, known)) for node in function.body]
        return {n.output.name: self._block(n, t, words, attributes) for n, t in found if t is not None}

    def _block(self, node: Node, found: Sequence[Constant], words: Words, attributes: AttributeWriter) -> TreeBlock:
        key = self.key(node, found)
        nodes, tables = self.nodes[key], self.tables[key]
        used = [op for op in _RESULTS if op in nodes]
        record, before = OPERATORS[used[0]], OPERANDS_BEFORE[node.op]
        arguments = [operand.name for operand in record.operands[:before]]
        names = [operand.name for operand in record.operands[before:]][: len(tables)]
        lines = [f"# {line}" for line in _comments(node, tables)] if node.op != _LINEAR else []
        lines += [f"{name} = {write_constant(table)}" for name, table in zip(names, tables, strict=True)]
        for op in used:
            own = [*arguments, *names[: len(nodes[op].inputs) - before], *attributes(nodes[op], OPERATORS[op])]
            lines.append(f"{_RESULTS[op]} = {op}({', '.join(own)})")
        results = [_RESULTS[op] for op in used]
        lines.append(f"return {', '.join(results)}")
        taken = [f"{n}: {words.type(v.type)}" for n, v in zip(arguments, node.inputs, strict=False)]
        given = [f"{_RESULTS[op]}: {words.type(nodes[op].output.type)}" for op in used]
        head = f"({', '.join(taken)}) -> {', '.join(given)}"
        instance = "linear_leaves" if node.op == _LINEAR else "trees"
        return TreeBlock(instance, head, "\n".join(lines), before, results, used.index(node.op))


def only_in_blocks(function: Function, blocks: Mapping[str, TreeBlock]) -> set[str]:
    """Returns the names of the constants that are read only by nodes with blocks."""
    inside = [node for node in function.body if node.outputs and node.outputs[0].name in blocks]
    tables = {value.name for node in inside for value in node.inputs[OPERANDS_BEFORE[node.op] :]}
    outside = [node for node in function.body if node not in inside]
    other = {value.name for value in (*function.results, *(v for node in outside for v in read_values(node)))}
    return tables - other


def _constants(function: Function) -> Mapping[str, Constant]:
    found = ((node, constant_of(node)) for node in function.body)
    return {node.output.name: v for node, v in found if v is not None and v.array is not None}


def _tables_of(node: Node, known: Mapping[str, Constant]) -> Sequence[Constant] | None:
    operands = node.inputs[OPERANDS_BEFORE[node.op] :] if node.op in OPERANDS_BEFORE else ()
    return [known[v.name] for v in operands] if operands and all(v.name in known for v in operands) else None


def _key(node: Node, tables: Sequence[Constant]) -> Key:
    """Returns the key of a node: the features, the attributes and the tables. The key of `tree_leaves` begins that of a
    sum over the same trees."""
    attributes: Sequence[tuple[str, Attribute]] = sorted(node.attributes, key=lambda pair: pair[0])
    head = (str(node.op == _LINEAR), str([v.type for v in node.inputs[: OPERANDS_BEFORE[node.op]]]), str(attributes))
    parts = (part for table in tables for part in (str(table.type).encode(), table.data.tobytes()))
    return (*(text.encode() for text in head), *parts)


def _comments(node: Node, tables: Sequence[Constant]) -> Iterator[str]:
    text = EnsembleText.of([table.data for table in tables], node, OPERATORS[node.op])
    yield text.extent()
    yield from text.lines()
