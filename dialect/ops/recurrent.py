"""Recurrent layers: `lstm`, `gru` and `rnn`, each a `scan` over time, with the weights and the gates of PyTorch.

x is [T, B, input], or [B, T, input] with `batch_first`. `weight` [gates * H, input] and `recurrence` [gates * H, H]
hold the gates in order: i, f, g, o for `lstm`, r, z, n for `gru`. The product of x and `weight` is computed for all
steps before the loop. The gradient runs the loop once more, keeps what each step computes, and then goes backward:

    forward   state[t + 1], saved[t] = step(x[t] @ weight.T, state[t] @ recurrence.T, state[t])
    backward  dx[t], dh[t], direct = back(saved[t], dstate[t + 1]);   dstate[t] = dh[t] @ recurrence + direct

With `lengths` [B], the steps from the length of a row on leave its states as they are, and have zeros as outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dims import Size, add
from ..graph import Value
from ..lazy_dataclass import dataclass
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, Operand, Operator, Use
from ..types import F32, F64, I64, TensorType
from .support.accumulate import Numbers
from .support.algebra import Term
from .support.common import size_as
from .support.looping import scan

Terms = Sequence[Term]
_DTYPES = (F32, F64)


@dataclass(frozen=True, slots=True)
class _Cell:
    """One kind of layer. `step(input product, recurrent product, states) -> (states, saved)`, `back(saved, gradients of
    states) -> (gradients of both products, direct gradients of the states before)`, and `reference` as `step`."""

    gates: int
    states: tuple[str, ...]
    step: Callable[[Term, Term, Terms, Attributes], tuple[Terms, Terms]]
    back: Callable[[Terms, Terms, Attributes], tuple[Term, Term, list[Term | None]]]
    reference: Callable[[Numbers, Numbers, list[Numbers], Attributes], list[Numbers]]


def _parts(x: Term, count: int) -> list[Term]:
    return [Term(x.builder, v) for v in x.builder.apply("split", [x.value], {"parts": count, "axis": 1})]


def _joined(parts: Terms) -> Term:
    b = parts[0].builder
    return Term(b, b.concat(*(part.value for part in parts), axis=1))


def _lstm_step(p: Term, q: Term, states: Terms, attributes: Attributes) -> tuple[Terms, Terms]:
    i, f, g, o = _parts(p + q, 4)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    c = f * states[1] + i * g
    t = c.tanh()
    return [o * t, c], [i, f, g, o, t, states[1]]


def _lstm_back(saved: Terms, gradients: Terms, attributes: Attributes) -> tuple[Term, Term, list[Term | None]]:
    i, f, g, o, t, before = saved
    dh, dc = gradients
    dc = dc + dh * o * (1 - t * t)
    both = _joined([dc * g * i * (1 - i), dc * before * f * (1 - f), dc * i * (1 - g * g), dh * t * o * (1 - o)])
    return both, both, [None, dc * f]


def _sigmoid(x: Numbers) -> Numbers:
    return np.asarray(0.5 * (np.tanh(0.5 * x) + 1), x.dtype)


def _lstm_reference(p: Numbers, q: Numbers, states: list[Numbers], attributes: Attributes) -> list[Numbers]:
    i, f, g, o = np.split(p + q, 4, 1)
    c = _sigmoid(f) * states[1] + _sigmoid(i) * np.tanh(g)
    return [_sigmoid(o) * np.tanh(c), c]


def _gru_step(p: Term, q: Term, states: Terms, attributes: Attributes) -> tuple[Terms, Terms]:
    (p_r, p_z, p_n), (q_r, q_z, q_n) = _parts(p, 3), _parts(q, 3)
    (h,) = states
    r, z = (p_r + q_r).sigmoid(), (p_z + q_z).sigmoid()
    n = (p_n + r * q_n).tanh()
    return [(1 - z) * n + z * h], [r, z, n, q_n, h]


def _gru_back(saved: Terms, gradients: Terms, attributes: Attributes) -> tuple[Term, Term, list[Term | None]]:
    r, z, n, q_n, h = saved
    (dh,) = gradients
    dn = dh * (1 - z) * (1 - n * n)
    dr, dz = dn * q_n * r * (1 - r), dh * (h - n) * z * (1 - z)
    return _joined([dr, dz, dn]), _joined([dr, dz, dn * r]), [dh * z]


def _gru_reference(p: Numbers, q: Numbers, states: list[Numbers], attributes: Attributes) -> list[Numbers]:
    (p_r, p_z, p_n), (q_r, q_z, q_n) = np.split(p, 3, 1), np.split(q, 3, 1)
    z = _sigmoid(p_z + q_z)
    return [(1 - z) * np.tanh(p_n + _sigmoid(p_r + q_r) * q_n) + z * states[0]]


def _rnn_step(p: Term, q: Term, states: Terms, attributes: Attributes) -> tuple[Terms, Terms]:
    h = getattr(p + q, attributes["activation"])()
    return [h], [h]


def _rnn_back(saved: Terms, gradients: Terms, attributes: Attributes) -> tuple[Term, Term, list[Term | None]]:
    h, dh = saved[0], gradients[0]
    both = dh * (1 - h * h) if attributes["activation"] == "tanh" else h.greater(0).select(dh, 0.0)
    return both, both, [None]


def _rnn_reference(p: Numbers, q: Numbers, states: list[Numbers], attributes: Attributes) -> list[Numbers]:
    return [np.tanh(p + q) if attributes["activation"] == "tanh" else np.maximum(p + q, 0)]


@dataclass(frozen=True, slots=True)
class _Layer:
    """The operands of a use, with the defaults of those that are omitted, and x in the order of time."""

    x: Value
    weight: Value
    recurrence: Value
    biases: tuple[Value | None, Value | None]
    states: tuple[Value, ...]
    lengths: Value | None

    @property
    def time(self) -> Size:
        return self.x.type.shape[0]


def _read(b: Builder, cell: _Cell, operands: Sequence[Value], attributes: Attributes) -> _Layer:
    x, weight, recurrence, *rest = operands
    if attributes["batch_first"]:
        x = b.transpose(x, axes=(1, 0, 2))
    shape = (x.type.shape[1], recurrence.type.shape[1])
    given: list[Value | None] = [*rest, *[None] * (3 + len(cell.states) - len(rest))]
    states = [b.full(shape=shape, value=0.0, dtype=x.type.dtype) if v is None else v for v in given[2:-1]]
    return _Layer(x, weight, recurrence, (given[0], given[1]), tuple(states), given[-1])


def _inside(b: Builder, layer: _Layer, at: Value) -> Term | None:
    """Returns whether a step is before the end of each row [B, 1]; None without lengths."""
    if layer.lengths is None:
        return None
    return Term(b, b.unsqueeze(b.less(at, layer.lengths), axes=(1,)))


def _run(
    b: Builder, cell: _Cell, layer: _Layer, attributes: Attributes, *, keep: bool
) -> tuple[tuple[Value, ...], Value, tuple[Value, ...]]:
    """Returns the last states, and the outputs of all steps in the order of the loop; with `keep`, also the states
    before each step and what it saves."""
    products = b.matmul(layer.x, b.transpose(layer.weight, axes=(1, 0)))
    first, second = layer.biases
    if first is not None:
        products = b.add(products, first)
    # The candidate of a gru has its recurrent bias inside of a product.
    if second is not None and cell.gates != 3:
        products, second = b.add(products, second), None
    turned = b.transpose(layer.recurrence, axes=(1, 0))
    last = size_as(b, add(layer.time, -1), I64)

    def step(index: Value, carried: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
        at = b.subtract(last, index) if attributes["reverse"] else index
        p = Term(b, b.gather(products, at, axis=0, mode="clamp"))
        q = Term(b, b.matmul(carried[0], turned))
        if second is not None:
            q = q + Term(b, second)
        before = [Term(b, v) for v in carried]
        states, saved = cell.step(p, q, before, attributes)
        inside, output = _inside(b, layer, at), states[0]
        if inside is not None:
            output = inside.select(output, 0.0)
            states = [inside.select(new, old) for new, old in zip(states, before, strict=True)]
        new = [state.value for state in states]
        return new, [output.value, *([carried[0], *(each.value for each in saved)] if keep else [])]

    results = scan(b, layer.states, layer.time, step)
    count = len(cell.states)
    return results[:count], results[count], results[count + 1 :]


def _decompose(cell: _Cell, b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    final, y, _ = _run(b, cell, _read(b, cell, operands, attributes), attributes, keep=False)
    y = b.flip(y, axes=(0,)) if attributes["reverse"] else y
    return [b.transpose(y, axes=(1, 0, 2)) if attributes["batch_first"] else y, *final]


def _differentiate(cell: _Cell, b: Builder, use: Use) -> Sequence[Value | None]:
    attributes = use.attributes
    layer = _read(b, cell, use.inputs, attributes)
    _, y, (before, *saved) = _run(b, cell, layer, attributes, keep=True)
    gy, *given = use.gradients
    if gy is not None:
        gy = b.transpose(gy, axes=(1, 0, 2)) if attributes["batch_first"] else gy
        gy = b.flip(gy, axes=(0,)) if attributes["reverse"] else gy
    zeros = b.full(shape=layer.states[0].type.shape, value=0.0, dtype=y.type.dtype)
    last = size_as(b, add(layer.time, -1), I64)

    def step(index: Value, carried: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
        at = b.subtract(last, index)
        after = [Term(b, v) for v in carried]
        gradients = list(after)
        if gy is not None:
            gradients[0] = gradients[0] + Term(b, b.gather(gy, at, axis=0, mode="clamp"))
        kept = [Term(b, b.gather(v, at, axis=0, mode="clamp")) for v in saved]
        inside = _inside(b, layer, index if attributes["reverse"] else at)
        if inside is not None:
            gradients = [inside.select(gradient, 0.0) for gradient in gradients]
        dp, dq, direct = cell.back(kept, gradients, attributes)
        dh = dq.matmul(Term(b, layer.recurrence))
        new = [dh if direct[0] is None else dh + direct[0], *(d for d in direct[1:] if d is not None)]
        if inside is not None:
            new = [inside.select(inner, outer) for inner, outer in zip(new, after, strict=True)]
        return [term.value for term in new], [dp.value, dq.value]

    *states, dp, dq = scan(b, [zeros if g is None else g for g in given], layer.time, step)
    dp, dq = (b.flip(v, axes=(0,)) for v in (dp, dq))
    dr = b.einsum(dq, before, equation="tbg,tbh->gh")
    if attributes["reverse"]:
        dp = b.flip(dp, axes=(0,))
    dw = b.einsum(dp, layer.x, equation="tbg,tbi->gi")
    dx = b.matmul(dp, layer.weight)
    dx = b.transpose(dx, axes=(1, 0, 2)) if attributes["batch_first"] else dx
    biases = [b.sum(dp, axis=(0, 1)), b.sum(dq, axis=(0, 1))]
    return [dx, dw, dr, *biases, *states, None][: len(use.inputs)]


def _infer(name: str, cell: _Cell, types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, weight, recurrence, *rest = types
    for number, (type, rank) in enumerate(((x, 3), (weight, 2), (recurrence, 2))):
        if type.rank != rank:
            raise InferenceError("rank-mismatch", f"`{name}` takes a tensor of rank {rank}, not {type}", operand=number)
    hidden = recurrence.shape[1]
    time, batch = (x.shape[1], x.shape[0]) if attributes["batch_first"] else x.shape[:2]
    rows = cell.gates * hidden
    wanted: list[tuple[TensorType, tuple[Size, ...]]] = [(weight, (rows, x.shape[2])), (recurrence, (rows, hidden))]
    shapes = [(rows,), (rows,), *[(batch, hidden)] * len(cell.states), (batch,)]
    wanted += zip(rest, shapes, strict=False)
    for number, (type, shape) in enumerate(wanted, 1):
        if type.shape != shape:
            expected = type.with_shape(shape)
            label = f"expected {expected}: {cell.gates} gates of {hidden}" if number < 5 else f"expected {expected}"
            raise InferenceError("shape-mismatch", f"`{name}` cannot take {type} here", label=label, operand=number)
    outer = (batch, time) if attributes["batch_first"] else (time, batch)
    return x.with_shape((*outer, hidden)), *(x.with_shape((batch, hidden)) for _ in cell.states)


def _reference(cell: _Cell, *arrays: Any, batch_first: bool, reverse: bool, **attributes: Any) -> tuple[Any, ...]:
    x, weight, recurrence, *rest = arrays
    x = x.swapaxes(0, 1) if batch_first else x
    hidden = recurrence.shape[1]
    biases = [*rest[:2], *[np.zeros(len(weight), x.dtype)] * (2 - len(rest[:2]))]
    count = len(cell.states)
    states = [*rest[2 : 2 + count], *[np.zeros((x.shape[1], hidden), x.dtype)] * (count - len(rest[2:]))]
    lengths = rest[2 + count] if len(rest) > 2 + count else np.full(x.shape[1], len(x))
    y = np.zeros((*x.shape[:2], hidden), x.dtype)
    for at in range(len(x))[:: -1 if reverse else 1]:
        p, q = x[at] @ weight.T + biases[0], states[0] @ recurrence.T + biases[1]
        inside = (at < lengths)[:, None]
        new = cell.reference(p, q, states, attributes)
        y[at] = np.where(inside, new[0], 0)
        states = [np.where(inside, each, state) for each, state in zip(new, states, strict=True)]
    return y.swapaxes(0, 1) if batch_first else y, *states


def _cases(cell: _Cell, *further: dict[str, Any]) -> tuple[Case, ...]:
    def case(time: int, batch: int, width: int, hidden: int, operands: int, **attributes: Any) -> Case:
        rows = cell.gates * hidden
        x = (batch, time, width) if attributes.get("batch_first") else (time, batch, width)
        states = [(batch, hidden)] * len(cell.states)
        shapes = [x, (rows, width), (rows, hidden), (rows,), (rows,), *states, (batch,)]
        number = 5 + len(states)
        lengths = {number: np.arange(batch)[::-1] * 2} if operands > number else {}  # also 0 and more than `time`
        return Case(
            tuple(shapes[:operands]),
            attributes,
            arrays=lengths,
            domain=(-1.0, 1.0),
            tolerance=16.0,
            terms=max(1, hidden),
        )

    everything = 5 + len(cell.states)
    return (
        case(5, 2, 3, 4, everything),
        case(3, 1, 2, 1, 3, reverse=True),
        case(4, 3, 1, 3, 5, batch_first=True, reverse=True),
        case(0, 2, 3, 3, everything),
        case(3, 3, 2, 3, everything + 1),
        case(3, 3, 1, 2, everything + 1, batch_first=True, reverse=True),
        *(case(3, 2, 3, 3, 4, **attributes) for attributes in further),
    )


def _operator(name: str, summary: str, cell: _Cell, *attributes: AttributeSpec, cases: tuple[Case, ...]) -> Operator:
    optional = ("bias", "recurrent_bias", *cell.states)
    return Operator(
        name=name,
        summary=summary,
        operands=(
            *(Operand(each, _DTYPES) for each in ("x", "weight", "recurrence")),
            *(Operand(each, _DTYPES, optional=True) for each in optional),
            Operand("lengths", (I64,), group="lengths", optional=True),
        ),
        attributes=(AttributeSpec("batch_first", "bool", False), AttributeSpec("reverse", "bool", False), *attributes),
        infer=lambda types, given: _infer(name, cell, types, given),
        reference=lambda *arrays, **given: _reference(cell, *arrays, **given),
        gradient=lambda b, use: _differentiate(cell, b, use),
        decompose=lambda b, operands, given: _decompose(cell, b, operands, given),
        cases=cases,
        properties=frozenset({"composite", "sequential"}),
        results=("y", *(f"last_{state}" for state in cell.states)),
    )


_LSTM = _Cell(4, ("h", "c"), _lstm_step, _lstm_back, _lstm_reference)
_GRU = _Cell(3, ("h",), _gru_step, _gru_back, _gru_reference)
_RNN = _Cell(1, ("h",), _rnn_step, _rnn_back, _rnn_reference)

OPERATORS = (
    _operator(
        "lstm",
        "a long short-term memory (LSTM) layer over x [T, B, input]: the outputs of all steps [T, B, H], and the last "
        "states; weights [4 * H, input] and [4 * H, H] hold the gates i, f, g, o, as in PyTorch; `batch_first` takes "
        "[B, T, input]; with `lengths` [B], steps of a row after its length do not change its states, and give zeros",
        _LSTM,
        cases=_cases(_LSTM),
    ),
    _operator(
        "gru",
        "a gated recurrent unit (GRU) layer over x [T, B, input], as `lstm`; weights hold the gates r, z, n, and the "
        "reset gate multiplies the recurrent product with its bias, as in PyTorch",
        _GRU,
        cases=_cases(_GRU),
    ),
    _operator(
        "rnn",
        "a simple recurrent layer over x [T, B, input]: h = activation(x @ weight.T + h @ recurrence.T + biases)",
        _RNN,
        AttributeSpec("activation", "str", "tanh", choices=("tanh", "relu")),
        cases=_cases(_RNN, {"activation": "relu"}),
    ),
)
