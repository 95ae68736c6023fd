"""Faults of lowering and of code generation: those of the tiler are planted in the children that generate code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from nacre.compiler.codegen.elementary.vector_math import circular, exponential
from nacre.compiler.codegen.llvm import literals, machine
from nacre.compiler.codegen.tiler import (
    dots,
    fixed_point,
    folds,
    kernels,
    maps,
    online_softmax,
    reciprocals,
    rows,
    text,
)
from nacre.compiler.lower import arithmetic, packing
from nacre.dialect.dims import add, ceil_divide, floor_divide, multiply
from nacre.dialect.ops import pooling
from nacre.dialect.ops.support import selecting
from nacre.dialect.types import Array

from .planted import Planted
from .setting import Setter


def missing_mask(setter: Setter) -> None:
    """Lanes that are left over are read and written without a mask."""
    setter.attribute(text.Writer, "first_lanes", lambda self, count: self._all_lanes())


def wrong_exponential(setter: Setter) -> None:
    """One coefficient of a polynomial is off in the third digit."""
    first, *rest = exponential.EXP_TAIL
    setter.attribute(exponential, "EXP_TAIL", (first * 1.001, *rest))


def coarse_factors(setter: Setter) -> None:
    """Factors are rounded to 10 bits in place of 13."""
    setter.attribute(fixed_point, "ROUNDED_LIMIT", 511)


def unsafe_maximum(setter: Setter) -> None:
    """The larger one of NaN and a number is the number."""
    key: Any = (arithmetic.FLOAT, "max")
    table: Any = arithmetic.BINARY
    setter.item(table, key, arithmetic._plain2("arith.maxnumf"))


def wrong_packing(setter: Setter) -> None:
    """The columns of a packed weight are off by one."""
    pack = packing.Packing.__call__

    def wrong(self: packing.Packing, data: Array) -> Array:
        return pack(self, np.roll(data, 1, axis=self.lane))

    setter.attribute(packing.Packing, "__call__", wrong)


def repeated_vector(setter: Setter) -> None:
    """A turn of a loop that takes four vectors takes the third twice, and never the fourth."""
    chunks = rows.RowWriter.chunks

    def wrong(self: rows.RowWriter, c: int, place: Any, write: Any) -> None:
        places: list[Any] = []

        def written(at: Any, number: int) -> None:
            places.append(at)
            write(places[-2] if number == 3 else at, number)

        chunks(self, c, place, written)

    setter.attribute(rows.RowWriter, "chunks", wrong)


def lost_factor(setter: Setter) -> None:
    """The sums over earlier keys are not scaled where a later score is greater."""
    setter.attribute(online_softmax.OnlineSoftmax, "_scale", lambda self, iteration, before: None)


def lost_vector(setter: Setter) -> None:
    """The last vector of a unit is left out, unless it is the last unit."""
    end = maps.MapStage._end

    def wrong(self: maps.MapStage, start: str, size: Any, step: int) -> str:
        return end(self, start, size, step - self.writer.lanes if step == maps.CHUNK * self.writer.lanes else step)

    setter.attribute(maps.MapStage, "_end", wrong)


def lost_rows(setter: Setter) -> None:
    """A kernel never computes its last work item."""
    choose = kernels._choose

    def wrong(*given: Any) -> Any:
        scheme = choose(*given)
        first, *others = scheme.counts
        return replace(scheme, counts=[add(first, -1), *others])

    setter.attribute(kernels, "_choose", wrong)


def lost_block(setter: Setter) -> None:
    """The last element of a row is not considered if the row ends with a whole block."""
    write = selecting.Selection.write

    def wrong(self: Any, s: Any, row: Any, work: Any) -> Any:
        size = self.order.size
        blocks, whole = ceil_divide(size, selecting.BLOCK), floor_divide(size, selecting.BLOCK)
        # One element less where `whole` is `blocks`.
        taken = add(add(size, -1), add(blocks, multiply(whole, -1)))
        return write(selecting.Selection(replace(self.order, size=taken), self.count), s, row, work)

    setter.attribute(selecting.Selection, "write", wrong)


def wrong_optimization(setter: Setter) -> None:
    """LLVM's optimiser makes sums of differences."""
    emit = machine.Machine.emit_object

    def wrong(self: machine.Machine, module: Any) -> bytes:
        optimized = str(module).replace(" fsub ", " fadd ") if self.options.level else str(module)
        return emit(self, self.parse(optimized))

    setter.attribute(machine.Machine, "emit_object", wrong)


def window_off_by_one(setter: Setter) -> None:
    """Windows begin one place too early where there is padding."""
    pad_tensor = pooling.pad_tensor

    def wrong(e: Any, x: Any, w: Any, *given: Any) -> Any:
        if all(low == 0 for low in w.low):
            return pad_tensor(e, x, w, *given)
        shifted = replace(w, low=tuple(n - 1 for n in w.low), high=tuple(n + 1 for n in w.high))
        return pad_tensor(e, x, shifted, *given)

    setter.attribute(pooling, "pad_tensor", wrong)


def least_maximum(setter: Setter) -> None:
    """A maximum of a row starts at the least finite number."""
    rule = folds.RULES["arith.maximumf"]
    rules: Any = folds.RULES
    setter.item(rules, "arith.maximumf", replace(rule, neutral={**rule.neutral, "f32": "0xFF7FFFFF"}))


def denormal_reciprocal(setter: Setter) -> None:
    """Divisions by what is the same all over a row become multiplications, though the reciprocal may be infinite."""
    setter.attribute(reciprocals, "LEAST_DIVISOR", "0.0")


def short_reduction(setter: Setter) -> None:
    """Multiples of pi are taken from large arguments part by part, as from small ones."""
    setter.attribute(circular, "_NEAR", 2.0**120)


def odd_nan(setter: Setter) -> None:
    """An even number of NaNs in a row is none."""
    finish = folds.Extreme.finish

    def wrong(self: Any, strands: Any, start: Any) -> Any:
        def differ(x: Any, y: Any) -> Any:
            return self.writer.apply("arith.xori", "", [x, y], self.record)

        odd = self.pairwise([seen for _, seen in strands], differ)
        return finish(self, [(total, odd) for total, _ in strands], start)

    setter.attribute(folds.Extreme, "finish", wrong)


def narrow_literals(setter: Setter) -> None:
    """Numbers of f64 in the code are rounded to f32."""
    literal_bits = literals.literal_bits

    def wrong(literal: str, type: str) -> int:
        bits = literal_bits(literal, type)
        if type != "double":
            return bits
        value = np.array(bits, np.uint64).view(np.float64)
        return int(value.astype(np.float32).astype(np.float64).view(np.uint64))

    setter.attribute(literals, "literal_bits", wrong)


def wrong_sign(setter: Setter) -> None:
    """Every second one of bytes without a sign is read with one, where bytes are multiplied as 16-bit integers."""
    half_bytes = dots._half_bytes

    def wrong(writer: Any, word: str, widening: str, half: str) -> str:
        return half_bytes(writer, word, "arith.extsi" if half == "odd" else widening, half)

    setter.attribute(dots, "_half_bytes", wrong)


_HEAD = """language 1

dim B in 0..64
"""

FAULTS = (
    Planted(
        "repeated-vector",
        "tiled",
        repeated_vector,
        """language 1

dim B in 1..8
dim T in 1..512

model f(x: f32[B, T]) -> f32[B, T] {
  y = relu(x)
  return y - sum(y, axis=1, keepdims=true)  # here
}
""",
    ),
    Planted(
        "least-maximum",
        "tiled",
        least_maximum,
        _HEAD
        + """
model f(x: f32[B, 40]) -> f32[B, 1] {
  y = x * 2
  return max(y + x, axis=1, keepdims=true)  # here
}
""",
    ),
    Planted(
        "denormal-reciprocal",
        "tiled",
        denormal_reciprocal,
        _HEAD
        + """
model f(x: f32[B, 40]) -> f32[B, 40] {
  y = -x
  return y / max(y, axis=1, keepdims=true)  # here
}
""",
    ),
    Planted(
        "short-reduction",
        "tiled",
        short_reduction,
        _HEAD
        + """
model f(x: f32[B, 21]) -> f32[B, 21] {
  y = -x
  return sin(y)  # here
}
""",
    ),
    Planted(
        "odd-nan",
        "tiled",
        odd_nan,
        _HEAD
        + """
model f(x: f32[B, 256]) -> f32[B, 1] {
  y = -x
  return max(y + x * 2, axis=1, keepdims=true)  # here
}
""",
    ),
    Planted(
        "lost-factor",
        "tiled",
        lost_factor,
        """language 1

dim T in 32..32768

model f(x: f32[T, 16]) -> f32[32, 16] {
  y = relu(x)
  return softmax(y[:32] @ x.T) @ y  # here
}
""",
        inputs=("y", "2"),
    ),
    Planted(
        "lost-vector",
        "tiled",
        lost_vector,
        """language 1

dim T in 1..4096

model f(x: f32[T]) -> f32[T] {
  y = relu(x)
  return exp(y) + x  # here
}
""",
    ),
    Planted(
        "lost-rows",
        "tiled",
        lost_rows,
        _HEAD
        + """
model f(x: f32[B, 21]) -> f32[B, 21] {
  y = relu(x)
  return exp(y) + x  # here
}
""",
    ),
    Planted(
        "lost-block",
        "linalg",
        lost_block,
        """language 1

dim T in 60..4000

model f(x: f32[3, T]) -> f32[3, 60] {
  values, indices = top_k(x, 60)  # here
  return values
}
""",
    ),
    Planted(
        "wrong-optimization",
        "optimized",
        wrong_optimization,
        _HEAD
        + """
model f(x: f32[B, 21]) -> f32[B, 21] {
  y = abs(x)
  return sqrt(y) - x  # here
}
""",
    ),
    Planted(
        "missing-mask",
        "tiled",
        missing_mask,
        _HEAD
        + """
model f(x: f32[B, 21]) -> f32[B, 21] {
  y = relu(x)
  return y * 2 + x  # here
}
""",
    ),
    Planted(
        "wrong-exponential",
        "tiled",
        wrong_exponential,
        _HEAD
        + """
model f(x: f32[B, 40]) -> f32[B, 40] {
  y = relu(x)
  return softmax(y)  # here
}
""",
    ),
    Planted(
        "unsafe-maximum",
        "linalg",
        unsafe_maximum,
        _HEAD
        + """
model f(x: f32[B, 40]) -> f32[B, 40] {
  y = max(x, axis=0, keepdims=true)  # here
  return y - x
}
""",
    ),
    Planted(
        "wrong-packing",
        "pack",
        wrong_packing,
        _HEAD
        + """
block Layer(x: f32[B, 8]) -> f32[B, 24] {
  param weight: f32[8, 24]
  return x @ weight  # here
}

model f(x: f32[B, 8]) -> f32[B, 24] {
  weights "weights.npz"
  use layer = Layer
  return layer(x)
}
""",
    ),
    Planted(
        "window-off-by-one",
        "linalg",
        window_off_by_one,
        _HEAD
        + """
model f(x: f32[B, 2, 9, 9]) -> f32[B, 2, 9, 9] {
  y = max_pool2d(x, 3, stride=1, padding=1)  # here
  return y
}
""",
    ),
    Planted(
        "narrow-literals",
        "linalg",
        narrow_literals,
        _HEAD
        + """
model f(x: f64[B, 9]) -> f64[B, 9] {
  y = abs(x)
  return y * 0.1  # here
}
""",
    ),
    Planted(
        "coarse-factors",
        "tiled",
        coarse_factors,
        _HEAD
        + """
block Layer(x: f32[B, 128]) -> f32[B, 24] {
  param weight: f32[128, 24]
  return matmul(x, weight, factors=i16)  # here
}

model f(x: f32[B, 128]) -> f32[B, 24] {
  weights "weights.npz"
  use layer = Layer
  return layer(x)
}
""",
        target="x86-64-v3",
    ),
    Planted(
        "wrong-sign",
        "tiled",
        wrong_sign,
        _HEAD
        + """
block Layer(x: u8[B, 24]) -> i32[B, 32] {
  param weight: i8[24, 32]
  return matmul(x, weight, into=i32)  # here
}

model f(x: u8[B, 24]) -> i32[B, 32] {
  weights "weights.npz"
  use layer = Layer
  return layer(x)
}
""",
        target="x86-64-v3",
    ),
)
