"""What a pass is, and how a list of them is run: verified, timed, counted, told to whoever wants to watch.

Nothing here knows any pass, and nothing here prints.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from ..dialect.diagnostics import Span
from ..dialect.graph import Module, Node, walk
from ..dialect.printer import format_node, print_module
from ..dialect.verifier import verify


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One change that was made: its number in the run, the pass, the rule, and the node as it was before, with the
    names of its results and where it came from."""

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
    """What a pass has to say of two nodes of the graph that it was given: the one computes what the other reads. They
    are named by the first result of each that is used."""

    pass_name: str
    function: str
    source: str
    reader: str
    text: str


@dataclass(frozen=True, slots=True)
class FoldedConstant:
    """The node that a constant replaced, the bytes of the constant, and those of the constants that it was made of."""

    node: Node
    bytes: int
    source_bytes: int


@dataclass
class Context:
    """What the passes of one run share: the count of rewrites, the number after which they stop, remarks, and the
    constants that take more bytes than the constants that they were made of.

    Every change that a pass makes is asked for with `allow`, so that a wrong one is found by halving `rewrite_limit`.
    """

    rewrite_limit: int | None = None
    rewrites: list[Rewrite] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    grown: list[FoldedConstant] = field(default_factory=list)
    pass_name: str = ""

    def allow(self, rule: str, node: Node) -> bool:
        """May this rewrite be done? If so it is counted as done."""
        if self.rewrite_limit is not None and len(self.rewrites) >= self.rewrite_limit:
            return False
        self.count(rule, node)
        return True

    def count(self, rule: str, node: Node) -> None:
        """Counts a rewrite that cannot be left out."""
        number, results = len(self.rewrites) + 1, tuple(v.name for v in node.outputs)
        made = Rewrite(number, self.pass_name, rule, format_node(node), results, node.scope, node.span)
        self.rewrites.append(made)

    def remark(self, function: str, source: str, reader: str, text: str) -> None:
        self.remarks.append(Remark(self.pass_name, function, source, reader, text))


class Pass(ABC):
    """A graph to a graph. A pass is a frozen dataclass: its fields are its options, its name is what a user types.

    The docstring says what the pass assumes and what it leaves. A valid graph becomes a valid graph that computes the
    same, and the module itself is returned where there was nothing to do.
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
        """The new graph. Every change has been asked for with `context.allow`."""


@dataclass(frozen=True)
class Stage:
    """The graph after a pass, or (number 0, name `input`) before the first one."""

    number: int
    name: str
    module: Module
    seconds: float = 0.0
    rewrites: int = 0

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
    """A pass failed, or left a graph that is not valid: `what` says how. `before` is the graph that it was given."""

    def __init__(self, step: Pass, before: Module, what: str) -> None:
        self.step, self.before, self.what = step, before, what
        super().__init__(f"pass `{step.name}`: {what}")


@dataclass
class PassManager:
    """Runs passes in order. After `run`, `stages` holds the graph and the time of each, `context` what was rewritten.

    With `check` the graph is verified before the first pass, where an invalid one is a DiagnosticError, and after each.
    Whatever goes wrong in a pass is a PassError, also an invalid graph that it leaves. `watch` is told every stage as
    soon as it is there, `accept` every one that is valid.
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
        self._watch(Stage(0, "input", module))
        if self.check:
            verify(module)
        self._accept()
        for number, step in enumerate(self.passes, start=1):
            before, done, start = module, len(self.context.rewrites), time.perf_counter()
            try:
                module = step.run(before, self.context)
            except Exception as error:
                raise PassError(step, before, f"{type(error).__name__}: {error}") from error
            seconds = time.perf_counter() - start
            stage = Stage(number, step.name, module, seconds, len(self.context.rewrites) - done)
            # An invalid graph is shown before it is refused: its text is what one wants to see then.
            self._watch(stage)
            if self.check and stage.changed:
                try:
                    verify(module)
                except Exception as error:
                    raise PassError(step, before, f"it left a graph that is not valid: {error}") from error
            self._accept()
        return module

    def _watch(self, stage: Stage) -> None:
        self.stages.append(stage)
        if self.watch is not None:
            self.watch(stage)

    def _accept(self) -> None:
        if self.accept is not None:
            self.accept(self.stages[-1])
