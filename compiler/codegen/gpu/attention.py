"""The parts of an attention that its schedule uses: two products, and the roles of the axes of the scores.

The axes are the keys, which are the last one; rows, on which neither the keys nor the values depend, such as queries
and the heads of a group; and others, the batch.
"""

from __future__ import annotations

from ....dialect.emitter import ZERO
from ....dialect.lazy_dataclass import dataclass
from ..structured.positions import plain
from .causal import Causal
from .lengths import Length
from .nest import Beside, Nest


@dataclass(frozen=True, slots=True)
class Attention:
    """The products of an attention. `rows` and `batch` are axes of the scores. Scores of keys from `length` on, and
    before `start`, are -inf. Values from `kept` on, and before `since`, are 0."""

    scores: Nest
    values: Nest
    rows: tuple[int, ...]
    batch: tuple[int, ...]
    causal: Causal | None
    length: Length | None = None
    start: Length | None = None
    kept: Length | None = None
    since: Length | None = None
    ends: tuple[Length, ...] = ()
    """The lengths of single rows: scores of a row from one of them on are -inf."""
    begins: tuple[Length, ...] = ()
    """The starts of single rows: scores of a row before one of them are -inf."""
    shares: Beside | None = None
    """The operation that makes shares of weights, before these are multiplied by values."""
    hides: bool = False
    """Whether shares of keys from `length` on are 0, also where the length is 0 and weights have no total."""
    hides_start: bool = False
    """Whether shares of keys before `start` are 0 too."""

    @property
    def lengths(self) -> tuple[Length, ...]:
        single = (self.length, self.start, self.kept, self.since)
        return (*(length for length in single if length is not None), *self.ends, *self.begins)

    @property
    def depth(self) -> int | None:
        return self.scores.static_extent(self.scores.reductions[0])

    @property
    def column(self) -> int:
        """The loop along the values' own axis."""
        axes = self.values.inputs[0].plain_axes()
        return next(loop for loop in self.values.outer if loop not in axes)

    @property
    def columns(self) -> int | None:
        return self.values.static_extent(self.column)

    @property
    def key(self) -> int:
        """The keys, as an axis of the scores."""
        return len(self.scores.outer) - 1

    def of_scores(self) -> tuple[int, ...]:
        """The loops of the first product by the axes of the scores."""
        return tuple(loop for loop in self.scores.results[0].plain_axes() if loop is not None)

    def of_values(self) -> tuple[int, ...]:
        """The loops of the second product by the axes of the scores."""
        return tuple(loop for loop in self.values.inputs[0].plain_axes() if loop is not None)


def describe_attention(scores: Nest, values: Nest, causal: Causal | None) -> Attention | None:
    """Returns the roles of the axes; None where the products are no attention after all."""
    if not all(nest.is_product or nest.converts for nest in (scores, values)) or scores.captures or values.captures:
        return None
    if len(scores.reductions) != 1 or len(values.reductions) != 1:
        return None
    found = Attention(scores, values, (), (), causal)
    axes, later = found.of_scores(), found.of_values()
    if len(axes) != len(scores.outer) or len(later) != len(axes) or len(values.outer) != len(axes):
        return None
    (q, k), (_, v) = scores.inputs, values.inputs
    if any(plain(position) is None and position != ZERO for o in (q, k, v) for position in o.index):
        return None
    key, depth = found.key, scores.reductions[0]
    if axes[key] in q.loops() or axes[key] not in k.loops() or depth not in q.loops() & k.loops():
        return None
    if later[key] != values.reductions[0] or later[key] not in v.loops() or found.column not in v.loops():
        return None
    rows = tuple(
        a for a in range(key) if axes[a] in q.loops() and axes[a] not in k.loops() and later[a] not in v.loops()
    )
    batch = tuple(a for a in range(key) if a not in rows)
    if not rows or found.depth is None or found.columns is None or not values.is_independent():
        return None
    if causal is not None and causal.axis not in rows:
        causal = None
    return Attention(scores, values, rows, batch, causal)
