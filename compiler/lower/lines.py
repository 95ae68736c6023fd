"""Source lines of the model in the text of entries: LLVM metadata by which debuggers find the model line of a kernel
call.

The metadata holds line tables only, without variables and types. Kernels get their line tables during code generation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from ...dialect.diagnostics import Span
from ...dialect.lazy_dataclass import dataclass
from .text import printable


@dataclass
class Metadata:
    """The numbered nodes of a module, each once."""

    nodes: dict[str, int] = field(default_factory=dict)
    unit: str = ""

    def add(self, node: str) -> str:
        """Returns the name of a node."""
        return f"!{self.nodes.setdefault(node, len(self.nodes))}"

    def file(self, span: Span) -> str:
        name = "".join(c if c not in '"\\' else f"\\{ord(c):02X}" for c in printable(span.file))
        return self.add(f'!DIFile(filename: "{name}", directory: "")')

    def subprogram(self, symbol: str, span: Span) -> Scope:
        """Returns the scope of a function that begins at the span."""
        file = self.file(span)
        if not self.unit:
            what = f"language: DW_LANG_C, file: {file}, isOptimized: true, emissionKind: LineTablesOnly"
            self.unit = self.add(f"distinct !DICompileUnit({what})")
        type = self.add(f"!DISubroutineType(types: {self.add('!{}')})")
        scope = f"scope: {file}, file: {file}, line: {span.line}, scopeLine: {span.line}"
        kind = f"type: {type}, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: {self.unit}"
        return Scope(self, self.add(f'distinct !DISubprogram(name: "{symbol}", {scope}, {kind})'), span)

    def text(self) -> str:
        if not self.unit:
            return ""
        flags = self.add('!{i32 2, !"Debug Info Version", i32 3}')
        nodes = "".join(f"!{number} = {node}\n" for node, number in self.nodes.items())
        return f"!llvm.dbg.cu = !{{{self.unit}}}\n!llvm.module.flags = !{{{flags}}}\n{nodes}"


@dataclass(frozen=True, slots=True)
class Scope:
    """A function with a line table; or, without a name, one without."""

    metadata: Metadata | None = None
    name: str = ""
    span: Span | None = None

    @property
    def definition(self) -> str:
        """Returns the text after the function's arguments."""
        return f" !dbg {self.name}" if self.name else ""

    def at(self, span: Span | None) -> str:
        """Returns the text after an instruction that comes from a span, or from the function as a whole."""
        if self.metadata is None or self.span is None:
            return ""
        origin, scope = span or self.span, self.name
        if origin.file != self.span.file:
            file = self.metadata.file(origin)
            scope = self.metadata.add(f"!DILexicalBlockFile(scope: {self.name}, file: {file}, discriminator: 0)")
        location = f"!DILocation(line: {origin.line}, column: {origin.column}, scope: {scope})"
        return f", !dbg {self.metadata.add(location)}"


Scopes = Callable[[str], Scope]
"""A function that returns the scope of each function of an entry, by its symbol."""


def no_lines(symbol: str) -> Scope:
    """Returns the scope of a function without a line table."""
    return Scope()
