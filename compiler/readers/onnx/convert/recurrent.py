"""Recurrent layers: RNN, GRU and LSTM, each direction a separate operator, or a `scan` over time.

The operators `rnn`, `gru` and `lstm` have the default activations, and neither sequence lengths, nor clipping, nor
peepholes; a GRU must have `linear_before_reset`. `_Kind` maps their order of gates to that of ONNX. Every other layer
is a `scan`.

X is [time, batch, input], or [batch, time, input] with `layout` = 1. The product with the input weight is computed for
all steps before the loop. With sequence lengths, a step after the end of a sequence keeps the state and gives zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .....dialect.dims import Size
from .....dialect.types import F32, F64, I64, TensorType
from ...writing.tensors import Tensor
from ..writing.use import Converters, Use
from .control_flow import scan

Activation = Callable[[Tensor], Tensor]
Cell = Callable[[Tensor, Sequence[Tensor]], Sequence[Tensor]]
"""`cell(product of the input, state) -> next state`; the first tensor of the state is the output of the step."""


def _activation(use: Use, name: str, alpha: float | None, beta: float | None) -> Activation:
    g = use.g

    def scaled(x: Tensor, factor: float | None, default: float) -> Tensor:
        return g.multiply(x, g.like(default if factor is None else factor, x))

    table: dict[str, Activation] = {
        "relu": g.relu,
        "tanh": g.tanh,
        "sigmoid": g.sigmoid,
        "softsign": g.softsign,
        "softplus": g.softplus,
        "affine": lambda x: g.add(scaled(x, alpha, 1.0), g.like(beta or 0.0, x)),
        "leakyrelu": lambda x: g.leaky_relu(x, slope=0.01 if alpha is None else alpha),
        "thresholdedrelu": lambda x: g.where(g.greater(x, g.like(1.0 if alpha is None else alpha, x)), x, g.like(0, x)),
        "scaledtanh": lambda x: scaled(g.tanh(scaled(x, beta, 1.0)), alpha, 1.0),
        "hardsigmoid": lambda x: g.minimum(
            g.maximum(g.add(scaled(x, alpha, 0.2), g.like(0.5 if beta is None else beta, x)), g.like(0, x)),
            g.like(1, x),
        ),
        "elu": lambda x: g.elu(x, alpha=1.0 if alpha is None else alpha),
    }
    found = table.get(name.lower())
    if found is None:
        use.fail(f"has the activation {name!r}", code="bad-attribute")
    return found


@dataclass(frozen=True, slots=True)
class _Layer:
    """One direction: weights of the input [gates * hidden, input] and of the state [gates * hidden, hidden], the two
    biases, the initial state, peepholes, and activations."""

    weight: Tensor
    recurrence: Tensor
    biases: tuple[Tensor, Tensor] | None
    state: tuple[Tensor, ...]
    peepholes: tuple[Tensor, ...]
    activations: tuple[Activation, ...]
    names: tuple[str, ...]


MakeCell = Callable[[Use, _Layer, Callable[[Tensor], Tensor]], Cell]


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of layer: its operator, the index of each of the operator's gates among those of ONNX, the tensors of its
    state, and the usual activations."""

    operator: str
    order: tuple[int, ...]
    states: int
    defaults: tuple[str, ...]
    make_cell: MakeCell


def _layer(use: Use, kind: _Kind) -> Sequence[Tensor]:
    g = use.g
    x = use.input(0)
    batch_first = bool(use.integer("layout", 0))
    if batch_first:
        x = g.transpose(x, axes=(1, 0, 2))
    direction = use.string("direction", "forward")
    if direction not in ("forward", "reverse", "bidirectional"):
        use.fail(f"has the direction {direction!r}", code="bad-attribute")
    count = 2 if direction == "bidirectional" else 1
    ranks = [x.rank, use.input(1).rank, use.input(2).rank]
    if ranks != [3, 3, 3]:
        use.fail(f"takes three tensors of rank 3, not of ranks {ranks}", code="rank-mismatch")
    hidden = use.input(2).shape[2]
    lengths = use.optional(4)
    names = use.strings_of("activations", kind.defaults * count)
    alphas, betas = use.floats_of("activation_alpha", ()), use.floats_of("activation_beta", ())
    clip = use.number("clip")
    if clip is not None and not clip >= 0:
        use.fail(f"has `clip` = {clip}, expected a positive number", code="bad-attribute")

    def clipped(value: Tensor) -> Tensor:
        if clip is None:
            return value
        return g.minimum(g.maximum(value, g.like(-clip, value)), g.like(clip, value))

    outputs, finals = [], []
    for number in range(count):
        layer = _read_layer(use, number, kind, hidden, x, names, alphas, betas)
        backward = direction == "reverse" or number == 1
        if _is_operator(use, kind, layer):
            output, final = _apply_operator(use, x, kind, layer, backward)
        else:
            output, final = _run(use, x, layer, kind.make_cell(use, layer, clipped), backward, lengths)
        outputs.append(output)
        finals.append(final)
    # Y is [time, directions, batch, hidden]; the states are [directions, batch, hidden].
    whole = g.stack(*outputs, axis=1)
    last = [g.stack(*(final[i] for final in finals), axis=0) for i in range(kind.states)]
    if batch_first:
        whole = g.transpose(whole, axes=(2, 0, 1, 3))
        last = [g.transpose(each, axes=(1, 0, 2)) for each in last]
    return [whole, *last]


def _read_layer(
    use: Use,
    number: int,
    kind: _Kind,
    hidden: Size,
    x: Tensor,
    names: Sequence[str],
    alphas: Sequence[float],
    betas: Sequence[float],
) -> _Layer:
    g, states, functions = use.g, kind.states, len(kind.defaults)

    def part(index: int) -> Tensor | None:
        whole = use.optional(index)
        if whole is None:
            return None
        if index in (5, 6) and use.integer("layout", 0):
            whole = g.transpose(whole, axes=(1, 0, 2))
        return g.squeeze(g.slice(whole, starts=(number,), stops=(number + 1,)), axes=(0,))

    weight, recurrence, bias = part(1), part(2), part(3)
    assert weight is not None and recurrence is not None, use.node.inputs
    biases = None
    if bias is not None:
        biases = g.apply("split", [bias], {"parts": 2, "axis": 0})
    state = []
    for index in range(states):
        given = part(5 + index)
        state.append(g.broadcast_to(g.like(0, x), shape=(x.shape[1], hidden)) if given is None else given)
    peephole = part(7) if states == 2 else None
    peepholes = () if peephole is None else g.apply("split", [peephole], {"parts": 3, "axis": 0})
    chosen = []
    for position in range(number * functions, (number + 1) * functions):
        if position >= len(names):
            use.fail("has fewer activations than it needs", code="bad-attribute")
        alpha = alphas[position] if position < len(alphas) else None
        beta = betas[position] if position < len(betas) else None
        chosen.append(_activation(use, names[position], alpha, beta))
    two = None if biases is None else (biases[0], biases[1])
    used = tuple(name.lower() for name in names[number * functions : (number + 1) * functions])
    return _Layer(weight, recurrence, two, tuple(state), tuple(peepholes), tuple(chosen), used)


def _is_operator(use: Use, kind: _Kind, layer: _Layer) -> bool:
    """Returns whether the operator computes the layer."""
    usual = layer.names == tuple(name.lower() for name in kind.defaults) or layer.names == ("relu",)
    special = layer.peepholes or use.optional(4) is not None or use.has("clip") or use.integer("input_forget", 0)
    split = kind.operator == "gru" and not use.integer("linear_before_reset", 0)
    return usual and not special and not split and layer.weight.dtype in (F32, F64)


def _apply_operator(use: Use, x: Tensor, kind: _Kind, layer: _Layer, backward: bool) -> tuple[Tensor, Sequence[Tensor]]:
    """Returns the outputs of all steps [time, batch, hidden], and the last state."""
    g = use.g

    def ordered(tensor: Tensor) -> Tensor:
        if len(kind.order) == 1:
            return tensor
        gates = g.apply("split", [tensor], {"parts": len(kind.order), "axis": 0})
        return g.concat(*(gates[gate] for gate in kind.order), axis=0)

    operands = [x, ordered(layer.weight), ordered(layer.recurrence)]
    rows = g.broadcast_to(g.like(0, x), shape=layer.weight.shape[:1])
    operands += [ordered(bias) for bias in layer.biases] if layer.biases is not None else [rows, rows]
    attributes: dict[str, object] = {"reverse": backward}
    if kind.operator == "rnn":
        attributes["activation"] = layer.names[0]
    output, *final = g.apply(kind.operator, [*operands, *layer.state], attributes)
    return output, final


def _run(
    use: Use, x: Tensor, layer: _Layer, cell: Cell, backward: bool, lengths: Tensor | None
) -> tuple[Tensor, Sequence[Tensor]]:
    """Returns the outputs of all steps [time, batch, hidden], and the last state."""
    g, time = use.g, x.shape[0]
    products = g.matmul(x, g.transpose(layer.weight, axes=(1, 0)))
    if layer.biases is not None:
        products = g.add(products, layer.biases[0])

    def build(arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        step, *state = arguments
        at = g.subtract(g.size(time - 1), step) if backward else step
        new = cell(g.gather(products, at, axis=0), state)
        if lengths is None:
            return [*new, new[0]]
        inside = g.unsqueeze(g.less(at, g.cast(lengths, dtype=I64)), axes=(1,))
        kept = [g.where(inside, a, b) for a, b in zip(new, state, strict=True)]
        return [*kept, g.where(inside, new[0], g.like(0, new[0]))]

    region = g.region([TensorType(I64), *(s.type for s in layer.state)], build)
    *final, output = scan(use, layer.state, region, time)
    return (g.flip(output, axes=(0,)) if backward else output), final


def _recurrent_product(use: Use, layer: _Layer, h: Tensor) -> Tensor:
    g = use.g
    product = g.matmul(h, g.transpose(layer.recurrence, axes=(1, 0)))
    return product if layer.biases is None else g.add(product, layer.biases[1])


def _rnn_cell(use: Use, layer: _Layer, clipped: Callable[[Tensor], Tensor]) -> Cell:
    (f,) = layer.activations

    def cell(product: Tensor, state: Sequence[Tensor]) -> Sequence[Tensor]:
        return [f(clipped(use.g.add(product, _recurrent_product(use, layer, state[0]))))]

    return cell


def _gru_cell(use: Use, layer: _Layer, clipped: Callable[[Tensor], Tensor]) -> Cell:
    f, act = layer.activations
    g = use.g
    linear_before_reset = bool(use.integer("linear_before_reset", 0))
    r_z, r_r, r_h = g.apply("split", [layer.recurrence], {"parts": 3, "axis": 0})
    b_z, b_r, b_h = (
        (None, None, None) if layer.biases is None else g.apply("split", [layer.biases[1]], {"parts": 3, "axis": 0})
    )

    def product_of(h: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        product = g.matmul(h, g.transpose(weight, axes=(1, 0)))
        return product if bias is None else g.add(product, bias)

    def cell(product: Tensor, state: Sequence[Tensor]) -> Sequence[Tensor]:
        (h,) = state
        x_z, x_r, x_h = g.apply("split", [product], {"parts": 3, "axis": 1})
        z = f(clipped(g.add(x_z, product_of(h, r_z, b_z))))
        r = f(clipped(g.add(x_r, product_of(h, r_r, b_r))))
        if linear_before_reset:
            candidate = g.multiply(r, product_of(h, r_h, b_h))
        else:
            candidate = product_of(g.multiply(r, h), r_h, b_h)
        new = act(clipped(g.add(x_h, candidate)))
        return [g.add(g.multiply(g.subtract(g.like(1, z), z), new), g.multiply(z, h))]

    return cell


def _lstm_cell(use: Use, layer: _Layer, clipped: Callable[[Tensor], Tensor]) -> Cell:
    f, act, out = layer.activations
    g = use.g
    coupled = bool(use.integer("input_forget", 0))

    def peep(x: Tensor, c: Tensor, index: int) -> Tensor:
        return g.add(x, g.multiply(layer.peepholes[index], c)) if layer.peepholes else x

    def cell(product: Tensor, state: Sequence[Tensor]) -> Sequence[Tensor]:
        h, c = state
        gates = g.add(product, _recurrent_product(use, layer, h))
        i, o, forget, candidate = g.apply("split", [gates], {"parts": 4, "axis": 1})
        i = f(clipped(peep(i, c, 0)))
        forget = g.subtract(g.like(1, i), i) if coupled else f(clipped(peep(forget, c, 2)))
        new_c = g.add(g.multiply(forget, c), g.multiply(i, act(clipped(candidate))))
        o = f(clipped(peep(o, new_c, 1)))
        return [g.multiply(o, out(new_c)), new_c]

    return cell


_RNN = _Kind("rnn", (0,), 1, ("Tanh",), _rnn_cell)
_GRU = _Kind("gru", (1, 0, 2), 1, ("Sigmoid", "Tanh"), _gru_cell)
_LSTM = _Kind("lstm", (0, 2, 3, 1), 2, ("Sigmoid", "Tanh", "Tanh"), _lstm_cell)

CONVERTERS: Converters = {
    "RNN": lambda use: _layer(use, _RNN),
    "GRU": lambda use: _layer(use, _GRU),
    "LSTM": lambda use: _layer(use, _LSTM),
}
