"""Visits the nodes of a program in order, and calls the converter of each.

All operators without a converter are reported first. A node that cannot be converted is reported, and nodes that read
its results are skipped without a separate error.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....dialect.diagnostics import Collector, Diagnostic, DiagnosticError, Span
from ....dialect.dims import DimError, Poly, floor_divide
from ....dialect.operator import InferenceError
from ....dialect.types import F64, TensorType
from ...base.shortened import shortened_code
from ..writing.graph_writer import GraphWriter
from ..writing.tensors import BoundedTensor, Tensor
from .bounded import MAKERS, Bounds
from .convert import find_converter, operator_names
from .sizes import Sizes
from .writing.arrays import DTYPES
from .writing.package import load_torch
from .writing.use import Use, scalar


class _Missing:
    """The result of a node that was not converted."""


MISSING = _Missing()


@dataclass
class Walk:
    """The conversion of one graph module. `file` names the source of spans, `listing` is its text."""

    file: str
    sizes: Sizes
    listing: str = ""
    writer: GraphWriter = field(default_factory=GraphWriter)
    errors: Collector = field(default_factory=Collector)
    found: dict[Any, Any] = field(default_factory=dict)
    spans: dict[Any, Span] = field(default_factory=dict)
    bounds: Bounds = field(default_factory=Bounds)

    def __post_init__(self) -> None:
        self.sizes.limits = self.bounds.sizes

    def list_nodes(self, graph: Any) -> None:
        """Writes the listing of the nodes, and their spans in it."""
        lines = [_line(node) for node in graph.nodes]
        self.listing = "\n".join(lines)
        for number, (node, line) in enumerate(zip(graph.nodes, lines, strict=True), 1):
            self.spans[node] = Span(self.file, number, 1, number, len(line) + 1)

    def check_supported(self, graph: Any) -> None:
        """Raises DiagnosticError with one error for each operator that has no converter."""
        unknown: dict[str, list[Any]] = {}
        for node in graph.nodes:
            if node.op == "call_function" and not _is_size_arithmetic(node) and find_converter(name_of(node)) is None:
                unknown.setdefault(name_of(node), []).append(node)
        errors = [self._unsupported(name, nodes) for name, nodes in unknown.items()]
        if errors:
            raise DiagnosticError(errors, {self.file: self.listing})

    def _unsupported(self, name: str, nodes: Sequence[Any]) -> Diagnostic:
        named = shortened_code([_shown(node) for node in nodes])
        close = difflib.get_close_matches(name, operator_names(), 1, cutoff=0.6)
        help_text = f"the nearest supported name is `{close[0]}`" if close else ""
        message = f"the operator `{name}` is not supported; nodes: {named}"
        return Diagnostic("unsupported-operator", message, self.spans[nodes[0]], help=help_text)

    def run(self, graph: Any) -> None:
        """Converts all nodes whose results are not yet known."""
        for node in graph.nodes:
            if node.op != "call_function":
                continue
            try:
                self.found[node] = self._node(node)
            except DiagnosticError as error:
                for diagnostic in error.diagnostics:
                    self.errors.report(diagnostic)
                self.found[node] = MISSING

    def _node(self, node: Any) -> Any:
        span = self.spans[node]
        self.writer.at(scope_of(node), span)
        described = node.meta.get("val")
        if _is_symbolic(described):
            try:
                return self.sizes.of(described)
            except DimError:
                pass  # computed from the operands below
        arguments, is_complete = self._arguments(node)
        if not is_complete:
            return MISSING
        try:
            if _is_size_arithmetic(node):
                return self._arithmetic(node, arguments, span)
            return self._convert(node, arguments, described, span)
        except InferenceError as error:
            message = f"`{name_of(node)}` of node `{_shown(node)}`: {error.message}"
            raise DiagnosticError([Diagnostic(error.code, message, span, error.label, help=error.help)]) from None
        except DimError as error:
            message = f"`{name_of(node)}` of node `{_shown(node)}`: {error}"
            raise DiagnosticError([Diagnostic("data-dependent", message, span)]) from None

    def _arguments(self, node: Any) -> tuple[tuple[tuple[Any, ...], dict[str, Any]], bool]:
        missing = False

        def resolve(argument: Any) -> Any:
            nonlocal missing
            if isinstance(argument, (list, tuple)):
                return tuple(resolve(each) for each in argument)
            if type(argument).__name__ == "Node":
                held = self.found.get(argument, MISSING)
                missing = missing or held is MISSING
                return self._as_parameter(held)
            return argument

        positional = tuple(resolve(each) for each in node.args)
        named = {name: resolve(each) for name, each in node.kwargs.items()}
        return (positional, named), not missing

    def _as_parameter(self, held: Any) -> Any:
        """Returns a tensor of floats of the module as a parameter, whose name stays: it is not folded into a constant.
        Integers and single numbers are often sizes and are folded."""
        if not isinstance(held, Tensor) or held.value is not None or not held.label:
            return held
        if not held.dtype.is_float or not held.rank:
            return held
        return Tensor(held.type, self.writer.value(held))

    def _arithmetic(self, node: Any, arguments: tuple[tuple[Any, ...], dict[str, Any]], span: Span) -> Any:
        positional, _ = arguments
        if node.target is operator.getitem:
            results, number = positional
            return self._result(node, results, number, span)
        if _is_real(node):
            return self._real(node, positional, span)
        if node.target not in _ARITHMETIC:
            return self._decide(node, span)
        rule = _ARITHMETIC[node.target]
        if not all(isinstance(each, (int, float, Poly)) for each in positional):
            message = f"`{name_of(node)}` of node `{_shown(node)}` computes with values that are known in a call only"
            raise DiagnosticError([Diagnostic("data-dependent", message, span)])
        return rule(*positional)

    def _real(self, node: Any, operands: Sequence[Any], span: Span) -> Tensor:
        """Returns a number that PyTorch computes from sizes, such as 1 / T, as an f64 scalar."""
        name = name_of(node)
        if name not in _REAL or not all(isinstance(each, (int, float, Poly, Tensor)) for each in operands):
            message = f"`{name}` of node `{_shown(node)}` computes a number from sizes, which is not supported"
            raise DiagnosticError([Diagnostic("unsupported-operator", message, span)])
        g = self.writer
        scalars = [scalar(each) for each in operands]
        scalars = [each if each.dtype == F64 else g.cast(each, dtype=F64) for each in scalars]
        return scalars[0] if name == "sym_float" else g.apply(_REAL[name], scalars, {})[0]

    def _result(self, node: Any, results: Any, number: Any, span: Span) -> Any:
        """Returns one of several results. Converters may leave out those that models rarely read; one that is not read
        is None."""
        if not isinstance(number, int) or (number < len(results) and results[number] is not None):
            return results[number]
        if node.users:
            message = f"result {number} of `{name_of(node.args[0])}`, `{_shown(node)}`, cannot be read"
            raise DiagnosticError([Diagnostic("unsupported-operator", message, span)])
        return None

    def _decide(self, node: Any, span: Span) -> bool:
        """Returns whether a comparison of sizes holds for all values of the dims."""
        expression = node.meta["val"].node.expr
        found = self.sizes.decide(expression)
        if found is None:
            message = f"`{_shown(node)}` depends on {expression}, which the ranges of the dims do not decide"
            raise DiagnosticError([Diagnostic("data-dependent", message, span)])
        return found

    def _convert(self, node: Any, arguments: tuple[tuple[Any, ...], dict[str, Any]], described: Any, span: Span) -> Any:
        name = name_of(node)
        converter = find_converter(name)
        assert converter is not None, name
        values, _ = _bind(node.target, *_described(node))
        bound, _ = _bind(node.target, *arguments)
        self.bounds.check(name, values, described, _shown(node), span)
        makes_size = name in MAKERS and self._has_new_size(described)
        types = (None,) if makes_size else self._types(described, node)
        use = Use(_shown(node), name, bound, values, _promoted, types, self.writer, span, self.bounds.counts_of)
        made = tuple(
            self.bounds.add(each, described) if isinstance(each, BoundedTensor) else each for each in converter(use)
        )
        if makes_size and not self.bounds.counts_of(described):
            self.sizes.bind(described.shape, made[0].shape)
        results = tuple(self._checked(use, each, type) for each, type in zip(made, types, strict=False))
        return results if isinstance(described, (list, tuple)) else results[0] if results else None

    def _has_new_size(self, described: Any) -> bool:
        """Returns whether a result has a size that is a new symbol of PyTorch without a known bound."""
        if not hasattr(described, "shape"):
            return False
        try:
            for size in described.shape:
                self.sizes.of(size)
        except DimError:
            return True
        return False

    def _types(self, described: Any, node: Any) -> tuple[TensorType | None, ...]:
        listed = described if isinstance(described, (list, tuple)) else (described,)
        return tuple(self.type_of(each, node) if hasattr(each, "dtype") else None for each in listed)

    def type_of(self, value: Any, node: Any) -> TensorType:
        """Returns the type of a tensor without data. Raises DiagnosticError."""
        dtype = DTYPES.get(str(value.dtype))
        if dtype is None or str(value.layout) != "torch.strided":
            described = f"{value.dtype}" if dtype is None else f"{value.layout}"
            message = f"the tensor `{_shown(node)}` is {described}, which is not supported"
            raise DiagnosticError([Diagnostic("unsupported-dtype", message, self.spans[node])])
        try:
            return TensorType(dtype, tuple(self.sizes.of(size) for size in value.shape))
        except DimError as error:
            message = f"the shape of `{_shown(node)}`: {error}"
            help_text = "the shapes of all tensors must follow from the shapes of the arguments"
            raise DiagnosticError([Diagnostic("data-dependent", message, self.spans[node], help=help_text)]) from None

    def _checked(self, use: Use, made: Any, expected: TensorType | None) -> Any:
        """Asserts that a result has the type that PyTorch inferred, and returns it with the sizes of this type."""
        if expected is None or not isinstance(made, Tensor):
            return made
        assert made.dtype == expected.dtype, f"{use.operator} of {use.name} gives {made.type}, expected {expected}"
        if made.shape == expected.shape:
            return made
        assert made.rank == expected.rank, f"{use.operator} of {use.name} gives {made.type}, expected {expected}"
        return self.writer.reshape(made, shape=expected.shape)


def _is_symbolic(value: Any) -> bool:
    return type(value).__name__ == "SymInt"


_ARITHMETIC: Mapping[Any, Callable[..., Any]] = {
    operator.getitem: operator.getitem,
    operator.add: operator.add,
    operator.sub: operator.sub,
    operator.mul: operator.mul,
    operator.neg: operator.neg,
    operator.floordiv: floor_divide,
    operator.truediv: operator.truediv,
    operator.pow: operator.pow,
}
_REAL: Mapping[str, str] = {
    "add": "add", "sub": "subtract", "mul": "multiply", "neg": "negate", "truediv": "divide", "pow": "power",
    "_sym_sqrt": "sqrt", "sym_float": "cast",
}  # fmt: skip
"""Operators of the graph that compute a number from sizes, by the name of the function."""


def _is_size_arithmetic(node: Any) -> bool:
    kind = type(node.meta.get("val")).__name__
    return node.target in _ARITHMETIC or kind in ("SymInt", "SymBool") or _is_real(node)


def _is_real(node: Any) -> bool:
    """Returns whether a node is a function of Python that computes a float."""
    return type(node.meta.get("val")).__name__ == "SymFloat" and not hasattr(node.target, "_schema")


def name_of(node: Any) -> str:
    """Returns the name of an operator: `add.Tensor` for those of ATen, with the namespace for others."""
    target = node.target
    if hasattr(target, "_schema"):
        return str(target).removeprefix("aten.")
    return str(getattr(target, "__name__", target))


def _shown(node: Any) -> str:
    scope = scope_of(node)
    return f"{scope}.{node.name}" if scope else str(node.name)


def scope_of(node: Any) -> str:
    """Returns the path of the module around a node, such as `encoder.layer.0`."""
    stack = node.meta.get("nn_module_stack") or {}
    path = next(reversed(list(stack.values())), ("", None))[0] if stack else ""
    path = re.sub(r"^L\['self'\]\.?", "", str(path))
    return re.sub(r"[^\w.]", "_", re.sub(r"@\d+$", "", path)).strip(".")


def _bind(target: Any, positional: Sequence[Any], named: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """Returns the arguments by the names of the schema, with its defaults."""
    schema = target._schema
    bound: dict[str, Any] = {}
    for number, argument in enumerate(schema.arguments):
        if number < len(positional) and not argument.kwarg_only:
            bound[argument.name] = positional[number]
        elif argument.name in named:
            bound[argument.name] = named[argument.name]
        else:
            bound[argument.name] = argument.default_value if argument.has_default_value() else None
    return bound, schema


def _described(node: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def describe(argument: Any) -> Any:
        if isinstance(argument, (list, tuple)):
            return tuple(describe(each) for each in argument)
        return argument.meta.get("val") if type(argument).__name__ == "Node" else argument

    return tuple(describe(each) for each in node.args), {k: describe(v) for k, v in node.kwargs.items()}


def _promoted(values: Sequence[Any]) -> str:
    torch = load_torch()
    result = values[0]
    if len(values) == 1:
        return str(torch.result_type(result, result))
    found = torch.result_type(values[0], values[1])
    for value in values[2:]:
        found = torch.promote_types(found, torch.result_type(value, value))
    return str(found)


def _line(node: Any) -> str:
    """Returns the text of a node in the listing."""
    if node.op == "placeholder":
        return f"{node.name}: argument"
    if node.op == "output":
        return f"return {', '.join(map(str, node.all_input_nodes))}"
    given = [str(each) for each in node.args] + [f"{name}={value}" for name, value in node.kwargs.items()]
    return f"{node.name} = {name_of(node) if node.op == 'call_function' else node.target}({', '.join(given)})"
