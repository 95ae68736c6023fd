"""Recurrent layers as loops over single steps: cells with any activations, cells in `RNN`, and convolutional cells.

The product of all steps with the weights of the operand is computed before the loop; the loop has the product with the
state alone. A layer that goes backwards returns its steps in the order in which it computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from .....dialect.types import I64, TensorType
from ...writing.tensors import Elements, Tensor
from ..writing.use import Convert, Converters, Use
from .activations import FUNCTIONS, Function, activation_name
from .convolutions import convolved

Product: TypeAlias = Callable[[Tensor, Elements, str], Tensor]
"""Multiplies a state by a recurrent weight; the last argument names the weight."""


@dataclass(frozen=True, slots=True)
class Part:
    """The parameters of a recurrent step: the recurrent weight and bias, the two activations, the axis of the gates in
    the operand of a step, and the number of units."""

    use: Use
    weight: Elements
    bias: Elements | None
    function: Function
    gate: Function
    axis: int
    units: int

    def gates(self, x: Tensor, count: int) -> list[Tensor]:
        return list(self.use.g.apply("split", [x], {"parts": count, "axis": self.axis}))


Step: TypeAlias = Callable[[Part, Product, Tensor, Sequence[Tensor]], list[Tensor]]
"""Returns the new states of a cell from the product of a step and the old states; the first one is the result."""


def _lstm(part: Part, product: Product, x: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    use, g = part.use, part.use.g
    i, f, c, o = part.gates(g.add(x, product(states[0], part.weight, "recurrent_kernel")), 4)
    kept = g.multiply(part.gate(use, f), states[1])
    cell = g.add(kept, g.multiply(part.gate(use, i), part.function(use, c)))
    return [g.multiply(part.gate(use, o), part.function(use, cell)), cell]


def _gru(part: Part, product: Product, x: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    use, g, units = part.use, part.use.g, part.units
    x_z, x_r, x_h = part.gates(x, 3)
    if use.flag("reset_after", True):
        moved = product(states[0], part.weight, "recurrent_kernel")
        if part.bias is not None:
            moved = g.add(moved, use.tensor(part.bias, "recurrent_bias"))
        h_z, h_r, h_h = part.gates(moved, 3)
        update, reset = part.gate(use, g.add(x_z, h_z)), part.gate(use, g.add(x_r, h_r))
        inner = g.multiply(reset, h_h)
    else:
        h_z, h_r = part.gates(product(states[0], part.weight[:, : 2 * units], "recurrent_gates"), 2)
        update, reset = part.gate(use, g.add(x_z, h_z)), part.gate(use, g.add(x_r, h_r))
        inner = product(g.multiply(reset, states[0]), part.weight[:, 2 * units :], "recurrent_kernel")
    new = part.function(use, g.add(x_h, inner))
    return [g.add(new, g.multiply(update, g.subtract(states[0], new)))]


def _simple(part: Part, product: Product, x: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    return [part.function(part.use, part.use.g.add(x, product(states[0], part.weight, "recurrent_kernel")))]


@dataclass(frozen=True, slots=True)
class Cell:
    """A kind of cell: its step, and the number of its gates and of its states."""

    step: Step
    gates: int
    states: int = 1


CELLS: Mapping[str, Cell] = {"LSTM": Cell(_lstm, 4, 2), "GRU": Cell(_gru, 3), "SimpleRNN": Cell(_simple, 1)}
"""The cells by the class of a layer."""


def run_steps(
    use: Use,
    x: Tensor,
    states: Sequence[Tensor],
    step: Callable[[Tensor, Sequence[Tensor]], list[Tensor]],
    back: bool,
    mask: Tensor | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """Returns the results [time, batch, ...] of the steps x [time, batch, ...], and the last states. Where the mask
    [time, batch, 1] is false, the states stay, and the result is that of the previous step, or 0."""
    g, time = use.g, x.shape[0]

    def body(arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        number, *old = arguments
        position = g.subtract(g.size(time - 1), number) if back else number
        new = step(g.gather(x, position, axis=0), old)
        if mask is None:
            return [*new, new[0]]
        counts = g.gather(mask, position, axis=0)
        new = [g.where(counts, made, before) for made, before in zip(new, old, strict=True)]
        is_zero = use.flag("zero_output_for_mask")
        return [*new, g.where(counts, new[0], g.like(0, new[0])) if is_zero else new[0]]

    region = g.region([TensorType(I64), *(state.type for state in states)], body)
    collected = states[0].type.with_shape((time, *states[0].shape))
    types = [*(state.type for state in states), collected]
    *last, steps = g.control("scan", list(states), {"carried": len(states), "count": time}, [region], types)
    return steps, last


def run_cell(
    use: Use, kind: str, x: Tensor, states: Sequence[Tensor], backwards: bool, mask: Tensor | None = None
) -> tuple[Tensor, list[Tensor]]:
    """Returns the results [batch, time, units] of a cell, and its last states. If `states` is empty, the initial
    states are zeros. The mask is [batch, time]."""
    g, cell, units = use.g, CELLS[kind], use.integer("units")
    kernel, weight = use.array(0, 2), use.array(1, 2)
    if kernel.shape[1] != cell.gates * units or weight.shape != (units, cell.gates * units):
        use.fail(f"has weights that do not fit {units} units", code="shape-mismatch")
    gates = g.matmul(x, use.tensor(kernel, "kernel"))
    recurrent = None
    if use.flag("use_bias", True):
        both = use.any_array(2)
        if both.shape[-1] != cell.gates * units or both.ndim > 2:
            use.fail(f"has a bias that does not fit {units} units", code="shape-mismatch")
        gates = g.add(gates, use.tensor(both[0] if both.ndim == 2 else both, "bias"))
        recurrent = both[1] if both.ndim == 2 else None
    function = FUNCTIONS[activation_name(use, default="tanh")]
    gate = FUNCTIONS[activation_name(use, "recurrent_activation", "sigmoid")]
    part = Part(use, weight, recurrent, function, gate, 1, units)
    zero = g.broadcast_to(g.like(0, x), shape=(x.shape[0], units))

    def product(state: Tensor, matrix: Elements, word: str) -> Tensor:
        return g.matmul(state, use.tensor(matrix, word))

    def step(at: Tensor, old: Sequence[Tensor]) -> list[Tensor]:
        return cell.step(part, product, at, old)

    begin = list(states) or [zero] * cell.states
    counts = None if mask is None else g.transpose(g.unsqueeze(mask, axes=(2,)), axes=(1, 0, 2))
    steps, last = run_steps(use, g.transpose(gates, axes=(1, 0, 2)), begin, step, backwards, counts)
    return g.transpose(steps, axes=(1, 0, 2)), last


def mask_of(use: Use, x: Tensor) -> Tensor | None:
    """Returns the mask [batch, time] of the steps of a layer, or None."""
    mask = use.masks.get(0)
    if mask is not None and mask.rank != 2:
        use.fail(f"gets the mask {mask.type} of {x.type}, expected rank 2", code="unsupported-rank")
    if mask is not None and use.flag("zero_output_for_mask") and not use.flag("return_sequences"):
        use.fail("has `zero_output_for_mask` without `return_sequences`")
    return mask


def results_of(use: Use, steps: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    """Returns the results that the configuration of a layer requests."""
    result = steps if use.flag("return_sequences") else states[0]
    return [result, *states] if use.flag("return_state") else [result]


def check_steps(use: Use, x: Tensor, rank: int) -> None:
    if x.rank != rank:
        use.fail(f"gets {x.type}, expected rank {rank}", code="unsupported-rank")
    for name in ("stateful", "time_major"):
        if use.flag(name):
            use.fail(f"has `{name}`")


# --- cells in `RNN` ---


def _rnn(use: Use) -> Sequence[Tensor]:
    x = use.first
    check_steps(use, x, 3)
    outer = use.value("cell")
    listed = [outer]
    is_stack = isinstance(outer, Mapping) and outer.get("class_name") == "StackedRNNCells"
    if is_stack:
        listed = _config(use, outer).get("cells", [])
    if not isinstance(listed, list) or not listed:
        use.fail("has no cells", code="bad-keras")
    if len(use.inputs) > 1 or (is_stack and use.flag("return_state")):
        use.fail("has states as operands or results, which are supported for layers with one cell of their own")
    backwards, weights, mask = use.flag("go_backwards"), list(use.weights), mask_of(use, x)
    counts: dict[str, int] = {}
    last: list[Tensor] = []
    for number, inner in enumerate(listed):
        kind = str(inner.get("class_name")) if isinstance(inner, Mapping) else ""
        if not kind.endswith("Cell") or kind.removesuffix("Cell") not in CELLS:
            use.fail(f"has a cell of class `{kind}`", code="unsupported-operator")
        config = _config(use, inner)
        word = {"LSTMCell": "lstm_cell", "GRUCell": "gru_cell", "SimpleRNNCell": "simple_rnn_cell"}[kind]
        group = f"{word}_{counts[word]}" if word in counts else word
        counts[word] = counts.get(word, 0) + 1
        # A `.keras` file has a group for each cell of a stack; an `.h5` file lists all weights in order.
        own = [each for each in use.weights if group in each[0].split("/")] if is_stack else weights
        if not own:
            count = 3 if config.get("use_bias", True) else 2
            own, weights = weights[:count], weights[count:]
        if number == len(listed) - 1:
            config = {**config, "zero_output_for_mask": use.flag("zero_output_for_mask")}
        part = replace(use, name=f"{use.name}.{number}" if is_stack else use.name, config=config, weights=own)
        # The layers after the first one get its steps in the order of their computation.
        if number == 1 and backwards and mask is not None:
            mask = use.g.flip(mask, axes=1)
        x, last = run_cell(part, kind.removesuffix("Cell"), x, (), backwards and not number, mask)
    return results_of(use, x, last)


def _config(use: Use, record: Mapping[str, Any]) -> Mapping[str, Any]:
    found = record.get("config")
    if not isinstance(found, Mapping):
        use.fail("has a cell without a configuration", code="bad-keras")
    return found


# --- convolutional cells ---


def _conv_lstm(rank: int) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        g, x = use.g, use.first
        check_steps(use, x, rank + 3)
        filters = use.integer("filters")
        kernel, weight = use.array(0, rank + 2), use.array(1, rank + 2)
        if kernel.shape[-1] != 4 * filters or weight.shape[-2:] != (filters, 4 * filters):
            use.fail(f"has weights that do not fit {filters} filters", code="shape-mismatch")
        batch, time = x.shape[:2]
        flat = g.reshape(x, shape=(batch * time, *x.shape[2:]))
        gates = convolved(use, flat, kernel, 1, "kernel")
        axis = rank + 1 if use.channels_last else 1
        if use.flag("use_bias", True):
            bias = use.array(2, 1).reshape(-1, *(1,) * (gates.rank - 1 - axis))
            gates = g.add(gates, use.tensor(bias, "bias"))
        gates = g.reshape(gates, shape=(batch, time, *gates.shape[1:]))
        order = (1, 0, *range(2, gates.rank))
        function = FUNCTIONS[activation_name(use, default="tanh")]
        gate = FUNCTIONS[activation_name(use, "recurrent_activation", "sigmoid")]
        part = Part(use, weight, None, function, gate, axis, filters)
        inside = replace(use, config={"padding": "same", "data_format": use.value("data_format", None)})
        shape = [batch, *gates.shape[2:]]
        shape[axis] = filters
        zero = g.broadcast_to(g.like(0, x), shape=tuple(shape))

        def step(at: Tensor, old: Sequence[Tensor]) -> list[Tensor]:
            return _lstm(part, lambda state, array, word: convolved(inside, state, array, 1, word), at, old)

        begin = list(use.inputs[1:]) or [zero, zero]
        steps, last = run_steps(use, g.transpose(gates, axes=order), begin, step, use.flag("go_backwards"))
        return results_of(use, g.transpose(steps, axes=order), last)

    return convert


CONVERTERS: Converters = {"RNN": _rnn, **{f"ConvLSTM{rank}D": _conv_lstm(rank) for rank in (1, 2, 3)}}
