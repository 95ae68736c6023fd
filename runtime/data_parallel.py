"""Training steps of several processes, whose gradients an engine of the caller averages.

    step = DataParallel(session, torch_average)   # in each process, with a session of the same artifact
    loss = step(x, y, lr)                         # each process passes its share of the batch

The text of the model has `exchange` in its `minimize`. Each process computes the gradients of its share, the engine
averages them, and each process applies the same average, so their parameters stay equal. Shares have the same number of
samples; then the average of the gradients of a mean is the gradient of the mean over the whole batch. Requires only
numpy; PyTorch and Ray are imported by the functions of their names.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from .arguments import Array, order_named
from .library import ArgumentError
from .loader import Session

Average = Callable[[Array], Array]
"""Returns the mean of the arrays that all processes pass, in the same call; it may reuse the memory of its argument."""
_STATES = "gradients."


class DataParallel:
    """A training step over several processes. `average` is called once in each step, with the gradients and the loss in
    one array."""

    def __init__(self, session: Session, average: Average, step: str = "step") -> None:
        names = f"{step}_gradients", f"{step}_update"
        missing = [name for name in names if name not in session.entries]
        if missing:
            raise ArgumentError(f"model `{session.name}` has no entry `{missing[0]}`: add `exchange` to its `minimize`")
        self.session, self.average = session, average
        self._gradients, self._update = (session.entries[name] for name in names)
        self._states = [name for name in self._gradients.states if name.startswith(_STATES)]

    def __call__(self, *inputs: object, **named: object) -> float:
        """Takes a step, with the arguments of the training step for this process's share. Returns the mean loss."""
        arguments = self._gradients.arguments
        given = order_named(self._gradients.name, arguments, inputs, named)
        results = self._gradients(*given)
        loss = np.asarray(results if len(self._gradients.results) == 1 else results[0])
        states = self.session.states
        parts = [*(states[name] for name in self._states), loss]
        mean = self.average(np.concatenate([part.reshape(-1) for part in parts]))
        start = 0
        for name, part in zip(self._states, parts, strict=False):
            states[name] = mean[start : start + part.size].astype(part.dtype, copy=False).reshape(part.shape)
            start += part.size
        by_name = dict(zip((argument.name for argument in arguments), given, strict=True))
        self._update(*(by_name[argument.name] for argument in self._update.arguments))
        return float(mean[start])


def torch_average(array: Array, group: Any = None) -> Array:
    """The mean over the processes of `torch.distributed`, whose process group is initialised, with gloo for example."""
    torch: Any = importlib.import_module("torch")
    tensor = torch.from_numpy(array)
    torch.distributed.all_reduce(tensor, group=group)
    return np.asarray(tensor.div_(torch.distributed.get_world_size(group)).numpy())


class Meeting:
    """A process where `count` others meet: each receives the mean of the arrays that all pass. It is for engines whose
    processes call methods of each other at the same time, such as the asynchronous actors of Ray."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._arrays: list[Array] = []
        self._mean: asyncio.Future[Array] | None = None

    async def mean(self, array: Array) -> Array:
        if self._mean is None:
            self._mean = asyncio.get_running_loop().create_future()
        result = self._mean
        self._arrays.append(array)
        if len(self._arrays) == self.count:
            mean: Array = np.stack(self._arrays).mean(axis=0, dtype=np.float64)
            result.set_result(mean.astype(array.dtype))
            self._arrays, self._mean = [], None
        return await result


def ray_meeting(count: int) -> Any:
    """Returns an actor of Ray where `count` processes meet, for `ray_average`."""
    ray: Any = importlib.import_module("ray")
    return ray.remote(num_cpus=0)(Meeting).remote(count)


def ray_average(meeting: Any) -> Average:
    """The mean over the processes that meet in an actor of Ray."""
    ray: Any = importlib.import_module("ray")
    return lambda array: np.array(ray.get(meeting.mean.remote(array)))
