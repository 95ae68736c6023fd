"""XLA's CPU backend, through JAX. It takes as many threads as there are cores to run on when it is imported."""

from __future__ import annotations

import os
from typing import Any

import jax
from measure import Contender
from prepare import Model
from twins.jax_twin import make_twin

CORES = len(os.sched_getaffinity(0))


def prepare(model: Model, threads: int) -> Contender:
    assert threads == CORES, (threads, CORES)
    jax.clear_caches()
    twin, weights = make_twin(model.program, model.dims)
    inputs = [jax.device_put(array) for array in model.inputs.values()]
    compiled = jax.jit(twin).lower(weights, *inputs).compile()

    def call() -> Any:
        return jax.block_until_ready(compiled(weights, *inputs))

    return Contender("xla", call, list)
