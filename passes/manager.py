"""The base class of passes, and the pass manager: verification, timing, rewrite counts, hooks after each pass.

This module depends on no particular pass, and prints nothing.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cached_property
from typing import ClassVar

from ..dialect.diagnostics import Span
from ..dialect.graph import Module, Node, walk
from ..dialect.lazy_dataclass import dataclass
from ..dialect.printer import format_node, print_module
from ..dialect.verifier import Checked, verify


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A recorded change: its number in the run, the pass, the rule, and the original node with the names of its results
    and its source location."""

    number: int
    pass_name: str
    rule: str
    node: str
    results: tuple[str, ...] = ()
    scope: str = ""
    span: Span | None = None

    def __str__(self) -> str:
        return f"{self.number}: {self.pass_name}: {self.rule}: {self.node}"


@dataclass(frozen=True, slots=True)
class Remark:
    """A remark of a pass about two nodes of its input graph: the first computes an operand of the second. Nodes are
    named by their first used result."""

    pass_name: str
    function: str
    source: str
    reader: str
    text: str


@dataclass(frozen=True, slots=True)
class FoldedConstant:
    """The node that a constant replaced, the bytes of the constant, and the bytes of the constants it was computed
    from."""

    node: Node
    bytes: int
    source_bytes: int


@dataclass
class Context:
    """State shared by the passes of one run: the number of rewrites and its limit, remarks, and constants that are
    larger than the constants from which they were computed.

    A pass calls `allow` before every change, so that bisecting `rewrite_limit` finds a wrong one.
    """

    rewrite_limit: int | None = None
    rewrites: list[Rewrite] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    grown: list[FoldedConstant] = field(default_factory=list)
    pass_name: str = ""

    def allow(self, rule: str, node: Node) -> bool:
        """Returns whether this rewrite may be applied, and counts it if so."""
        if self.rewrite_limit is not None and len(self.rewrites) >= self.rewrite_limit:
            return False
        self.count(rule, node)
        return True

    def count(self, rule: str, node: Node) -> None:
        """Counts a mandatory rewrite."""
        number, results = len(self.rewrites) + 1, tuple(v.name for v in node.outputs)
        made = Rewrite(number, self.pass_name, rule, format_node(node), results, node.scope, node.span)
        self.rewrites.append(made)

    def remark(self, function: str, source: str, reader: str, text: str) -> None:
        self.remarks.append(Remark(self.pass_name, function, source, reader, text))


class Pass(ABC):
    """A transformation of a graph. A pass is a frozen dataclass: its fields are its options, and its name is the word
    that a user types.

    The docstring states the assumptions of the pass and what it leaves to other passes. A pass turns a valid graph into
    a valid graph that computes the same, and returns the module itself if there is nothing to do.
    """

    name: ClassVar[str]

    def run(self, module: Module, context: Context | None = None) -> Module:
        context = Context() if context is None else context
        context.pass_name = self.name
        done = len(context.rewrites)
        changed = self.rewrite(module, context)
        return changed if len(context.rewrites) > done else module

    @abstractmethod
    def rewrite(self, module: Module, context: Context) -> Module:
        """Returns the new graph. `context.allow` has permitted every change."""


@dataclass(frozen=True)
class Stage:
    """The graph after the pass `step`, or before the first one (number 0, name `input`)."""

    number: int
    name: str
    module: Module
    seconds: float = 0.0
    rewrites: int = 0
    step: Pass | None = None

    @property
    def changed(self) -> bool:
        return self.rewrites > 0

    @cached_property
    def text(self) -> str:
        return print_module(self.module)

    @cached_property
    def nodes(self) -> int:
        return sum(1 for function in self.module.functions for _ in walk(function.body))


Watch = Callable[[Stage], None]


class PassError(Exception):
    """An exception for a pass that failed or produced an invalid graph: `what` describes the failure, `before` is the
    input graph."""

    def __init__(self, step: Pass, before: Module, what: str) -> None:
        self.step, self.before, self.what = step, before, what
        super().__init__(f"pass `{step.name}`: {what}")


@dataclass
class PassManager:
    """Runs passes in order. After `run`, `stages` holds the graph and the time of each pass, and `context` the
    rewrites.

    With `check`, the graph is verified before the first pass and after each. An invalid input graph is a
    DiagnosticError. Any error in a pass, including an invalid graph that it produces, is a PassError. `watch` is called
    with every stage as soon as it exists, `accept` with every valid one.
    """

    passes: Sequence[Pass]
    check: bool = True
    watch: Watch | None = None
    accept: Watch | None = None
    rewrite_limit: int | None = None
    context: Context = field(init=False)
    stages: list[Stage] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.context = Context(self.rewrite_limit)

    def run(self, module: Module) -> Module:
        self.context, self.stages = Context(self.rewrite_limit), []
        checked: Checked = {}
        self._watch(Stage(0, "input", module))
        if self.check:
            verify(module, checked=checked)
        self._accept()
        for number, step in enumerate(self.passes, start=1):
            before, done, start = module, len(self.context.rewrites), time.perf_counter()
            try:
                module = step.run(before, self.context)
            except Exception as error:
                raise PassError(step, before, f"{type(error).__name__}: {error}") from error
            seconds = time.perf_counter() - start
            stage = Stage(number, step.name, module, seconds, len(self.context.rewrites) - done, step)
            # Callbacks receive an invalid graph before it is refused, because its text is needed to find the error.
            self._watch(stage)
            if self.check and stage.changed:
                try:
                    verify(module, checked=checked)
                except Exception as error:
                    raise PassError(step, before, f"it produced an invalid graph: {error}") from error
            self._accept()
        return module

    def _watch(self, stage: Stage) -> None:
        self.stages.append(stage)
        if self.watch is not None:
            self.watch(stage)

    def _accept(self) -> None:
        if self.accept is not None:
            self.accept(self.stages[-1])
