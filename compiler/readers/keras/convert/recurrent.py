"""Recurrent layers over [batch, time, input], in one or both directions.

A layer that goes backwards returns its steps in the order in which it computes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...writing.tensors import Elements, Tensor
from ..writing.use import Converters, Use
from .activations import activation_name
from .cells import CELLS, check_steps, mask_of, results_of, run_cell


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of layer: its class, its operator, and the index of each of the operator's gates among those of Keras."""

    layer: str
    operator: str
    order: tuple[int, ...]


KINDS: Mapping[str, _Kind] = {
    "LSTM": _Kind("LSTM", "lstm", (0, 1, 2, 3)),
    "GRU": _Kind("GRU", "gru", (1, 0, 2)),
    "SimpleRNN": _Kind("SimpleRNN", "rnn", (0,)),
}


def _gates(array: Elements, order: tuple[int, ...]) -> Elements:
    """Returns a weight [input, gates * units] as [gates * units, input], or a bias, with its gates in another order."""
    parts = np.split(array, len(order), axis=-1)
    return np.concatenate([parts[position] for position in order], axis=-1).T


def _layer(
    use: Use, kind: _Kind, x: Tensor, backwards: bool, given_states: Sequence[Tensor] = ()
) -> tuple[Tensor, ...]:
    """Returns the results of all steps, and the last states."""
    check_steps(use, x, 3)
    if len(given_states) not in (0, CELLS[kind.layer].states):
        use.fail(f"gets {len(given_states)} states, expected {CELLS[kind.layer].states}", code="wrong-operands")
    attributes: dict[str, Any] = {"batch_first": True}
    function = activation_name(use, default="tanh")
    if kind.operator == "rnn":
        is_common = function in ("tanh", "relu")
        attributes["activation"] = function
    else:
        is_common = function == "tanh" and activation_name(use, "recurrent_activation", "sigmoid") == "sigmoid"
    mask = mask_of(use, x)
    if mask is not None or not is_common or (kind.operator == "gru" and not use.flag("reset_after", True)):
        steps, states = run_cell(use, kind.layer, x, given_states, backwards, mask)
        return steps, *states
    units = use.integer("units")
    arrays = [use.array(0, 2), use.array(1, 2)]
    if any(array.shape[1] != len(kind.order) * units for array in arrays):
        use.fail(f"has weights that do not fit {units} units", code="shape-mismatch")
    given = [x, *(use.tensor(_gates(array, kind.order), word) for array, word in zip(arrays, _WORDS, strict=True))]
    if use.flag("use_bias", True) or given_states:
        both = np.zeros((2, len(kind.order) * units), np.float32)
        if use.flag("use_bias", True):
            bias = use.array(2, 2 if kind.operator == "gru" else 1)
            both = bias if bias.ndim == 2 else np.stack([bias, np.zeros_like(bias)])
        if both.shape != (2, len(kind.order) * units):
            use.fail(f"has a bias that does not fit {units} units", code="shape-mismatch")
        given += [use.tensor(_gates(both[i], kind.order), word) for i, word in enumerate(("bias", "recurrent_bias"))]
    if backwards:
        given[0] = use.g.flip(x, axes=1)
    return use.g.apply(kind.operator, [*given, *given_states], attributes)


_WORDS = ("kernel", "recurrent_kernel")


def _recurrent(use: Use) -> Sequence[Tensor]:
    x, begin = use.first, use.inputs[1:]
    steps, *states = _layer(use, KINDS[use.kind], x, use.flag("go_backwards"), begin)
    return results_of(use, steps, states)


def _bidirectional(use: Use) -> Sequence[Tensor]:
    inner = use.value("layer")
    kind = KINDS.get(str(inner.get("class_name"))) if isinstance(inner, Mapping) else None
    if kind is None or not isinstance(inner.get("config"), Mapping):
        use.fail("wraps a layer other than LSTM, GRU and SimpleRNN")
    if use.value("backward_layer", None) not in (None, {}) and _other(inner, use.value("backward_layer")):
        use.fail("has directions of different kinds")
    g, x = use.g, use.x
    count = len(use.weights) // 2
    sides = []
    for position, word in enumerate(("forward", "backward")):
        part = replace(
            use,
            name=f"{use.name}.{word}",
            # Masked steps are 0 in both directions.
            config={**inner["config"], "zero_output_for_mask": bool(inner["config"].get("return_sequences"))},
            weights=use.weights[position * count : (position + 1) * count],
        )
        if part.flag("return_state"):
            use.fail("has `return_state`")
        steps, *states = _layer(part, kind, x, bool(position))
        if part.flag("return_sequences"):
            sides.append(g.flip(steps, axes=1) if position else steps)
        else:
            sides.append(states[0])
    mode = use.value("merge_mode", "concat")
    if mode == "concat":
        return [g.concat(*sides, axis=-1)]
    if mode is None:
        return sides
    operators = {"sum": "add", "mul": "multiply", "ave": "add"}
    if not isinstance(mode, str) or mode not in operators:
        use.fail(f"has `merge_mode` = {mode!r}", code="bad-keras")
    made = g.apply(operators[mode], sides, {})[0]
    return [g.multiply(made, g.like(0.5, made)) if mode == "ave" else made]


def _other(forward: Mapping[str, Any], backward: Any) -> bool:
    """Returns whether two layers differ in more than their names and directions."""
    if not isinstance(backward, Mapping) or backward.get("class_name") != forward.get("class_name"):
        return True
    names = ("units", "activation", "recurrent_activation", "use_bias", "return_sequences", "reset_after")
    one, other = forward.get("config"), backward.get("config")
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return True
    return any(one.get(name) != other.get(name) for name in names)


CONVERTERS: Converters = {**dict.fromkeys(KINDS, _recurrent), "Bidirectional": _bidirectional}
