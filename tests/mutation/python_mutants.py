"""Small faults in Python code: each mutant changes one place of one file.

    comparison    a < b              a <= b
    off-by-one    x + 1              x + 2
    operands      a - b              b - a
    operator      a + b              a - b
    condition     if c:              if not (c):
    statement     f(x)               pass
    axis          x.sum(axis=1)      x.sum(axis=0)

Annotations, docstrings, assertions and the text of errors are left alone: they do not change what is computed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """`text[start:end]` of a file becomes `replacement`. Positions count bytes of UTF-8; the line counts from 1."""

    kind: str
    line: int
    start: int
    end: int
    replacement: str

    def apply(self, text: str) -> str:
        data = text.encode()
        return (data[: self.start] + self.replacement.encode() + data[self.end :]).decode()


_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "+",
    ast.FloorDiv: "*",
    ast.Mod: "*",
    ast.BitAnd: "|",
    ast.BitOr: "&",
    ast.LShift: ">>",
    ast.RShift: "<<",
}
_NOT_COMMUTATIVE = (ast.Sub, ast.FloorDiv, ast.Div, ast.Mod, ast.MatMult, ast.LShift, ast.RShift)
_NUMBERED = ("axis", "axes", "dim", "keepdims")


class _Finder:
    def __init__(self, text: str) -> None:
        self.text = text
        self.data = text.encode()
        self.lines = [0]
        for line in self.data.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self.lines[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.lines[node.end_lineno - 1] + node.end_col_offset

    def source(self, node: ast.expr) -> str:
        return self.data[self.start(node) : self.end(node)].decode()

    def replace(self, kind: str, node: ast.expr | ast.stmt, replacement: str) -> Mutant:
        return Mutant(kind, node.lineno, self.start(node), self.end(node), replacement)

    def find(self, node: ast.AST) -> Iterator[Mutant]:
        yield from self.at(node)
        for child in self.children(node):
            yield from self.find(child)

    def children(self, node: ast.AST) -> Iterator[ast.AST]:
        """The parts of a node that compute something."""
        left_out: tuple[object, ...] = ()
        if isinstance(node, ast.Assert | ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
            return
        if isinstance(node, ast.FunctionDef):
            left_out = (node.returns, node.args, *node.decorator_list)
        elif isinstance(node, ast.AnnAssign):
            left_out = (node.annotation,)
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id[:1].isupper():
            left_out = (node.slice,)  # of a type
        for child in ast.iter_child_nodes(node):
            if not any(child is each for each in left_out) and not _is_type_alias(child):
                yield child

    def at(self, node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, ast.Compare):
            yield from self.comparisons(node)
        elif isinstance(node, ast.BinOp):
            yield from self.operators(node)
        elif isinstance(node, ast.BoolOp):
            other = " or " if isinstance(node.op, ast.And) else " and "
            parts = other.join(f"({self.source(value)})" for value in node.values)
            yield self.replace("operator", node, f"({parts})")
        elif isinstance(node, ast.If | ast.While | ast.IfExp):
            yield self.replace("condition", node.test, f"(not ({self.source(node.test)}))")
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield self.replace("off-by-one", node, str(node.value + 1))
        elif isinstance(node, ast.keyword) and node.arg in _NUMBERED:
            yield from self.axes(node.value)
        elif isinstance(node, ast.AugAssign | ast.Continue | ast.Break) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.YieldFrom | ast.Yield)
        ):
            yield self.replace("statement", node, "pass")

    def comparisons(self, node: ast.Compare) -> Iterator[Mutant]:
        if len(node.ops) > 1:
            return
        left, right = self.source(node.left), self.source(node.comparators[0])
        yield self.replace("comparison", node, f"({left} {_COMPARISONS[type(node.ops[0])]} {right})")

    def operators(self, node: ast.BinOp) -> Iterator[Mutant]:
        left, right = self.source(node.left), self.source(node.right)
        if isinstance(node.op, _NOT_COMMUTATIVE):
            between = self.data[self.end(node.left) : self.start(node.right)].decode().strip(" ()\n")
            yield self.replace("operands", node, f"(({right}) {between} ({left}))")
        if type(node.op) in _OPERATORS and not _is_text(node.left) and not _is_text(node.right):
            yield self.replace("operator", node, f"(({left}) {_OPERATORS[type(node.op)]} ({right}))")

    def axes(self, value: ast.expr) -> Iterator[Mutant]:
        source = self.source(value)
        if isinstance(value, ast.Constant) and isinstance(value.value, bool):
            yield self.replace("axis", value, str(not value.value))
        elif isinstance(value, ast.Constant | ast.UnaryOp) and source.lstrip("-").isdigit():
            yield self.replace("axis", value, "0" if source != "0" else "-1")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_type_alias(node: ast.AST) -> bool:
    """Whether a statement of a module names a type: `Load = Callable[[Parameter], Array]`."""
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Subscript | ast.BinOp)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id[:1].isupper()
        and not node.targets[0].id.isupper()
    )


def candidates(text: str) -> list[Mutant]:
    """Returns all mutants of a Python file, in the order of the text. A few may not parse."""
    found = dict.fromkeys(_Finder(text).find(ast.parse(text)))
    return sorted(found, key=lambda mutant: (mutant.start, mutant.end, mutant.kind))


def find_mutants(text: str) -> list[Mutant]:
    """Returns the mutants that parse."""
    return [mutant for mutant in candidates(text) if parses(mutant.apply(text))]


def parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True
