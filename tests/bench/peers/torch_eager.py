"""PyTorch without its compiler."""

from __future__ import annotations

import torch
from measure import Contender
from prepare import Model
from twins.torch_twin import make_twin
from workloads.precision import BF16


def prepare(model: Model, threads: int) -> Contender:
    torch.set_num_threads(threads)
    narrow = model.workload.precision == BF16
    inputs = [torch.from_numpy(array) for array in model.inputs.values()]
    twin = make_twin(model.program, model.dims)

    def call() -> tuple[torch.Tensor, ...]:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            return twin(*inputs)

    return Contender("torch", call, lambda results: [tensor.float().numpy() for tensor in results])
