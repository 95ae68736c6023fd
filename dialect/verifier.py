"""Verifies a graph: the invariants that every pass may assume and must preserve.

- A value is defined once in its function, before its uses, in the region of the use or one around it.
- A use has the type of the definition, and results have the types that the operator infers.
- Attributes are complete, of the declared kind, and in the order of their names.
- Regions have the arguments and results that their operator requires; a fusion uses nothing but its arguments.
- Dims are declared, and those that a function computes with appear in the types of its arguments.
- The values of a state before and after a call have the type of the state, and its initial value fits it.

It repairs nothing and does not check values of numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from .control_flow import CONTROL_FLOW, ControlFlow, carried_count
from .diagnostics import Collector, Diagnostic, Note, Span
from .dims import DimError, Poly, Symbol, symbols_of
from .graph import Attribute, Constant, Formula, Function, Module, Node, Parameter, Region, State, Value, captured
from .lazy_dataclass import dataclass
from .operator import AttributeSpec, InferenceError
from .ops import OPERATORS
from .printer import format_attribute, format_node, format_value
from .states import initial_fits
from .types import I64, DType, TensorType

Locate = Callable[[Node], Span | None]


Checked = dict[int, Node | Parameter]
"""Nodes whose results have the inferred types, and parameters whose formulas are valid, by identity."""


def verify(module: Module, locate: Locate | None = None, checked: Checked | None = None) -> None:
    """Checks a graph. Raises DiagnosticError with all its errors.

    `locate` returns the source location of a node; by default that is the span in the model's source. With `checked`,
    the types of the nodes in it are not inferred again, and it receives the others that are correct: most passes keep
    most nodes.
    """
    errors, checked = Collector(), {} if checked is None else checked
    for kind, names in (
        ("dim", [s.name for s in module.dims]),
        ("parameter", [p.name for p in module.parameters]),
        ("state", [s.name for s in module.states]),
        ("function", [f.name for f in module.functions]),
    ):
        for name in _repeated(names):
            errors.report(Diagnostic("duplicate-name", f"two {kind}s have the name `{name}`"))
    declared = set(module.dims)
    for parameter in module.parameters:
        for symbol in _undeclared(parameter.type.shape, declared):
            message = f"parameter `{parameter.name}` uses {symbol}, which the module does not declare"
            errors.report(Diagnostic("undeclared-dim", message, parameter.span))
        if parameter.formula is not None and id(parameter) not in checked:
            found = len(errors.diagnostics)
            _verify_formula(parameter, parameter.formula, errors, locate or (lambda node: node.span), checked)
            if len(errors.diagnostics) == found:
                checked[id(parameter)] = parameter
        if parameter.name.count("{}") != len(parameter.counts):
            message = f"parameter `{parameter.name}` has {len(parameter.counts)} counts"
            errors.report(Diagnostic("bad-parameter", message, parameter.span))
    for state in module.states:
        _verify_state(module, state, declared, errors)
    for function in module.functions:
        _FunctionVerifier(module, function, errors, locate or (lambda node: node.span), checked).run()
    errors.raise_if_any()


def _verify_state(module: Module, state: State, declared: set[Symbol], errors: Collector) -> None:
    def report(code: str, message: str) -> None:
        errors.report(Diagnostic(code, f"state `{state.name}` {message}", state.span))

    for symbol in _undeclared(state.type.shape, declared):
        report("undeclared-dim", f"uses {symbol}, which the module does not declare")
    if state.type.dtype.is_blocked:
        report("bad-state", f"is {state.type}; a state cannot be block-quantized")
    if state.initial is not None:
        initial = module.parameter_index.get(state.initial)
        if initial is None or initial.counts:
            report("bad-state", f"begins with `{state.initial}`, which is not a parameter")
        elif not initial_fits(state.type, initial.type):
            report("bad-state", f"is {state.type} and begins with {initial.type}")


def _verify_formula(
    parameter: Parameter, formula: Formula, errors: Collector, locate: Locate, checked: Checked
) -> None:
    """Checks that a formula is a valid function without arguments, over stored parameters."""

    def report(message: str) -> None:
        errors.report(Diagnostic("bad-parameter", f"parameter `{parameter.name}` {message}", parameter.span))

    if parameter.counts or parameter.source is not None or parameter.transpose is not None:
        report("has a formula, but is marked as stored")
    if formula.result.type != parameter.type:
        report(f"is {parameter.type}, its formula gives {formula.result.type}")
    for inner in formula.parameters:
        if inner.formula is not None or inner.counts or not inner.type.is_static:
            report(f"is computed from `{inner.name}`, which is not stored as one tensor")
    for name in _repeated(p.name for p in formula.parameters):
        report(f"is computed from `{name}` and `{name}`")
    _FunctionVerifier(formula.module, formula.function, errors, locate, checked).run()


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _undeclared(shape: Iterable[int | Poly], declared: set[Symbol]) -> list[Symbol]:
    return [s for s in symbols_of(shape) if s not in declared]


def _sizes_in(value: Attribute) -> Iterator[int | Poly]:
    if isinstance(value, tuple):
        for part in value:
            yield from _sizes_in(part)
    elif isinstance(value, Poly):
        yield value


def _is_integer(value: Attribute) -> bool:
    return type(value) is int


def _is_integers(value: Attribute) -> bool:
    return isinstance(value, tuple) and all(map(_is_integer, value))


def _is_size(value: Attribute) -> bool:
    return type(value) is int or isinstance(value, Poly)


def _is_attribute(value: Attribute) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_attribute, value))
    return value is None or isinstance(value, (bool, int, float, str, DType, Poly, Constant))


KINDS: Mapping[str, Callable[[Attribute], bool]] = {
    "int": _is_integer,
    "float": lambda v: isinstance(v, float) or type(v) is int,
    "bool": lambda v: isinstance(v, bool),
    "str": lambda v: isinstance(v, str),
    "dtype": lambda v: isinstance(v, DType),
    "constant": lambda v: isinstance(v, Constant),
    "ints": lambda v: _is_integer(v) or _is_integers(v),
    "axis": _is_integer,
    "axes": lambda v: v is None or _is_integer(v) or _is_integers(v),
    "size": _is_size,
    "sizes": lambda v: _is_size(v) or (isinstance(v, tuple) and all(map(_is_size, v))),
    "any": _is_attribute,
}
"""The predicate of each attribute kind; a `?` after a kind admits None. One kind may represent several similar ones."""


def has_kind(spec: AttributeSpec, value: Attribute) -> bool:
    return (spec.kind.endswith("?") and value is None) or KINDS[spec.kind.removesuffix("?")](value)


@dataclass
class _FunctionVerifier:
    module: Module
    function: Function
    errors: Collector
    locate: Locate
    checked: Checked

    def __post_init__(self) -> None:
        self.defined: set[str] = set()
        self.declared = set(self.module.dims)
        self.bound = set(self.function.symbols())

    def run(self) -> None:
        function = self.function
        visible: dict[str, TensorType] = {}
        for argument in function.arguments:
            self.define(argument, visible, None)
        self.check_body(function.body, visible)
        for value in function.results:
            self.check_use(value, visible, None)
        if len(function.result_names) not in (0, len(function.results)):
            self.report("bad-results", f"{len(function.results)} results have {len(function.result_names)} names")
        for name in _repeated(function.result_names):
            self.report("duplicate-name", f"two results have the name `{name}`")
        self.check_states()

    def check_states(self) -> None:
        function = self.function
        known = {state.name: state for state in self.module.states}
        for name in _repeated(function.states):
            self.report("bad-state", f"the state `{name}` is used twice")
        if len(function.states) > min(len(function.arguments), len(function.results)):
            self.report("bad-state", f"{len(function.states)} states need as many arguments and results")
            return
        before_and_after = zip(function.states, function.state_arguments, function.state_results, strict=True)
        for name, before, after in before_and_after:
            if name not in known:
                self.report("bad-state", f"the module has no state `{name}`")
                continue
            for value in (before, after):
                if value.type != known[name].type:
                    self.report("type-mismatch", f"the state `{name}` is {known[name].type}, not {value.type}")

    def report(self, code: str, message: str, node: Node | None = None) -> None:
        where = f"in `{self.function.name}`" + (f": {format_node(node)}" if node else "")
        span = self.locate(node) if node else self.function.span
        self.errors.report(Diagnostic(code, message, span, notes=(Note(where),)))

    # --- values ---

    def define(self, value: Value, visible: dict[str, TensorType], node: Node | None) -> None:
        if value.name in self.defined:
            self.report("duplicate-value", f"`{format_value(value)}` is defined twice", node)
        self.defined.add(value.name)
        visible[value.name] = value.type
        if any(isinstance(s, int) and s < 0 for s in value.type.shape):
            self.report("bad-size", f"`{format_value(value)}` has a negative size: {value.type}", node)
        self.check_symbols(value.type.shape, node)

    def check_symbols(self, sizes: Iterable[int | Poly], node: Node | None) -> None:
        for symbol in symbols_of(sizes):
            if symbol not in self.declared:
                self.report("undeclared-dim", f"{symbol} is not declared by the module", node)
            elif symbol not in self.bound:
                self.report("unbound-dim", f"no argument has the dim `{symbol.name}`", node)

    def check_use(self, value: Value, visible: Mapping[str, TensorType], node: Node | None) -> None:
        defined = visible.get(value.name)
        if defined is None:
            self.report("undefined-value", f"`{format_value(value)}` is not defined here", node)
        elif defined is not value.type and defined != value.type:
            self.report("type-mismatch", f"`{format_value(value)}` is {defined}, and is used as {value.type}", node)

    # --- nodes ---

    def check_body(self, nodes: Iterable[Node], visible: dict[str, TensorType]) -> None:
        for node in nodes:
            for value in node.inputs:
                self.check_use(value, visible, node)
            for region in node.regions:
                self.check_region(region, visible, node)
            self.check_node(node)
            for value in node.outputs:
                self.define(value, visible, node)

    def check_region(self, region: Region, visible: Mapping[str, TensorType], node: Node) -> None:
        inner = dict(visible)
        for argument in region.arguments:
            self.define(argument, inner, node)
        self.check_body(region.body, inner)
        for value in region.results:
            self.check_use(value, inner, node)

    def check_node(self, node: Node) -> None:
        if node.op not in OPERATORS:
            self.report("unknown-operator", f"there is no operator `{node.op}`", node)
            return
        if not self.check_attributes(node):
            return
        if node.op in _STRUCTURE:
            _STRUCTURE[node.op](self, node)
            return
        if node.op in CONTROL_FLOW:
            self.check_control_flow(node, CONTROL_FLOW[node.op])
            return
        if node.regions:
            self.report("bad-region", f"`{node.op}` has no region", node)
        if id(node) not in self.checked:
            self.infer_types(node)

    def infer_types(self, node: Node) -> None:
        try:
            types = OPERATORS[node.op].check([v.type for v in node.inputs], dict(node.attributes))
        except InferenceError as error:
            self.report(error.code, error.message + (f" ({error.label})" if error.label else ""), node)
        except DimError as error:
            self.report("bad-size", str(error), node)
        except Exception as error:  # Attributes of the right kind may still have values that make an inference raise.
            self.report("bad-node", f"`{node.op}` has no inferable type: {type(error).__name__}: {error}", node)
        else:
            if self.check_types("results", [v.type for v in node.outputs], types, node):
                self.checked[id(node)] = node

    def check_attributes(self, node: Node) -> bool:
        errors = len(self.errors.diagnostics)
        specs = {spec.name: spec for spec in OPERATORS[node.op].attributes}
        names = [name for name, _ in node.attributes]
        if names != sorted(set(names)):
            self.report("bad-attribute", "attributes are not in the order of their names", node)
        for name in sorted(specs.keys() - set(names)):
            self.report("missing-argument", f"`{node.op}` lacks the attribute `{name}`", node)
        for name, value in node.attributes:
            if name not in specs:
                self.report("bad-attribute", f"`{node.op}` has no attribute `{name}`", node)
            elif not has_kind(specs[name], value):
                text = format_attribute(value) if _is_attribute(value) else repr(value)
                self.report("bad-attribute", f"`{name}` is {text}, which is no `{specs[name].kind}`", node)
            else:
                self.check_symbols(_sizes_in(value), node)
        return len(self.errors.diagnostics) == errors

    def check_types(self, what: str, found: Iterable[TensorType], expected: Iterable[TensorType], node: Node) -> bool:
        found, expected = tuple(found), tuple(expected)
        if found != expected:
            texts = [", ".join(map(str, types)) or "none" for types in (found, expected)]
            self.report("type-mismatch", f"{what} of `{node.op}` are {texts[0]}, expected {texts[1]}", node)
        return found == expected

    def check_constant(self, node: Node) -> None:
        value = node.attribute("value")
        assert isinstance(value, Constant)
        self.check_types("results", [v.type for v in node.outputs], [value.type], node)
        self.check_types("operands", [v.type for v in node.inputs], [], node)

    def check_parameter(self, node: Node) -> None:
        name = node.attribute("name")
        parameter = self.module.parameter_index.get(str(name))
        if parameter is None:
            self.report("unknown-parameter", f"the module has no parameter `{name}`", node)
            return
        self.check_types("results", [v.type for v in node.outputs], [parameter.type], node)
        self.check_types("indices", [v.type for v in node.inputs], [TensorType(I64)] * len(parameter.counts), node)

    def check_repeat(self, node: Node) -> None:
        count = node.attribute("count")
        if not isinstance(count, int) or count < 0:
            self.report("bad-attribute", f"a loop cannot run {count} times", node)
        if len(node.regions) != 1:
            self.report("bad-region", f"`repeat` has one region, not {len(node.regions)}", node)
            return
        region = node.regions[0]
        carried = [v.type for v in node.inputs]
        self.check_types("arguments", [v.type for v in region.arguments], [TensorType(I64), *carried], node)
        self.check_types("carried values", [v.type for v in region.results], carried, node)
        self.check_types("results", [v.type for v in node.outputs], carried, node)

    def check_control_flow(self, node: Node, record: ControlFlow) -> None:
        if len(node.regions) != len(record.regions):
            names = ", ".join(record.regions)
            self.report("bad-region", f"`{node.op}` has the regions {names}, not {len(node.regions)}", node)
            return
        if node.op == "scan" and carried_count(node) != len(node.inputs):
            message = f"{carried_count(node)} carried values have {len(node.inputs)} initial values"
            self.report("bad-attribute", message, node)
            return
        for what, found, expected in record.expectations(node):
            self.check_types(what, found, expected, node)

    def check_fusion(self, node: Node) -> None:
        if len(node.regions) != 1:
            self.report("bad-region", f"`fusion` has one region, not {len(node.regions)}", node)
            return
        region = node.regions[0]
        self.check_types("arguments", [v.type for v in region.arguments], [v.type for v in node.inputs], node)
        self.check_types("results", [v.type for v in node.outputs], [v.type for v in region.results], node)
        for value in captured(region):
            self.report("bad-region", f"the fusion uses `{format_value(value)}`, which is not its argument", node)


_STRUCTURE: Mapping[str, Callable[[_FunctionVerifier, Node], None]] = {
    "constant": _FunctionVerifier.check_constant,
    "parameter": _FunctionVerifier.check_parameter,
    "repeat": _FunctionVerifier.check_repeat,
    "fusion": _FunctionVerifier.check_fusion,
}
