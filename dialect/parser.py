"""Parses the output of `printer`, and the same notation written by hand.

An error in the text is a diagnostic with its span, never a traceback. Parsing stops at the first syntax error; errors
in names and result types are all reported. Handwritten text may omit attributes with defaults and list attributes in
any order. `verifier` checks the meaning of a graph.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field

from .diagnostics import Span
from .dims import INFINITY, Symbol
from .graph import Attribute, Formula, Function, Module, Node, Parameter, Region, State, Value, result_of_state
from .lazy_dataclass import dataclass
from .literals import LiteralReader
from .operator import REQUIRED
from .ops import OPERATORS
from .printer import FILE_NAME, SCOPE, VALUE_NAME, WORD
from .types import F32, Array, TensorType

_POSITION = re.compile(r":([0-9]{1,9}):([0-9]{1,9})-([0-9]{1,9}):([0-9]{1,9})\)")


@dataclass(frozen=True, slots=True)
class ParsedModule:
    """A module and the text spans of its nodes. (The span of a node itself points into the model's source.)"""

    module: Module
    file: str
    text: str
    spans: Mapping[int, Span] = field(repr=False)

    def locate(self, node: Node) -> Span | None:
        return self.spans.get(id(node))


def parse_module(text: str, file: str = "<graph>", constants: Mapping[str, Array] | None = None) -> Module:
    """Returns the module that the text describes. `constants` gives the data of elided constants by their digest.

    Raises DiagnosticError.
    """
    return parse_text(text, file, constants).module


def parse_text(text: str, file: str = "<graph>", constants: Mapping[str, Array] | None = None) -> ParsedModule:
    """Parses like `parse_module`, and returns the positions of nodes in the text as well."""
    parser = _Parser(text, file, constants or {})
    module = parser.module()
    parser.errors.raise_if_any({file: text})
    return ParsedModule(module, file, text, parser.spans)


class _Parser(LiteralReader):
    syntax_code = "graph-syntax"

    def __init__(self, text: str, file: str, constants: Mapping[str, Array]) -> None:
        super().__init__(text, file, constants)
        self.spans: dict[int, Span] = {}
        self.names: set[str] = set()

    # --- nodes ---

    def value_name(self) -> str:
        self.expect("%")
        return self.name("a name", VALUE_NAME)

    def use(self, visible: Mapping[str, Value]) -> Value:
        self.skip()
        start = self.position
        name = self.value_name()
        if name not in visible:
            self.report("undefined-value", f"`%{name}` is not defined here", start, self.position)
            return Value(name, TensorType(F32))
        return visible[name]

    def uses(self, visible: Mapping[str, Value], close: str) -> tuple[Value, ...]:
        values: list[Value] = []
        self.list(lambda: values.append(self.use(visible)), close)
        return tuple(values)

    def define(self, name: str, type: TensorType, start: int, visible: dict[str, Value]) -> Value:
        if name in self.names:
            self.report("duplicate-value", f"`%{name}` is defined twice", start, start + len(name) + 1)
        self.names.add(name)
        visible[name] = Value(name, type)
        return visible[name]

    def arguments(self, visible: dict[str, Value]) -> tuple[Value, ...]:
        self.expect("(")
        found: list[Value] = []

        def argument() -> None:
            self.skip()
            start = self.position
            name = self.value_name()
            self.expect(":")
            found.append(self.define(name, self.type(), start, visible))

        self.list(argument, ")")
        return tuple(found)

    def location(self) -> Span | None:
        if not self.accept("loc("):
            return None
        file = self.name("a file", FILE_NAME)
        numbers = self.take(_POSITION)
        if numbers is None:
            self.fail("expected `:line:column-line:column)`")
        return Span(file, *map(int, numbers.groups()))

    def node(self, visible: dict[str, Value]) -> Node:
        self.skip()
        start = self.position
        names: list[tuple[str, int]] = []
        if self.peek("%"):
            while True:
                self.skip()
                begin = self.position
                names.append((self.value_name(), begin))
                if not self.accept(","):
                    break
            self.expect("=")
        op = self.name("an operator")
        self.expect("(")
        inputs = self.uses(visible, ")")
        attributes: dict[str, Attribute] = {}

        def pair() -> None:
            self.skip()
            begin = self.position
            name = self.name("the name of an attribute")
            if name in attributes:
                self.fail(f"the attribute `{name}` is given twice", begin)
            self.expect("=")
            attributes[name] = self.attribute()

        if self.accept("{"):
            self.list(pair, "}")
        self.expect(":")
        types: list[TensorType] = []
        if self.accept("("):
            self.expect(")")
        else:
            types.append(self.type())
            while self.accept(","):
                types.append(self.type())
        if len(types) != len(names):
            self.fail(f"{len(names)} results have {len(names)} types, not {len(types)}", start)
        scope = self.name("a scope", SCOPE) if self.accept("@") else ""
        span = self.location()
        head = self.span(start, self.position)
        regions: list[Region] = []
        while self.accept("do"):
            regions.append(self.region(visible))
        outputs = tuple(
            self.define(name, type, begin, visible) for (name, begin), type in zip(names, types, strict=True)
        )
        node = Node(op, inputs, outputs, _complete(op, attributes), tuple(regions), scope, span)
        self.spans[id(node)] = head
        return node

    def region(self, outer: Mapping[str, Value]) -> Region:
        self.deeper(self.position)
        visible = dict(outer)
        arguments = self.arguments(visible)
        self.expect("{")
        body = self.body("yield", visible)
        results = self.uses(visible, "}")
        self.depth -= 1
        return Region(arguments, body, results)

    def body(self, last: str, visible: dict[str, Value]) -> tuple[Node, ...]:
        """Parses nodes up to the keyword that begins the last line."""
        nodes: list[Node] = []
        while not self.accept(last):
            if self.position == len(self.text):
                self.fail(f"expected `{last}`")
            nodes.append(self.node(visible))
        return tuple(nodes)

    # --- declarations ---

    def function(self) -> Function:
        name = self.name("the name of a function")
        self.names = set()
        visible: dict[str, Value] = {}
        arguments = self.arguments(visible)
        kept = self.kept_values(visible) if self.accept("with") else {}
        self.expect("->")
        self.expect("(")
        signature: list[tuple[str | None, TensorType]] = []

        def result() -> None:
            self.skip()
            begin = self.position
            given: str | None = self.name("a type")
            if not self.accept(":"):
                given, self.position = None, begin
            signature.append((given, self.type()))

        start = self.position
        self.list(result, ")")
        names = tuple(given for given, _ in signature if given is not None)
        if names and len(names) != len(signature):
            self.fail("some results have names and some have none", start)
        span = self.location()
        self.expect("{")
        body = self.body("return", visible)
        self.skip()
        start = self.position
        results = self.uses(visible, "}")
        found = [v.type for v in results]
        expected = [*(type for _, type in signature), *(v.type for v in kept.values())]
        if found != expected and not self.errors.diagnostics:
            self.report(
                "type-mismatch",
                f"`{name}` declares {', '.join(map(str, expected)) or 'no result'}"
                f" and returns {', '.join(map(str, found)) or 'nothing'}",
                start,
                self.position,
            )
        names = (*names, *map(result_of_state, kept)) if names or not signature else ()
        return Function(name, (*arguments, *kept.values()), body, results, names, span, tuple(kept))

    def kept_values(self, visible: dict[str, Value]) -> dict[str, Value]:
        """Parses the states of a function: the value before the call of each, by name."""
        found: dict[str, Value] = {}

        def state() -> None:
            self.skip()
            start = self.position
            value = self.value_name()
            self.expect(":")
            type = self.type()
            self.expect("=")
            name = self.string()
            if name is None:
                self.fail("expected the name of a state, in quotes")
            if name in found:
                self.fail(f"the state `{name}` is given twice", start)
            found[name] = self.define(value, type, start, visible)

        self.expect("(")
        self.list(state, ")")
        return found

    def state(self) -> State:
        name = self.name("the name of a state")
        self.expect(":")
        type = self.type()
        initial = None
        if self.accept("="):
            initial = self.name("the name of a parameter")
        return State(name, type, initial, self.location())

    def dim(self) -> Symbol:
        self.skip()
        start = self.position
        name = self.name("the name of a dim")
        self.expect("in")
        low = self.integer("a number")
        self.expect("..")
        self.skip()
        bounded = self.position < len(self.text) and self.text[self.position] in "-0123456789"
        high = self.integer("a number") if bounded else INFINITY
        multiple = self.integer("a number") if self.accept("multiple") else 1
        if not WORD.fullmatch(name) or low > high or low < 0 or multiple < 1 or name in self.dims:
            reason = "declared twice" if name in self.dims else "malformed"
            self.fail(f"the dim `{name}` is {reason}", start)
        return Symbol(name, low, high, multiple)

    def parameter(self) -> Parameter:
        name = self.name("the name of a parameter")
        counts: list[int] = []
        if self.accept("["):
            self.list(lambda: counts.append(self.integer("a number")), "]")
        self.expect(":")
        type = self.type()
        source = self.string() if self.accept("from") else None
        transpose: tuple[int, ...] | None = None
        if self.accept("transpose"):
            axes: list[int] = []
            self.expect("(")
            self.list(lambda: axes.append(self.integer("an axis")), ")")
            transpose = tuple(axes)
        span = self.location()
        formula = self.formula() if self.accept("=") else None
        return Parameter(name, type, tuple(counts), source, transpose, span, formula)

    def formula(self) -> Formula:
        self.deeper(self.position)
        stepwise = self.accept("stepwise")
        self.expect("{")
        parameters: list[Parameter] = []
        while self.accept("param"):
            parameters.append(self.parameter())
        self.names = set()
        visible: dict[str, Value] = {}
        body = self.body("yield", visible)
        result = self.use(visible)
        self.expect("}")
        self.depth -= 1
        return Formula(tuple(parameters), body, result, stepwise)

    def module(self) -> Module:
        self.expect("module")
        name = self.name("the name of the module")
        parameters: list[Parameter] = []
        states: list[State] = []
        functions: list[Function] = []
        while True:
            self.skip()
            if self.position == len(self.text):
                dims = tuple(self.dims.values())
                return Module(name, dims, tuple(parameters), tuple(functions), tuple(states))
            if self.accept("dim"):
                self.declare(self.dim())
            elif self.accept("param"):
                parameters.append(self.parameter())
            elif self.accept("state"):
                states.append(self.state())
            elif self.accept("func"):
                functions.append(self.function())
            else:
                self.fail("expected `dim`, `param`, `state` or `func`")


def _complete(op: str, given: Mapping[str, Attribute]) -> tuple[tuple[str, Attribute], ...]:
    """Returns the attributes in the order of their names, with defaults for omitted ones."""
    full = dict(given)
    if op in OPERATORS:
        for spec in OPERATORS[op].attributes:
            if spec.default is not REQUIRED:
                full.setdefault(spec.name, spec.default)
    return tuple(sorted(full.items()))
