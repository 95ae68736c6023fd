"""PyTorch's compiler with its weights frozen, which lets it pack them. It needs a C++ compiler."""

from __future__ import annotations

import torch
import torch._inductor.config
from measure import Contender
from prepare import Model
from twins.torch_twin import make_twin
from workloads.precision import BF16

torch._inductor.config.freezing = True


def prepare(model: Model, threads: int) -> Contender:
    torch.set_num_threads(threads)
    torch._dynamo.reset()
    narrow = model.workload.precision == BF16
    inputs = [torch.from_numpy(array) for array in model.inputs.values()]
    compiled = torch.compile(make_twin(model.program, model.dims), dynamic=False, fullgraph=True)

    def call() -> tuple[torch.Tensor, ...]:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            return compiled(*inputs)

    return Contender("torch.compile", call, lambda results: [tensor.float().numpy() for tensor in results])
