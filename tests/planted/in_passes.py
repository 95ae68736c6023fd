"""Faults of graph passes."""

from __future__ import annotations

from typing import Any

import numpy as np
from nacre.dialect.graph import Node, Region
from nacre.dialect.operator import Channels
from nacre.passes.fold import fold_batch_norm, fold_constants
from nacre.passes.fusion import fuse
from nacre.passes.layout import winograd
from nacre.passes.layout.channels_last_rules import Site
from nacre.passes.quantization import qdq_propagation
from nacre.passes.simplify import arithmetic_rules, canonicalize, cse, unroll_repeat
from nacre.passes.simplify.rules import Match, Values

from .planted import Planted
from .setting import Setter


def wrong_fold(setter: Setter) -> None:
    """A square root is folded with half the digits."""
    run_node = fold_constants.run_node

    def wrong(node: Node, operands: Any) -> Any:
        results = run_node(node, operands)
        if node.op != "sqrt":
            return results
        return tuple(r.astype(np.float16).astype(r.dtype) for r in results)

    setter.attribute(fold_constants, "run_node", wrong)


def dropped_shift(setter: Setter) -> None:
    """What is added to the bias of a contraction is forgotten."""

    def shift_bias(self: Any, op: str, x: Any, shift: Any, b: Any) -> Any:
        contraction = self.contraction(x)
        if contraction is None or len(contraction.inputs) < 3:
            return None
        return b.apply(contraction.op, contraction.inputs, dict(contraction.attributes))[0]

    setter.attribute(fold_batch_norm._Folder, "shift_bias", shift_bias)


def wrong_epsilon(setter: Setter) -> None:
    """A batch norm is opened with another epsilon."""
    open_norm = fold_batch_norm._Folder.open_norm

    def wrong(self: Any, node: Node, b: Any) -> Any:
        attributes = tuple((k, 0.01 if k == "eps" else v) for k, v in node.attributes)
        return open_norm(self, Node(node.op, node.inputs, node.outputs, attributes, span=node.span), b)

    setter.attribute(fold_batch_norm._Folder, "open_norm", wrong)


def transposed_index_map(setter: Setter) -> None:
    """Two transposes are composed the wrong way around."""

    def transpose_of_transpose(m: Match) -> Values:
        inner = m.definition(m.inputs[0], "transpose")
        if inner is None:
            return None
        first: Any = inner.attribute("axes")
        second: Any = m.node.attribute("axes")
        return m.b.transpose(inner.inputs[0], axes=tuple(second[a] for a in first))

    rules = canonicalize.BY_NAME["transpose"]
    wrong = tuple(transpose_of_transpose if r.__name__ == "transpose_of_transpose" else r for r in rules)
    setter.item(canonicalize.BY_NAME, "transpose", wrong)


def unsafe_zero(setter: Setter) -> None:
    """`x * 0` becomes 0, as if there were no NaN and no infinity."""

    def times_zero(m: Match) -> Values:
        return m.filled(0) if m.is_filled(m.inputs[1], 0.0) else None

    setter.item(canonicalize.BY_NAME, "multiply", (times_zero, *canonicalize.BY_NAME["multiply"]))


def lost_sign(setter: Setter) -> None:
    """`x + 0` becomes x, as if there were no -0."""
    floats, *others = arithmetic_rules.NEUTRAL["add"]
    table: Any = arithmetic_rules.NEUTRAL
    setter.item(table, "add", ((*floats, 0.0), *others))


def forgotten_attribute(setter: Setter) -> None:
    """Nodes are merged that differ in their attributes."""
    node_key = cse.node_key

    def key(node: Node, numbers: dict[str, int]) -> Any:
        op, inputs, attributes, types, regions = node_key(node, numbers)
        return op, inputs, () if node.op == "softmax" else attributes, types, regions

    setter.attribute(cse, "node_key", key)


def wrong_constant(setter: Setter) -> None:
    """One number of a transform is another one."""
    rows = [list(row) for row in winograd.OUTPUT]
    rows[2][3] = 3
    setter.attribute(winograd, "OUTPUT", rows)


def wrong_in_call(setter: Setter) -> None:
    """What is computed by a transform that is not stored is as large as it should be, and negative."""
    rewritten = winograd._Rewriter.rewritten

    def wrong(self: Any, b: Any, node: Node) -> Any:
        value = rewritten(self, b, node)
        return value if self.is_stored(node) else b.negate(value)

    setter.attribute(winograd._Rewriter, "rewritten", wrong)


def lost_frame(setter: Setter) -> None:
    """Padding in front of a convolution is widened with zeros, whatever it holds."""

    def filled(self: Any, b: Any, x: Any, below: Any, right: Any) -> Any:
        inner = self.definitions.get(x.name)
        widths: Any = ((0, 0),) * 4
        if inner is not None and inner.op == "pad":
            x, widths = inner.inputs[0], inner.attribute("widths")
        more = ((0, 0), (0, below), (0, right), (0, 0))
        return b.pad(x, widths=tuple((low + a, high + c) for (low, high), (a, c) in zip(widths, more, strict=True)))

    setter.attribute(winograd._Rewriter, "filled", filled)


def wrong_channels(setter: Setter) -> None:
    """A scale goes into the channels that a weight reads, of which it has as many as it gives."""

    find_channels = fold_batch_norm._find_channels

    def wrong(node: Node) -> Channels | None:
        return Channels(1, 1) if node.op == "conv2d" else find_channels(node)

    setter.attribute(fold_batch_norm, "_find_channels", wrong)


def other_codes(setter: Setter) -> None:
    """Codes are taken for those of another scale."""

    setter.attribute(qdq_propagation._Propagation, "has_reciprocal", lambda *given: True)


def wrong_layer(setter: Setter) -> None:
    """The last copy of a loop's body gets the number of the one before."""
    constant_node = unroll_repeat.constant_node

    def wrong(value: Any, array: Any, like: Node) -> Node:
        last = like.op == "repeat" and int(array) == int(str(like.attribute("count"))) - 1
        return constant_node(value, array - 1 if last else array, like)

    setter.attribute(unroll_repeat, "constant_node", wrong)


def lost_epilogue(setter: Setter) -> None:
    """A group that begins with a contraction gives what stands before its last node."""
    make = fuse._Fuser.make

    def wrong(self: Any, flow: Any, members: Any) -> Node:
        node = make(self, flow, members)
        (region,) = node.regions
        last = region.body[-1]
        if region.body[0].op != "matmul" or last.op != "relu":
            return node
        results = tuple(last.inputs[0] if v == last.output else v for v in region.results)
        shorter = Region(region.arguments, region.body[:-1], results)
        return Node(node.op, node.inputs, node.outputs, (), (shorter,), node.scope, node.span)

    setter.attribute(fuse._Fuser, "make", wrong)


def wrong_broadcast(setter: Setter) -> None:
    """What is broadcast along the last axis goes along the channels, once these are the last."""
    aligned = Site.aligned

    def wrong(self: Any, value: Any, rank: int) -> Any:
        return value if value.type.rank == 1 else aligned(self, value, rank)

    setter.attribute(Site, "aligned", wrong)


_HEAD = """language 1

dim B in 1..8
"""

FAULTS = (
    Planted(
        "wrong-fold",
        "fold-constants",
        wrong_fold,
        _HEAD
        + """
model f(x: f32[B, 6]) -> f32[B, 6] {
  y = tanh(x)
  scale = sqrt(full([6], 3.0))  # here
  return y * scale
}
""",
    ),
    Planted(
        "dropped-shift",
        "fold-batch-norm",
        dropped_shift,
        _HEAD
        + """
block Shifted(x: f32[B, 3, 6, 6]) -> f32[B, 5, 6, 6] {
  param kernel: f32[5, 3, 3, 3]
  param bias: f32[5]
  param shift: f32[5, 1, 1]
  y = conv2d(x, kernel, bias, padding=1)
  return y + shift  # here
}

model f(x: f32[B, 3, 6, 6]) -> f32[B, 5, 6, 6] {
  weights "weights.npz"
  use shifted = Shifted
  return x |> shifted |> relu
}
""",
    ),
    Planted(
        "wrong-epsilon",
        "fold-batch-norm",
        wrong_epsilon,
        _HEAD
        + """
block Norm(x: f32[B, 3, 6, 6]) -> f32[B, 4, 6, 6] {
  param kernel: f32[4, 3, 1, 1]
  param running_mean: f32[4]
  param running_var: f32[4]
  y = conv2d(x, kernel)
  return batch_norm(y, running_mean, running_var)  # here
}

model f(x: f32[B, 3, 6, 6]) -> f32[B, 4, 6, 6] {
  weights "weights.npz"
  use norm = Norm
  return norm(x)
}
""",
    ),
    Planted(
        "transposed-index-map",
        "canonicalize",
        transposed_index_map,
        _HEAD
        + """
model f(x: f32[4, 4, 4, B]) -> f32[4, 4, 4, B] {
  y = exp(x)
  z = transpose(y, (1, 2, 0, 3))
  z = transpose(z, (0, 2, 1, 3))  # here
  return z + x
}
""",
    ),
    Planted(
        "unsafe-zero",
        "canonicalize",
        unsafe_zero,
        _HEAD
        + """
model f(x: f32[B, 90]) -> f32[B, 90] {
  y = exp(x)
  z = y * 0  # here
  return z + 1
}
""",
    ),
    Planted(
        "lost-sign",
        "canonicalize",
        lost_sign,
        _HEAD
        + """
model f(x: f32[B, 6]) -> f32[B, 6] {
  y = x * 2
  return y + 0  # here
}
""",
    ),
    Planted(
        "forgotten-attribute",
        "cse",
        forgotten_attribute,
        _HEAD
        + """
model f(x: f32[B, 6, 6]) -> f32[B, 6, 6] {
  rows = softmax(x, axis=-1)
  columns = softmax(x, axis=-2)  # here
  return rows - columns
}
""",
    ),
    Planted(
        "wrong-channels",
        "fold-batch-norm",
        wrong_channels,
        _HEAD
        + """
block Scaled(x: f32[B, 4, 6, 6]) -> f32[B, 4, 6, 6] {
  param kernel: f32[4, 4, 3, 3]
  param scale: f32[4, 1, 1]
  y = conv2d(x, kernel, padding=1)
  return y * scale  # here
}

model f(x: f32[B, 4, 6, 6]) -> f32[B, 4, 6, 6] {
  weights "weights.npz"
  use scaled = Scaled
  return x |> scaled |> relu
}
""",
    ),
    Planted(
        "other-codes",
        "qdq-propagation",
        other_codes,
        _HEAD
        + """
model f(x: f32[B, 6]) -> f32[B, 6] {
  fine = cast(0.015625, f32)
  coarse = cast(1.0, f32)
  q = quantize(tanh(x), fine, dtype=i8)
  y = dequantize(q, fine)
  z = quantize(y, coarse, dtype=i8)  # here
  return dequantize(z, coarse) * 3
}
""",
    ),
    Planted(
        "wrong-winograd-constant",
        "winograd",
        wrong_constant,
        """language 1

block Convolution(x: f32[1, 32, 16, 16]) -> f32[1, 32, 16, 16] {
  param kernel: f32[32, 32, 3, 3]
  return conv2d(x, kernel, padding=1)  # here
}

model f(x: f32[1, 32, 16, 16]) -> f32[1, 32, 16, 16] {
  weights "weights.npz"
  use convolution = Convolution
  return x |> relu |> convolution
}
""",
    ),
    Planted(
        "lost-frame",
        "winograd",
        lost_frame,
        """language 1

block Convolution(x: f32[1, 13, 13, 32]) -> f32[1, 13, 13, 32] {
  param kernel: f32[3, 3, 32, 32]
  framed = pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), value=1.5)
  return conv2d(framed, kernel, layout="channels_last")  # here
}

model f(x: f32[1, 13, 13, 32]) -> f32[1, 13, 13, 32] {
  weights "weights.npz"
  use convolution = Convolution
  return x |> relu |> convolution
}
""",
    ),
    Planted(
        "wrong-in-call",
        "winograd",
        wrong_in_call,
        """language 1

block Convolution(x: f32[1, 32, 28, 28]) -> f32[1, 32, 28, 28] {
  param kernel: f32[32, 32, 3, 3]
  return conv2d(x, kernel, padding=1)  # here
}

model f(x: f32[1, 32, 28, 28]) -> f32[1, 32, 28, 28] {
  weights "weights.npz"
  use convolution = Convolution
  return x |> relu |> convolution
}
""",
        size="1.1x",
    ),
    Planted(
        "wrong-layer",
        "unroll-repeat",
        wrong_layer,
        _HEAD
        + """
block Layer(x: f32[B, 8]) -> f32[B, 8] {
  param weight: f32[8, 8]
  return tanh(x @ weight)
}

model f(x: f32[B, 8]) -> f32[B, 8] {
  weights "weights.npz"
  use layer[3] = Layer
  repeat i in 0..3 { x = layer[i](x) }  # here
  return x
}
""",
    ),
    Planted(
        "wrong-broadcast",
        "channels-last",
        wrong_broadcast,
        _HEAD
        + """
block Convolution(x: f32[B, 8, 8, 8]) -> f32[B, 8, 8, 8] {
  param kernel: f32[8, 8, 3, 3]
  param columns: f32[8]
  y = conv2d(x, kernel, padding=1)
  return y * columns  # here
}

model f(x: f32[B, 8, 8, 8]) -> f32[B, 8, 8, 8] {
  weights "weights.npz"
  use convolution = Convolution
  return x |> relu |> convolution
}
""",
    ),
    Planted(
        "lost-epilogue",
        "fuse",
        lost_epilogue,
        _HEAD
        + """
block Layer(x: f32[B, 8]) -> f32[B, 16] {
  param weight: f32[8, 16]
  param bias: f32[16]
  y = x @ weight  # here
  return relu(y + bias)
}

model f(x: f32[B, 8]) -> f32[B, 16] {
  weights "weights.npz"
  use layer = Layer
  return layer(tanh(x))
}
""",
    ),
)
