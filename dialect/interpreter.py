"""The reference interpreter: runs any graph with numpy, node by node, each by its operator's own reference.

It is slow and exact. With `precision=float64` every float tensor, parameters included, is computed in float64. This is
the reference for the error of compiled code: nothing is rounded except by a `stepped` operator such as `cast`. It
accepts every graph that the verifier accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .control_flow import CONTROL_FLOW
from .diagnostics import Diagnostic, DiagnosticError
from .dims import DimError, divide_exactly, evaluate, static_size, symbols
from .graph import Attribute, Constant, Formula, Function, Module, Node, Parameter, Region
from .operator import InvalidOperandsError
from .ops import OPERATORS
from .ops.support.index_modes import FAILING_MODES, find_outside
from .ops.support.tree_errors import describe_fault
from .remembered import KeptParameters, KeptResults
from .requirements import call_requirements
from .types import F64, Array, DType, TensorType, dtype_of

Load = Callable[[Parameter], Array]
"""A callback that returns the data of a parameter (without loops, without a formula), in the shape of its type.
Block-quantized data may come as floats, which are then quantized."""
Observe = Callable[[Node, Sequence[Array]], None]
"""A callback that receives the results of every executed node."""


class IndexRangeError(DiagnosticError):
    """An exception for an index, or the start of a window, outside of its axis."""


class EndlessError(DiagnosticError):
    """An exception for a `while` with more iterations than the interpreter permits."""


class MemoryLimitError(DiagnosticError):
    """An exception for results that cannot be allocated."""


def bind_dims(function: Function, arguments: Sequence[Array]) -> dict[str, int]:
    """Returns the values of the dims that the arguments' shapes imply. Raises DimError if they contradict each
    other."""
    values: dict[str, int] = {}
    pending = [
        (argument.name, size, actual)
        for argument, array in zip(function.arguments, arguments, strict=True)
        for size, actual in zip(argument.type.shape, array.shape, strict=True)
    ]
    # Bare dims and `a*T + b` are solved first; then everything is checked.
    for name, size, actual in sorted(pending, key=lambda p: len(str(p[1]))):
        unknown = [s for s in symbols(size) if s.name not in values]
        if len(unknown) == 1:
            symbol = unknown[0]
            offset = evaluate(size, values | {symbol.name: 0})
            slope = evaluate(size, values | {symbol.name: symbol.multiple}) - offset
            unit = divide_exactly(actual - offset, slope)
            if not isinstance(unit, int):
                raise DimError(f"argument `{name}`: size {actual} is not {size} for any {symbol.name}")
            values[symbol.name] = unit * symbol.multiple
            if not symbol.low <= values[symbol.name] <= symbol.high:
                raise DimError(f"`{symbol.name}` is {values[symbol.name]}, outside {symbol.low}..{symbol.high}")
    for name, size, actual in pending:
        if evaluate(size, values) != actual:
            raise DimError(f"argument `{name}`: expected size {size} = {evaluate(size, values)}, got {actual}")
    return values


def contiguous(array: Array) -> Array:
    """Returns the array with contiguous elements: numpy sums a strided array in another order, and rounds
    differently."""
    return np.ascontiguousarray(array).reshape(array.shape)


class Interpreter:
    """Runs functions of a module. `load` returns parameters; `precision` replaces the dtype of every float tensor;
    `most_iterations` is the greatest number of iterations of a `while`, None for any number. `kept` and `results` are
    shared with interpreters of other modules that compute the same."""

    def __init__(
        self,
        module: Module,
        load: Load,
        *,
        precision: DType | None = None,
        observe: Observe | None = None,
        most_iterations: int | None = None,
        kept: KeptParameters | None = None,
        results: KeptResults | None = None,
    ) -> None:
        self.module, self.load, self.precision, self.observe = module, load, precision, observe
        self.most_iterations, self.kept, self.results = most_iterations, kept, results
        self._parameters: dict[str, Array] = {}
        self._known: dict[int, tuple[Node, Mapping[str, int], dict[str, object]]] = {}
        """The attributes of nodes by their identity, with the sizes of dims, in the current run."""

    def run(
        self, function: Function | str, arguments: Sequence[Array], dims: Mapping[str, int] | None = None
    ) -> tuple[Array, ...]:
        """Returns the results for arguments in order. Raises DimError if their shapes do not fit the function's types.

        `dims` are the sizes of dims that the shapes of the arguments do not determine.
        """
        if isinstance(function, str):
            function = self.module.function(function)
        if dims is None:
            dims = bind_dims(function, arguments)
        for requirement in call_requirements(function):
            if not requirement.holds(dims):
                given = ", ".join(f"`{name}` = {size}" for name, size in dims.items())
                raise DimError(f"`{function.name}` needs {requirement}, which does not hold for {given}")
        values = {
            v.name: contiguous(self._cast(np.asarray(a))) for v, a in zip(function.arguments, arguments, strict=True)
        }
        self._known.clear()
        self._run_nodes(function.body, values, dims)
        return tuple(values[v.name] for v in function.results)

    def _cast(self, array: Array) -> Array:
        if self.precision is not None and dtype_of(array).is_float:
            return array.astype(self.precision.numpy)
        return array

    def _run_nodes(self, nodes: Sequence[Node], values: dict[str, Array], dims: Mapping[str, int]) -> None:
        for node in nodes:
            try:
                results = self._run_node(node, values, dims)
            except MemoryError:
                raise self._out_of_memory(node, dims) from None
            for value, array in zip(node.outputs, results, strict=True):
                values[value.name] = array
            if self.observe is not None:
                self.observe(node, results)

    def _out_of_memory(self, node: Node, dims: Mapping[str, int]) -> MemoryLimitError:
        taken = []
        for value in node.outputs:
            dtype = self.precision if self.precision is not None and value.type.dtype.is_float else value.type.dtype
            shape = tuple(evaluate(size, dims) for size in value.type.shape)
            taken.append(f"{evaluate(TensorType(dtype, shape).bytes, {}):,} bytes, {dtype}{list(shape)}")
        message = f"memory for `{node.op}` cannot be allocated: a result takes {', another '.join(taken)}"
        return MemoryLimitError([Diagnostic("out-of-memory", message, node.span)])

    def _run_region(
        self, region: Region, inputs: Sequence[Array], values: Mapping[str, Array], dims: Mapping[str, int]
    ) -> list[Array]:
        inner = dict(values) | {v.name: a for v, a in zip(region.arguments, inputs, strict=True)}
        self._run_nodes(region.body, inner, dims)
        return [inner[v.name] for v in region.results]

    def _run_node(self, node: Node, values: Mapping[str, Array], dims: Mapping[str, int]) -> Sequence[Array]:
        inputs = [values[v.name] for v in node.inputs]
        if node.op == "parameter":
            return [self._parameter(str(node.attribute("name")), inputs)]
        if node.op == "repeat":
            count = node.attribute("count")
            assert isinstance(count, int)
            for index in range(count):
                inputs = self._run_region(node.regions[0], [np.asarray(np.int64(index)), *inputs], values, dims)
            return inputs
        if node.op == "fusion":
            return self._run_region(node.regions[0], inputs, values, dims)
        if node.op in CONTROL_FLOW:
            return self._run_control(node, inputs, values, dims)
        if self.results is None:
            return self._run_operator(node, inputs, dims)
        key = self.results.key(node, inputs, dims, self.precision)
        found = self.results.get(key)
        if found is None:
            found = self._run_operator(node, inputs, dims)
            self.results.add(key, inputs, found)
        return found

    def _run_operator(self, node: Node, inputs: Sequence[Array], dims: Mapping[str, int]) -> Sequence[Array]:
        attributes = self._attributes(node, dims)
        if OPERATORS[node.op].has("bitwise"):
            # The bits of a number are those in the dtype of the graph.
            inputs = [a.astype(v.type.dtype.numpy, copy=False) for a, v in zip(inputs, node.inputs, strict=True)]
        if attributes.get("mode") in FAILING_MODES:
            _check_indices(node, inputs, dims)
        try:
            with np.errstate(all="ignore"):
                results = OPERATORS[node.op].reference(*inputs, **attributes)
        except InvalidOperandsError as error:
            raise _out_of_range(node, error.operator, *error.record) from None
        if not isinstance(results, tuple):
            results = (results,)
        if OPERATORS[node.op].has("checking") and results[0][0] >= 0:
            raise _out_of_range(node, str(attributes["operator"]), *map(int, results[0]))
        return [self._result(r, v.type.dtype) for r, v in zip(results, node.outputs, strict=True)]

    def _run_control(
        self, node: Node, inputs: Sequence[Array], values: Mapping[str, Array], dims: Mapping[str, int]
    ) -> Sequence[Array]:
        control = CONTROL_FLOW[node.op]
        most = None if control.is_bounded else self.most_iterations
        iterations = 0

        def run_region(region: Region, arrays: Sequence[Array]) -> list[Array]:
            nonlocal iterations
            iterations += region is node.regions[-1]
            if most is not None and iterations > most:
                message = f"`{node.op}` does not end within {most} iterations"
                raise EndlessError([Diagnostic("endless-loop", message, node.span)])
            return self._run_region(region, arrays, values, dims)

        found = control.run(node, inputs, run_region, lambda size: static_size(self._concrete(size, dims)))
        return [self._result(r, v.type.dtype) for r, v in zip(found, node.outputs, strict=True)]

    def _result(self, array: Array, dtype: DType) -> Array:
        target = self.precision if self.precision is not None and dtype.is_float else dtype
        return contiguous(np.asarray(array).astype(target.numpy, copy=False))

    def _attributes(self, node: Node, dims: Mapping[str, int]) -> dict[str, object]:
        """Returns the attributes passed to an operator's reference. Iterations of a loop share them."""
        known = self._known.get(id(node))
        if known is not None and known[0] is node and known[1] is dims:
            return known[2]
        found = self._find_attributes(node, dims)
        # Copies of constants in another precision may be large.
        if not any(isinstance(value, Constant) for value in found.values()):
            self._known[id(node)] = node, dims, found
        return found

    def _find_attributes(self, node: Node, dims: Mapping[str, int]) -> dict[str, object]:
        operator = OPERATORS[node.op]
        stepped = operator.has("stepped")
        given: Mapping[str, Any] = dict(node.attributes)
        if operator.resolve is not None:
            given = operator.resolve([value.type for value in node.inputs], operator.complete(given))
        return {
            name: value if stepped and isinstance(value, DType) else self._concrete(value, dims)
            for name, value in given.items()
        }

    def _concrete(self, value: Attribute, dims: Mapping[str, int]) -> object:
        if isinstance(value, tuple):
            return tuple(self._concrete(v, dims) for v in value)
        if isinstance(value, DType):
            return self.precision if self.precision is not None and value.is_float else value
        if isinstance(value, Constant):
            return value if self.precision is None else Constant(self._cast(value.data))
        if isinstance(value, (bool, float, str)) or value is None:
            return value
        return evaluate(value, dims)

    def _parameter(self, pattern: str, indices: Sequence[Array]) -> Array:
        parameter = self.module.parameter_index[pattern].at(int(i) for i in indices)
        if parameter.name not in self._parameters:
            kept = None if self.kept is None else self.kept.get(parameter, self.precision)
            self._parameters[parameter.name] = self._load(parameter) if kept is None else kept
        return self._parameters[parameter.name]

    def _load(self, parameter: Parameter) -> Array:
        array = load_parameter(parameter, self.load, precision=self.precision)
        assert array.shape == parameter.type.stored_shape, (parameter, array.shape)
        array = contiguous(self._cast(array))
        if self.kept is not None:
            self.kept.add(parameter, self.precision, array)
        return array


def _check_indices(node: Node, inputs: Sequence[Array], dims: Mapping[str, int]) -> None:
    addresses = OPERATORS[node.op].addresses
    if addresses is None:
        return
    for use in addresses([v.type for v in node.inputs], dict(node.attributes)):
        indices, window = inputs[use.operand], evaluate(use.window, dims)
        if use.ignored is not None:
            indices = np.where(indices == use.ignored, 0, indices)
        sizes = [evaluate(size, dims) for size in use.sizes]
        number = find_outside(indices, sizes, window, from_end=use.from_end)
        if number is not None:
            index = int(indices.reshape(-1)[number])
            raise _out_of_range(node, node.op, number, index, sizes[number % len(sizes)], window)


def _out_of_range(node: Node, operator: str, number: int, index: int, size: int, window: int) -> IndexRangeError:
    """Returns the error, worded as in the runtime's api.c."""
    message = (
        f"`{operator}`: index {index} is out of range for an axis of size {size} (element {number} of the indices)"
    )
    if window < 0:
        message = f"`{operator}`: {describe_fault(number, index, size, window)}"
    elif window == 0:
        message = (
            f"`{operator}`: length {index} is out of range for an axis of size {size} (element {number} of the lengths)"
        )
    elif window != 1:
        message = (
            f"`{operator}`: a window of {window} that starts at {index} is out of range for an axis of size {size}"
        )
    return IndexRangeError([Diagnostic("index-out-of-range", message, node.span)])


def load_parameter(parameter: Parameter, load: Load, *, precision: DType | None = None) -> Array:
    """Returns the data of any single parameter; `load` returns those of stored ones.

    A formula is computed in float64 and rounded once, to the dtype of its result; one that only moves elements keeps
    their bits. A formula that is `stepwise`, or that quantizes, is computed in the dtypes of the graph, because
    quantized values depend on them. With `precision` the result keeps that dtype instead.
    """
    formula = parameter.formula
    if formula is None:
        array, dtype = load(parameter), parameter.type.dtype
        whole = dtype.is_blocked and array.dtype != dtype.numpy
        return np.asarray(OPERATORS["quantize_blocks"].reference(array, dtype)) if whole else array
    inner = F64 if precision is None and is_rounded_once(formula) else precision
    if _is_stepwise(formula):
        inner = None
    (result,) = Interpreter(formula.module, load, precision=inner).run(formula.function, ())
    if precision is not None:
        return result
    with np.errstate(over="ignore"):
        return result.astype(parameter.type.dtype.numpy, copy=False)


def is_rounded_once(formula: Formula) -> bool:
    """Returns whether the result is computed in float64 and then rounded, and not node by node in the dtypes of the
    graph."""
    moves = all(OPERATORS[n.op].has("movement") or OPERATORS[n.op].has("structure") for n in formula.body)
    return not moves and not _is_stepwise(formula)


def _is_stepwise(formula: Formula) -> bool:
    return formula.stepwise or any(map(_makes_codes, formula.body))


def _makes_codes(node: Node) -> bool:
    """Returns whether the node quantizes floats."""
    steps = OPERATORS[node.op].has("stepped") and any(v.type.dtype.is_float for v in node.inputs)
    return steps and not any(v.type.dtype.is_differentiable for v in node.outputs)
