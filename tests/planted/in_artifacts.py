"""Faults of what puts kernels together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nacre.compiler import describe
from nacre.compiler.codegen.tiler import kernels, sharing
from nacre.compiler.host import entry
from nacre.compiler.lower import function
from nacre.compiler.lower.storage import Weight, Workspace
from nacre.dialect.dims import Size
from nacre.passes.analysis import compare_sizes, plan_memory
from nacre.passes.analysis.liveness import Life, Step

from .planted import Planted
from .setting import Setter


def stale_memory(setter: Setter) -> None:
    """A tensor's memory is taken for another one before its last reader has run."""
    find = plan_memory.find_lives

    def wrong(steps: Sequence[Step], sizes: Mapping[str, Size]) -> tuple[Life, ...]:
        return tuple(replace(life, last=max(life.first, life.last - 1)) for life in find(steps, sizes))

    setter.attribute(plan_memory, "find_lives", wrong)


def lost_write(setter: Setter) -> None:
    """A result takes the place of what its own kernel has not read yet."""
    setter.attribute(sharing, "_is_read_before", lambda *given: True)


def rows_twice(setter: Setter) -> None:
    """Blocks of rows that are moved back over others may be written over what they read."""
    choose = kernels._choose

    def wrong(evaluator: Any, machine: Any) -> Any:
        scheme = choose(evaluator, machine)
        return replace(scheme, sharing=sharing.share_rows(evaluator.stage, None)) if scheme.name == "rows" else scheme

    setter.attribute(kernels, "_choose", wrong)


def lost_power(setter: Setter) -> None:
    """An offset counts a dim once that it multiplies with itself."""
    term = entry.EntryText._term

    def wrong(self: Any, monomial: Any, coefficient: int) -> str:
        return term(self, tuple((atom, 1) for atom, _ in monomial), coefficient)

    setter.attribute(entry.EntryText, "_term", wrong)


def no_memory(setter: Setter) -> None:
    """Kernels are called with a null pointer for each tensor in the workspace."""
    address = entry.EntryText.address

    def wrong(self: Any, storage: Any) -> str:
        return "null" if isinstance(storage, Workspace) else address(self, storage)

    setter.attribute(entry.EntryText, "address", wrong)


def sampled_sizes(setter: Setter) -> None:
    """Of two sizes one is taken to be never less than the other if it is not for a few small dims."""
    setter.attribute(compare_sizes, "never_less", lambda left, right: True)


def wrong_weights(setter: Setter) -> None:
    """A weight's rows stand in the file in another order."""
    data = describe._data
    setter.attribute(describe, "_data", lambda weight, reader: data(weight, reader)[::-1].copy())


def shared_weight(setter: Setter) -> None:
    """A weight that is packed for a kernel is taken for the same weight seen under another shape."""
    weight = function.Shared.weight

    def wrong(self: Any, source: Any, packing: Any, seen: Any) -> Any:
        for known in self.weights.values():
            if packing is not None and known.source is source and known.packing == packing:
                return Weight(known.offset)
        return weight(self, source, packing, seen)

    setter.attribute(function.Shared, "weight", wrong)


FAULTS = (
    Planted(
        "stale-memory",
        "plan-memory",
        stale_memory,
        """language 1

dim B in 1..4

model f(x: f32[B, 120, 120]) -> f32[B, 120, 120] {
  kept = x @ x
  y = kept @ x  # here
  y = y @ x
  y = y @ kept
  return y @ x
}
""",
    ),
    Planted(
        "lost-write",
        "plan-memory",
        lost_write,
        """language 1

model f(x: f32[40, 40]) -> f32[40, 40] {
  y = cumsum(x, axis=1)  # here
  z = exp(y) + y.T
  return cumsum(z, axis=1)
}
""",
    ),
    Planted(
        "rows-twice",
        "plan-memory",
        rows_twice,
        """language 1

dim T in 8..64

model f(x: f32[T, 16]) -> f32[T, 16] {
  q = cumsum(x, axis=1)  # here
  y = attention(q, x, x)
  return cumsum(y, axis=1)
}
""",
    ),
    Planted(
        "lost-power",
        "plan-memory",
        lost_power,
        """language 1

dim T in 1..64

model f(x: f32[T, T]) -> f32[T, T] {
  y = cumsum(x, axis=1)  # here
  z = cumsum(x, axis=0)
  return cumsum(z, axis=1) + cumsum(y, axis=0)
}
""",
    ),
    Planted(
        "no-memory",
        "entry",
        no_memory,
        """language 1

model f(x: f32[5, 7]) -> f32[5, 7] {
  y = cumsum(x, axis=1)  # here
  return cumsum(y, axis=0)
}
""",
    ),
    Planted(
        "sampled-sizes",
        "plan-memory",
        sampled_sizes,
        """language 1

dim T in 1..1024

model f(x: f32[T, 8]) -> f32[T, 8] {
  k = cumsum(x, axis=1)  # here
  a = cumsum(reshape(k, (T, 8, 1)) + iota(50, dtype=f32), axis=0)
  s = cumsum(sum(cumsum(a, axis=2), axis=(1, 2)), axis=0)
  b = cumsum(reshape(s, (T, 1)) + reshape(s, (1, T)), axis=0)
  c = cumsum(b, axis=1)
  return k + reshape(sum(c, axis=1), (T, 1))
}
""",
    ),
    Planted(
        "wrong-weights",
        "entry",
        wrong_weights,
        """language 1

dim B in 1..64

block Layer(x: f32[B, 8]) -> f32[B, 8] {
  param scale: f32[8]
  return softmax(x) * scale  # here
}

model f(x: f32[B, 8]) -> f32[B, 8] {
  weights "weights.npz"
  use layer = Layer
  return layer(x)
}
""",
    ),
    Planted(
        "shared-weight",
        "entry",
        shared_weight,
        """language 1

dim B in 1..64

block Layer(x: f32[B, 9]) -> f32[B, 36] {
  param weight: f32[9, 40]
  y = tanh(x @ weight)
  return y[:, :10] @ reshape(weight, (10, 36))  # here
}

model f(x: f32[B, 9]) -> f32[B, 36] {
  weights "weights.npz"
  use layer = Layer
  return layer(x)
}
""",
    ),
)
