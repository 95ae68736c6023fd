"""Checks the names in every block of a file, used or not: unknown, duplicate and unused ones.

Elaboration reports errors in the code that it reaches. This step covers the rest: blocks that no model uses, and
branches that no condition takes. Nothing is evaluated here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field

from ....dialect.diagnostics import Note
from ....dialect.lazy_dataclass import dataclass
from ....dialect.types import DTYPES
from . import syntax
from .argument_sizes import argument_sizes
from .context import Context
from .index_notation import new_indices
from .statics import CONSTANTS
from .trained import SEED
from .unknown import FUNCTIONS, unknown_name
from .values import ERROR, Binding, FileScope, Frame, Kind


def expression_names(node: object) -> Iterator[tuple[syntax.Name, bool]]:
    """Yields every name that an expression looks up, and whether it is called."""
    pending: list[object] = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, syntax.Name):
            yield part, False
        elif isinstance(part, syntax.Call):
            if isinstance(part.function, syntax.Name):
                yield part.function, True
            else:
                pending.append(part.function)
            pending += [a.value for a in (*part.arguments, *(part.hypers or ()))]
        elif isinstance(part, syntax.BlockDtype):
            pending.append(part.dtype.block)
        elif isinstance(part, syntax.Attribute):
            pending.append(part.value)
        elif isinstance(part, syntax.Index):
            pending += [part.value, *part.items]
        elif isinstance(part, syntax.Pipe):
            pending += [part.value, part.call]
        elif isinstance(part, syntax.Binary):
            pending += [part.left, part.right]
        elif isinstance(part, syntax.Unary):
            pending.append(part.operand)
        elif isinstance(part, syntax.Conditional):
            pending += [part.condition, part.then, part.otherwise]
        elif isinstance(part, syntax.Slice):
            pending += [p for p in (part.start, part.stop, part.step) if p is not None]
        elif isinstance(part, (syntax.List, syntax.Tuple)):
            pending += part.items
        elif isinstance(part, syntax.Comprehension):
            pending += [p for p in (part.start, part.stop) if p is not None]
            inside = expression_names((part.value, part.condition))
            yield from ((name, called) for name, called in inside if name.name != part.variable.name)
        elif isinstance(part, syntax.Reduction):
            own = {name.name for name in part.indices}
            yield from ((name, called) for name, called in expression_names(part.value) if name.name not in own)
        elif isinstance(part, tuple):
            pending += part


def attribute_names(node: object) -> Iterator[str]:
    """Yields every attribute name in a syntax tree: `name` of `value.name`."""
    return (part.name.name for part in syntax.walk(node) if isinstance(part, syntax.Attribute))


@dataclass(slots=True)
class _Block:
    """The check of one block. `used` holds the names that the block looks up; `shared` holds the names that the file
    reads as attributes of an instance."""

    context: Context
    scope: FileScope
    block: syntax.Block
    shared: frozenset[str]
    frame: Frame = field(init=False)
    used: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.frame = Frame(self.scope, block=self.block)

    def read(self) -> set[str]:
        """Reports errors; returns every name that the block looks up, its own included."""
        block = self.block
        for hyper in block.hypers:
            self.define(hyper.name, Kind.HYPER)
            if hyper.default is not None:
                self.expression(hyper.default)
        self.sizes()
        for parameter in block.parameters:
            self.type(parameter.type)
            self.define(parameter.name, Kind.ARGUMENT)
        for result in block.results:
            self.type(result.type)
        self.double_results()
        self.body(block.body)
        if isinstance(block, syntax.Train):
            self.used |= {result.name.name for result in block.results if result.name is not None}
        self.report_unused()
        return self.used

    def sizes(self) -> None:
        """Defines the sizes that arguments determine. A size that occurs only once and resembles a defined name is
        reported as a misspelling."""
        found = argument_sizes(self.block, self.scope)
        words = [node.name for node in syntax.walk(self.block) if isinstance(node, syntax.Name)] if found else []
        known = [name for name in (*self.scope.names, *self.frame.names) if len(name) > 1]
        for name, span in found.items():
            if words.count(name) == 1 and difflib.get_close_matches(name, known, 1, 0.75):
                unknown_name(self.context, Frame(self.scope, dict(self.frame.names)), syntax.Name(name, span=span))
            self.bind(syntax.Name(name, span=span), Kind.SIZE)

    def bind(self, name: syntax.Name, kind: Kind) -> None:
        self.frame.names[name.name] = Binding(ERROR, kind, name.span)
        self.context.named(name, self.frame.names[name.name])

    def define(self, name: syntax.Name, kind: Kind) -> None:
        first = self.frame.names.get(name.name)
        self.context.named(name, first)
        if first is not None and first.kind is Kind.STATE and kind is Kind.LOCAL:
            self.used.add(name.name)
            return
        if first is not None and (kind is not Kind.LOCAL or first.kind in (Kind.HYPER, Kind.INSTANCE)):
            if kind is not Kind.LOCAL:
                note = Note(f"the first one is {first.kind}", first.span)
                message = f"`{name.name}` is defined twice"
                self.context.reporter.error("duplicate-name", message, name.span, notes=[note])
            return
        self.bind(name, kind)

    def double_results(self) -> None:
        seen: dict[str, syntax.Name] = {}
        for result in self.block.results:
            if result.name is None:
                continue
            first = seen.setdefault(result.name.name, result.name)
            if first is not result.name:
                note = Note("the first one is a result", first.span)
                message = f"`{result.name.name}` is defined twice"
                self.context.reporter.error("duplicate-name", message, result.name.span, notes=[note])

    def expression(self, node: object) -> None:
        for name, called in expression_names(node):
            self.used.add(name.name)
            self.context.named(name, self.frame.lookup(name.name))
            if self.frame.lookup(name.name) is not None or name.name in FUNCTIONS:
                continue
            if name.name not in DTYPES and (called or name.name not in CONSTANTS):
                unknown_name(self.context, self.frame, name, "function" if called else "")

    def type(self, node: syntax.Type) -> None:
        self.used.add(node.dtype.name)
        for dim in node.dims:
            self.expression(dim)

    def body(self, body: Sequence[syntax.Statement]) -> None:
        for statement in body:
            if isinstance(statement, syntax.Param):
                self.type(statement.type)
                if statement.key is not None:
                    braces = re.findall(r"\{([^{}]*)\}", statement.key.value)
                    self.used.update(name.strip() for inside in braces for name in inside.split("+"))
                self.expression(statement.condition)
                self.initial(statement.initial)
                self.define(statement.name, Kind.PARAMETER)
            elif isinstance(statement, syntax.State):
                self.type(statement.type)
                self.initial(statement.initial)
                self.define(statement.name, Kind.STATE)
            elif isinstance(statement, syntax.Use):
                self.instances(statement)
            elif isinstance(statement, syntax.Assign):
                self.value(statement.value)
                for target in statement.targets:
                    self.define(target, Kind.LOCAL)
            elif isinstance(statement, syntax.AssignPart) and self.indices(statement):
                with self.inside():
                    for name in self.indices(statement):
                        self.bind(name, Kind.LOOP)
                        self.used.add(name.name)
                    self.expression(statement.value)
                self.define(statement.name, Kind.LOCAL)
            elif isinstance(statement, syntax.AssignPart):
                self.expression(statement.name)
                for item in statement.items:
                    self.expression(item)
                self.expression(statement.value)
            elif isinstance(statement, syntax.Minimize):
                self.minimize(statement)
            elif isinstance(statement, syntax.Grad):
                self.grad(statement)
            elif isinstance(statement, syntax.Return):
                for value in statement.values:
                    self.value(value)
            elif isinstance(statement, (syntax.Repeat, syntax.Scan, syntax.While)):
                self.value(statement)

    def instances(self, statement: syntax.Use) -> None:
        for instance in statement.instances:
            self.expression((instance.start, instance.count))
        with self.inside():
            for instance in statement.instances:
                if instance.variable is not None:
                    self.bind(instance.variable, Kind.LOOP)
            for block in (statement.block, statement.otherwise):
                if block is not None:
                    self.used.add(block.path[0].name)
                    self.context.named(block.path[0], self.frame.lookup(block.path[0].name))
                    self.expression(tuple(argument.value for argument in block.hypers or ()))
        self.expression(statement.condition)
        for instance in statement.instances:
            self.define(instance.name, Kind.INSTANCE)

    def indices(self, statement: syntax.AssignPart) -> list[syntax.Name]:
        return new_indices(statement.items, lambda name: self.frame.lookup(name) is not None)

    def initial(self, node: syntax.Expression | None) -> None:
        """Reads an initial value, in which `seed` has a value."""
        names = dict(self.frame.names)
        self.frame.names.setdefault(SEED, Binding(ERROR, Kind.CONSTANT, self.block.name.span))
        self.expression(node)
        self.frame.names = names

    def minimize(self, statement: syntax.Minimize) -> None:
        self.expression(statement.loss)
        groups = [line for line in statement.lines if isinstance(line, syntax.Group)]
        for update in (statement.update, *(group.update for group in groups)):
            self.used.add(update.block.path[0].name)
            given = (*(update.block.hypers or ()), *update.arguments)
            self.expression(tuple(argument.value for argument in given))
        for line in statement.lines:
            if isinstance(line, syntax.Clip):
                self.expression(line.norm)
            elif isinstance(line, syntax.Accumulate):
                self.expression(line.count)

    def grad(self, statement: syntax.Grad) -> None:
        """Reads a gradient, in which arguments and results have values, and results have gradients."""
        if isinstance(self.block, syntax.Model):
            return  # it is reported where it stands
        before = self.frame.names
        kinds = (Kind.HYPER, Kind.SIZE, Kind.ARGUMENT)
        self.frame.names = {name: binding for name, binding in before.items() if binding.kind in kinds}
        own = [result.name for result in self.block.results if result.name is not None]
        with self.inside():
            for name in own:
                self.bind(name, Kind.LOCAL)
                self.bind(syntax.Name(f"d{name.name}", span=name.span), Kind.LOCAL)
                self.used |= {name.name, f"d{name.name}"}
            self.used |= {f"d{parameter.name.name}" for parameter in self.block.parameters}
            self.body(statement.body)
        self.frame.names = before

    def value(self, node: syntax.Expression) -> None:
        """Reads the value of an assignment or a return, which may be a loop or a branch."""
        if isinstance(node, syntax.Repeat):
            self.loop(node)
        elif isinstance(node, syntax.Scan):
            self.expression(node.start)
            self.expression(node.stop)
            self.carried(node)
            with self.inside():
                self.bind(node.variable, Kind.LOOP)
                self.used.add(node.variable.name)
                self.body(node.body)
                for expression in node.collected:
                    self.expression(expression)
        elif isinstance(node, syntax.While):
            self.carried(node)
            self.expression(node.condition)
            with self.inside():
                self.body(node.body)
        elif isinstance(node, syntax.If):
            self.expression(node.condition)
            for choice in (node.then, node.otherwise):
                with self.inside():
                    self.body(choice.body)
                    if choice.value is not None:
                        self.value(choice.value)
        else:
            self.expression(node)

    def carried(self, node: syntax.Scan | syntax.While) -> None:
        for carry in node.carried:
            self.expression(carry.value)
        for carry in node.carried:
            self.define(carry.name, Kind.LOCAL)
            # The next iteration reads it.
            self.used.add(carry.name.name)

    def loop(self, statement: syntax.Repeat) -> None:
        self.expression(statement.start)
        self.expression(statement.stop)
        with self.inside():
            self.bind(statement.variable, Kind.LOOP)
            self.body(statement.body)
            for expression in statement.collected:
                self.expression(expression)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Ends the names that a body introduces."""
        before = dict(self.frame.names)
        yield
        for name, binding in self.frame.names.items():
            if name not in before:
                self.frame.gone[name] = binding.span
                if binding.kind is Kind.LOCAL and name not in self.used:
                    self.unused(name, binding)
        self.frame.names = before

    def report_unused(self) -> None:
        for name, binding in self.frame.names.items():
            is_shared = binding.kind in (Kind.PARAMETER, Kind.STATE, Kind.INSTANCE) and name in self.shared
            if name not in self.used and binding.kind not in (Kind.ARGUMENT, Kind.SIZE) and not is_shared:
                self.unused(name, binding)

    def unused(self, name: str, binding: Binding) -> None:
        if name.startswith("_"):
            return
        message = f"nothing uses the {binding.kind.value} `{name}`"
        self.context.reporter.warning("unused-name", message, binding.span)


def check_names(context: Context, scope: FileScope) -> None:
    """Checks every block of the file; if the file has a model, also its unused blocks and dims."""
    used: set[str] = set()
    blocks = [item for item in scope.tree.items if isinstance(item, syntax.Block)]
    shared = frozenset(attribute_names(scope.tree.items))
    for block in blocks:
        used |= _Block(context, scope, block, shared).read()
    if not any(isinstance(block, syntax.Model) for block in blocks):
        return
    for item in scope.tree.items:
        used |= set(_names_of_item(item))
    for name, binding in scope.names.items():
        if name not in used and binding.kind in (Kind.BLOCK, Kind.DIM) and _is_own(scope, name, binding):
            message = f"nothing uses the {binding.kind.value} `{name}`"
            context.reporter.warning("unused-name", message, binding.span)


def _is_own(scope: FileScope, name: str, binding: Binding) -> bool:
    return any(
        isinstance(item, (syntax.Block, syntax.Dim)) and item.name.span == binding.span for item in scope.tree.items
    )


def _names_of_item(item: syntax.Item) -> Iterable[str]:
    parts: list[object] = []
    if isinstance(item, syntax.Dim):
        parts += [item.low, item.high, item.multiple]
    elif isinstance(item, syntax.Assign):
        parts += [item.value]
    elif isinstance(item, syntax.Budget):
        parts += [a.value for limit in item.limits for a in limit.arguments]
    elif isinstance(item, syntax.Test):
        parts += [g.value for g in item.givens] + [e.value for e in item.expects]
    return [name.name for part in parts for name, _ in expression_names(part)]
