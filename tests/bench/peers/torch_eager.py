"""PyTorch without its compiler."""

from __future__ import annotations

import torch
from measure import Contender
from prepare import Model
from twins.torch_twin import make_twin


def prepare(model: Model, threads: int) -> Contender:
    torch.set_num_threads(threads)
    inputs = [torch.from_numpy(array) for array in model.inputs.values()]
    twin = make_twin(model.program, model.dims)

    def call() -> tuple[torch.Tensor, ...]:
        with torch.inference_mode():
            return twin(*inputs)

    return Contender("torch", call, lambda results: [tensor.numpy() for tensor in results])
