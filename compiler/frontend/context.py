"""What all steps of elaboration share: reporting, limits, the tables of the program, and the way back to `evaluate`.

The steps need each other in a circle (an expression calls a block, whose body holds expressions); the circle is closed
here, by a slot, so that the files that import each other form a tree.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...dialect.diagnostics import Diagnostic, Note, Span
from ...dialect.dims import Extreme, FloorDiv, Poly, Size, Symbol, bounds
from ...dialect.graph import Parameter
from . import syntax
from .values import ERROR, AnyValue, Frame, InstancePath, Poison
from .writer import Writer

# What stops an input that would take the compiler's time or memory instead of being a model.
NODES = 50_000
STEPS = 1_000_000
DIAGNOSTICS = 200
CALL_DEPTH = 48
EXPRESSION_DEPTH = 180
ARRAY_COUNT = 1 << 16
ELEMENTS = 1 << 48
RANK = 16
INTEGER = 1 << 63
SIZE_PARTS = 160


class LimitError(Exception):
    """A limit was met and has been reported: nothing further is told of this input."""


def suggest(name: str, candidates: Iterable[str]) -> str:
    """The help for a name that is not known: the nearest one that is, or nothing."""
    pool = [c for c in candidates if c != name]
    close = difflib.get_close_matches(name, pool, 1, 0.6)
    if not close:
        close = [c for c in pool if c.lower() == name.lower()][:1]
    return f"did you mean `{close[0]}`?" if close else ""


@dataclass(slots=True)
class Reporter:
    """Gathers diagnostics, one for each code and place. `admitted` restricts the codes that are told."""

    sources: dict[str, str]
    diagnostics: list[Diagnostic] = field(default_factory=list)
    admitted: frozenset[str] | None = None
    _seen: set[tuple[str, Span | None]] = field(default_factory=set)

    def error(
        self,
        code: str,
        message: str,
        span: Span | None,
        label: str = "",
        *,
        notes: Sequence[Note] = (),
        help: str = "",
        severity: str = "error",
    ) -> Poison:
        """Reports, and gives the value that stands for what is wrong."""
        self.add(Diagnostic(code, message, span, label, tuple(notes), help, severity))
        return ERROR

    def add(self, diagnostic: Diagnostic) -> None:
        key = diagnostic.code, diagnostic.span
        if key in self._seen or (self.admitted is not None and diagnostic.code not in self.admitted):
            return
        self._seen.add(key)
        self.diagnostics.append(diagnostic)
        if len(self.diagnostics) >= DIAGNOSTICS:
            raise LimitError

    def warning(self, code: str, message: str, span: Span, label: str = "", *, help: str = "") -> None:
        self.error(code, message, span, label, help=help, severity="warning")

    def stop(self, code: str, message: str, span: Span | None, label: str = "", *, help: str = "") -> LimitError:
        """Reports what ends the elaboration: `raise reporter.stop(...)`."""
        self.error(code, message, span, label, help=help)
        return LimitError()

    def text(self, span: Span) -> str:
        """What the source says there; the end of it is left out where it has several lines."""
        lines = self.sources.get(span.file, "").split("\n")
        if not 1 <= span.line <= len(lines):
            return ""
        line = lines[span.line - 1]
        return line[span.column - 1 : span.end_column - 1] if span.end_line == span.line else line[span.column - 1 :]


@dataclass(slots=True)
class Program:
    """The tables of the whole program.

    `paths` tells for the name of each parameter of a fixed index where it lies in its arrays; `elaborated` holds the
    ids of the blocks that have been; `folders` are further places in which a configuration may lie.
    """

    dims: dict[str, tuple[Symbol, Span]] = field(default_factory=dict)
    parameters: dict[str, Parameter] = field(default_factory=dict)
    paths: dict[str, InstancePath] = field(default_factory=dict)
    elaborated: set[int] = field(default_factory=set)
    folders: tuple[Path, ...] = ()


Evaluate = Callable[["Context", syntax.Expression, Frame], AnyValue]


@dataclass(slots=True)
class Context:
    """One elaboration. `evaluate` gives the value of an expression; `writer` takes the nodes that it needs."""

    reporter: Reporter
    program: Program
    evaluate_expression: Evaluate
    writer: Writer = field(default_factory=Writer)
    depth: int = 0
    steps: int = 0

    def count_steps(self, count: int, span: Span) -> None:
        """Ends the elaboration of a program that would take too long."""
        self.steps += count
        if self.steps > STEPS:
            raise self.reporter.stop("too-large", "the program takes too many steps to elaborate", span)

    def evaluate(self, node: syntax.Expression, frame: Frame) -> AnyValue:
        self.count_steps(1, node.span)
        if self.depth >= EXPRESSION_DEPTH:
            raise self.reporter.stop("too-deep", "the expression is nested too deeply", node.span)
        self.depth += 1
        try:
            return self.evaluate_expression(self, node, frame)
        finally:
            self.depth -= 1


def parts(size: Size, limit: int = SIZE_PARTS) -> int:
    """How much there is to a size, counted up to a limit: nested divisions may double it with every step."""
    if isinstance(size, int):
        return 1
    total = 0
    for monomial, _ in size.terms:
        total += 1
        for atom, power in monomial:
            total += power
            if isinstance(atom, FloorDiv):
                total += parts(atom.numerator, limit - total) + parts(atom.denominator, limit - total)
            elif isinstance(atom, Extreme):
                total += parts(atom.left, limit - total) + parts(atom.right, limit - total)
            if total >= limit:
                return total
    return total


def check_size(context: Context, size: Size, span: Span) -> Size | Poison:
    """The size itself, unless it is one that no tensor may have."""
    report = context.reporter.error
    if isinstance(size, int):
        if size < 0:
            return report("negative-size", f"a size cannot be {size}", span)
        if size >= ELEMENTS:
            return report("too-large", f"the size {size} is beyond what a tensor may hold", span)
        return size
    if parts(size) >= SIZE_PARTS:
        return report("size-too-complex", "the formula of this size is too long", span)
    if context.writer.depends_on_loop(size):
        return report("not-constant", "a size cannot depend on the variable of a loop", span)
    low = bounds(size)[0]
    if low < 0:
        return report("negative-size", f"the size {size} may be negative", span, f"it is {low} at its least")
    return size


def check_number(context: Context, value: int | float | Poly, span: Span) -> int | float | Poly | Poison:
    """The number itself, unless it is too big or too complicated to go on with."""
    if isinstance(value, Poly):
        if parts(value) >= SIZE_PARTS or any(abs(c) >= INTEGER for _, c in value.terms):
            return context.reporter.error("size-too-complex", "the formula of this size is too long", span)
    elif isinstance(value, int) and abs(value) >= INTEGER:
        return context.reporter.error("integer-overflow", "the integer does not fit 64 bits", span)
    return value
