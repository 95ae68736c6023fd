"""A random graph for a seed: a few ways of growing, one after another, most of which go on from what is there."""

from __future__ import annotations

from nacre.dialect.dims import DimError
from nacre.dialect.operator import InferenceError

from . import grow_contractions, grow_elements, grow_rows
from .maker import Graph, Maker, Refused

WAYS = (*grow_contractions.WAYS, *grow_rows.WAYS, *grow_elements.WAYS)


def _grow(m: Maker) -> bool:
    way = m.random.choices([way for way, _ in WAYS], [weight for _, weight in WAYS])[0]
    nodes, pool, arguments, parameters = len(m.builder.nodes), len(m.pool), len(m.arguments), len(m.parameters)
    try:
        value = way(m)
    except (Refused, InferenceError, DimError):
        # What it began is taken back.
        del m.builder.nodes[nodes:], m.pool[pool:], m.arguments[arguments:], m.parameters[parameters:]
        names = {v.name for v in m.arguments}
        m.limits = {name: limit for name, limit in m.limits.items() if name in names}
        return False
    m.keep(value)
    return True


def random_graph(seed: int) -> Graph:
    """One to four steps of growing, most of them a few nodes."""
    m = Maker(seed)
    wanted = m.random.choice((1, 1, 2, 2, 3, 3, 4))
    while wanted:
        wanted -= _grow(m)
    return m.finish()
