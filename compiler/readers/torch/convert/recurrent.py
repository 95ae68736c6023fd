"""Recurrent layers: LSTM, GRU and RNN, as scans over time, so that the length may be symbolic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from .....dialect.types import I64, TensorType
from ...writing.tensors import Tensor
from ..writing.use import Convert, Converters, Use

Cell: TypeAlias = Callable[[Use, Tensor, Tensor, Sequence[Tensor]], Sequence[Tensor]]
"""Returns the new state from the products of the input and of the state with their weights, and the old state."""


def _lstm_cell(use: Use, x: Tensor, h: Tensor, state: Sequence[Tensor]) -> Sequence[Tensor]:
    g = use.g
    i, f, new, o = g.apply("split", [g.add(x, h)], {"parts": 4, "axis": 1})
    cell = g.add(g.multiply(g.sigmoid(f), state[1]), g.multiply(g.sigmoid(i), g.tanh(new)))
    return [g.multiply(g.sigmoid(o), g.tanh(cell)), cell]


def _gru_cell(use: Use, x: Tensor, h: Tensor, state: Sequence[Tensor]) -> Sequence[Tensor]:
    g = use.g
    x_r, x_z, x_n = g.apply("split", [x], {"parts": 3, "axis": 1})
    h_r, h_z, h_n = g.apply("split", [h], {"parts": 3, "axis": 1})
    reset, update = g.sigmoid(g.add(x_r, h_r)), g.sigmoid(g.add(x_z, h_z))
    new = g.tanh(g.add(x_n, g.multiply(reset, h_n)))
    return [g.add(new, g.multiply(update, g.subtract(state[0], new)))]


def _plain_cell(name: str) -> Cell:
    return lambda use, x, h, state: [use.g.apply(name, [use.g.add(x, h)], {})[0]]


def _product(use: Use, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    total = use.g.matmul(x, use.g.transpose(weight, axes=(1, 0)))
    return total if bias is None else use.g.add(total, bias)


def _direction(
    use: Use, cell: Cell, x: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor], *, backward: bool
) -> tuple[Tensor, Sequence[Tensor]]:
    """Returns the outputs of all steps [time, batch, hidden], and the last state."""
    g, time = use.g, x.shape[0]
    biased = use.flag("has_biases")
    projection = weights[-1] if len(weights) == (5 if biased else 3) else None
    biases = (weights[2], weights[3]) if biased else (None, None)
    products = _product(use, x, weights[0], biases[0])

    def build(arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        step, *old = arguments
        at = g.subtract(g.size(time - 1), step) if backward else step
        new = list(cell(use, g.gather(products, at, axis=0), _product(use, old[0], weights[1], biases[1]), old))
        if projection is not None:
            new[0] = _product(use, new[0], projection, None)
        return [*new, new[0]]

    region = g.region([TensorType(I64), *(each.type for each in state)], build)
    collected = TensorType(state[0].dtype, (time, *state[0].shape))
    types = [*(each.type for each in state), collected]
    *final, output = g.control("scan", list(state), {"carried": len(state), "count": time}, [region], types)
    return (g.flip(output, axes=(0,)) if backward else output), final


def _layers(cell: Cell, gated: bool) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        g, x = use.g, use.tensor("input")
        if use.flag("train") and use.number("dropout") != 0:
            use.fail("draws random numbers", code="random-numbers", help="call `eval()` on the module first")
        batch_first = use.flag("batch_first")
        x = g.transpose(x, axes=(1, 0, 2)) if batch_first else x
        states = use.tensors("hx") if gated else [use.tensor("hx")]
        weights = use.tensors("params")
        directions, layers = 2 if use.flag("bidirectional") else 1, int(use.number("num_layers"))
        each = len(weights) // (directions * layers)
        finals: list[list[Tensor]] = [[] for _ in states]
        for layer in range(layers):
            outputs = []
            for backward in range(directions):
                number = layer * directions + backward
                first = [g.squeeze(g.slice(s, starts=(number,), stops=(number + 1,)), axes=(0,)) for s in states]
                own = weights[number * each : (number + 1) * each]
                output, last = _direction(use, cell, x, first, own, backward=bool(backward))
                outputs.append(output)
                for held, new in zip(finals, last, strict=True):
                    held.append(new)
            x = outputs[0] if directions == 1 else g.concat(*outputs, axis=2)
        result = g.transpose(x, axes=(1, 0, 2)) if batch_first else x
        return [result, *(g.stack(*held, axis=0) for held in finals)]

    return convert


CONVERTERS: Converters = {
    f"{prefix}{name}.{overload}": convert
    for name, convert in (
        ("lstm", _layers(_lstm_cell, True)),
        ("gru", _layers(_gru_cell, False)),
        ("rnn_tanh", _layers(_plain_cell("tanh"), False)),
        ("rnn_relu", _layers(_plain_cell("relu"), False)),
    )
    for prefix, overload in (("", "input"), ("nacre.", "default"))
}
