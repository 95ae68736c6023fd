"""What a graph is run on: arrays for its arguments, as the graph wants them or as any function gets them."""

from __future__ import annotations

import numpy as np
from nacre.compiler.validate.inputs import Trial, made_up, random_argument
from nacre.compiler.validate.judge import Judge
from nacre.dialect.graph import Value
from nacre.dialect.types import Array

from .maker import Binding, Graph


def make_trial(graph: Graph, binding: Binding, kind: str) -> Trial:
    arguments = graph.function.arguments
    arrays = tuple(_argument(graph, value, binding, kind) for value in arguments)
    return Trial(graph.name, binding, kind, tuple(v.name for v in arguments), arrays)


def make_judge(graph: Graph, binding: Binding, kind: str, *, in_blocks: bool = False) -> Judge:
    trial = make_trial(graph, binding, kind)
    return Judge(graph.module, trial, made_up, in_blocks=in_blocks, seed=graph.seed)


def _argument(graph: Graph, value: Value, binding: Binding, kind: str) -> Array:
    if value.name in graph.given:
        made = graph.given[value.name](value.type.concrete(binding))
        return np.asarray(made).astype(value.type.dtype.numpy)
    return random_argument(value, binding, kind, graph.seed, graph.limits.get(value.name))
