"""State shared by all steps of elaboration: reporting, limits, tables of the program, and the callback `evaluate`.

The steps depend on each other in a cycle (an expression calls a block, whose body holds expressions). The callback
breaks the cycle, so that the imports between the files form a tree.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol

from ....dialect.diagnostics import Diagnostic, Note, Span
from ....dialect.dims import Extreme, FloorDiv, Poly, Size, Symbol, bounds
from ....dialect.graph import Parameter, State
from ....dialect.lazy_dataclass import dataclass
from ....dialect.types import DType
from ....passes.selection import Selector
from . import syntax
from .divided_steps import Division
from .values import ERROR, AnyValue, Binding, FileScope, Frame, InstancePath, Poison
from .writer import Writer

# Limits for an input that would exhaust the compiler's time or memory.
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
    """An exceeded limit, which has been reported; elaboration of this input stops."""


def suggest(name: str, candidates: Iterable[str]) -> str:
    """Returns the help for an unknown name: the nearest known one, or nothing."""
    pool = [c for c in candidates if c != name]
    close = difflib.get_close_matches(name, pool, 1, 0.6)
    if not close:
        close = [c for c in pool if c.lower() == name.lower()][:1]
    return f"did you mean `{close[0]}`?" if close else ""


@dataclass(slots=True)
class Reporter:
    """Collects diagnostics, one for each code and span. `admitted` restricts the reported codes. One error more than
    `DIAGNOSTICS` ends the elaboration; warnings never do, and those beyond are counted."""

    sources: dict[str, str]
    diagnostics: list[Diagnostic] = field(default_factory=list)
    admitted: frozenset[str] | None = None
    counts: dict[str, int] = field(default_factory=dict)
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
        """Reports an error, and returns the value that replaces the wrong one."""
        self.add(Diagnostic(code, message, span, label, tuple(notes), help, severity))
        return ERROR

    def add(self, diagnostic: Diagnostic) -> None:
        key = diagnostic.code, diagnostic.span
        if key in self._seen or (self.admitted is not None and diagnostic.code not in self.admitted):
            return
        self._seen.add(key)
        count = self.counts[diagnostic.severity] = self.counts.get(diagnostic.severity, 0) + 1
        if count <= DIAGNOSTICS:
            self.diagnostics.append(diagnostic)
        elif diagnostic.severity == "error":
            if count == DIAGNOSTICS + 1:
                message = f"the check ends after {DIAGNOSTICS} errors"
                self.diagnostics.append(Diagnostic("too-many-errors", message, diagnostic.span))
            raise LimitError

    def warning(self, code: str, message: str, span: Span, label: str = "", *, help: str = "") -> None:
        self.error(code, message, span, label, help=help, severity="warning")

    def stop(self, code: str, message: str, span: Span | None, label: str = "", *, help: str = "") -> LimitError:
        """Reports the error that ends the elaboration: `raise reporter.stop(...)`."""
        self.error(code, message, span, label, help=help)
        return LimitError()

    def text(self, span: Span) -> str:
        """Returns the source text of a span; for several lines, only the first."""
        lines = self.sources.get(span.file, "").split("\n")
        if not 1 <= span.line <= len(lines):
            return ""
        line = lines[span.line - 1]
        return line[span.column - 1 : span.end_column - 1] if span.end_line == span.line else line[span.column - 1 :]

    def conversion(self, span: Span, dtype: DType) -> str:
        """Returns a help that proposes to convert an expression to a dtype."""
        text = self.text(span) if span.end_line == span.line else ""
        return f"`cast({text or '...'}, {dtype})` converts it"


@dataclass(slots=True)
class Program:
    """The tables of the whole program.

    `paths` maps the name of each parameter of a fixed index to its path in its arrays; `elaborated` holds the ids of
    elaborated blocks; `folders` are additional folders for configurations. `prefix` is the text with which the keys of
    the current model's checkpoint begin. `settings` are values of the models' hyper-parameters. `configs` are the
    contents of configurations that are in no file, by the path that the source gives. `stored` says whether a
    checkpoint holds the parameters, which else begin with the values that the file gives them; `stored_keys` are the
    keys of the checkpoints, None if these are not known.

    `trained` names the parameters that training steps change, and `trained_arrays` their patterns. `frozen` selects the
    parameters that the current training step keeps; it is None outside of training steps. `optimizers` is the file of
    the blocks that come with the compiler. `divisions` has the training steps with `exchange`, by name.
    """

    dims: dict[str, tuple[Symbol, Span]] = field(default_factory=dict)
    parameters: dict[str, Parameter] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    paths: dict[str, InstancePath] = field(default_factory=dict)
    elaborated: set[int] = field(default_factory=set)
    folders: tuple[Path, ...] = ()
    prefix: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    configs: Mapping[str, Any] = field(default_factory=dict)
    stored: bool = False
    stored_keys: frozenset[str] | None = None
    trained: set[str] = field(default_factory=set)
    trained_arrays: set[str] = field(default_factory=set)
    frozen: list[Selector] | None = None
    optimizers: FileScope | None = None
    divisions: dict[str, Division] = field(default_factory=dict)


Evaluate = Callable[["Context", syntax.Expression, Frame], AnyValue]


class Listener(Protocol):
    """Learns of the values of expressions and of the definitions of names, for an editor."""

    def evaluated(self, node: syntax.Expression, frame: Frame, value: AnyValue, writer: Writer) -> None: ...

    def named(self, name: syntax.Name, binding: Binding) -> None: ...


@dataclass(slots=True)
class Context:
    """One elaboration. `evaluate` returns the value of an expression; `writer` receives the nodes that it needs."""

    reporter: Reporter
    program: Program
    evaluate_expression: Evaluate
    writer: Writer = field(default_factory=Writer)
    depth: int = 0
    steps: int = 0
    listener: Listener | None = None

    def count_steps(self, count: int, span: Span) -> None:
        """Ends the elaboration of a program that would take too long."""
        self.steps += count
        if self.steps > STEPS:
            raise self.reporter.stop("too-large", "the program needs too many elaboration steps", span)

    def evaluate(self, node: syntax.Expression, frame: Frame) -> AnyValue:
        self.count_steps(1, node.span)
        if self.depth >= EXPRESSION_DEPTH:
            raise self.reporter.stop("too-deep", "the expression is nested too deeply", node.span)
        self.depth += 1
        try:
            value = self.evaluate_expression(self, node, frame)
        finally:
            self.depth -= 1
        if self.listener is not None:
            self.listener.evaluated(node, frame, value, self.writer)
        return value

    def named(self, name: syntax.Name, binding: Binding | None) -> None:
        """Reports to the listener that a name refers to a binding."""
        if self.listener is not None and binding is not None:
            self.listener.named(name, binding)


def parts(size: Size, limit: int = SIZE_PARTS) -> int:
    """Returns the number of terms of a size, up to a limit: nested divisions may double it with each level."""
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
    """Returns the size itself, unless no tensor may have it."""
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
        return report("not-constant", "a size cannot depend on a loop variable", span)
    low = bounds(size)[0]
    if low < 0:
        return report("negative-size", f"the size {size} may be negative", span, f"its smallest value is {low}")
    return size


def check_number(context: Context, value: int | float | Poly, span: Span) -> int | float | Poly | Poison:
    """Returns the number itself, unless it is too big or too complicated to continue."""
    if isinstance(value, Poly):
        if parts(value) >= SIZE_PARTS or any(abs(c) >= INTEGER for _, c in value.terms):
            return context.reporter.error("size-too-complex", "the formula of this size is too long", span)
    elif isinstance(value, int) and abs(value) >= INTEGER:
        return context.reporter.error("integer-overflow", "the integer does not fit 64 bits", span)
    return value
