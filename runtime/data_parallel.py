"""Training steps of several processes, whose gradients an engine of the caller averages.

    step = DataParallel(session, torch_average)   # in each process, with a session of the same artifact
    loss = step(x, y, lr)                         # each process passes its share of the batch

The text of the model has `exchange` in its `minimize`. Each process computes the gradients of its share, the engine
averages them, and each process applies the same average, so their parameters stay equal. If shares have the same number
of samples, the average of the gradients of a mean is the gradient of the mean over the whole batch. With `samples="B"`,
the shares are weighted by the sizes of the dim `B`, so that they may differ. Requires only numpy; PyTorch and Ray are
imported by the functions of their names.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .arguments import Array, order_named
from .library import ArgumentError, NacreError
from .loader import Session

Average = Callable[[Array], Array]
"""Returns the mean of the arrays that all processes pass, in the same call; it may reuse the memory of its argument."""
_STATES = "gradients."
_BITS = 32


class DataParallel:
    """A training step over several processes. `average` is called once in each step, with the gradients and the loss in
    one array. `samples` names the dim that counts the samples of a share; without it, all shares have the same sizes.

    The array also has the number of the step and the sizes of the dims, bit by bit: the mean of a bit is neither 0 nor
    1 if processes differ, which raises NacreError in all of them before the update. A process that was started again,
    for example, is at another step.
    """

    def __init__(self, session: Session, average: Average, step: str = "step", samples: str | None = None) -> None:
        names = f"{step}_gradients", f"{step}_update"
        missing = [name for name in names if name not in session.entries]
        if missing:
            raise ArgumentError(f"model `{session.name}` has no entry `{missing[0]}`: add `exchange` to its `minimize`")
        self.session, self.average, self.samples, self.number = session, average, samples, 0
        self._gradients, self._update = (session.entries[name] for name in names)
        self._states = [name for name in self._gradients.states if name.startswith(_STATES)]
        if samples is not None and samples not in self._gradients.dims:
            raise ArgumentError(f"entry `{step}` has no dim `{samples}`: its dims are {list(self._gradients.dims)}")

    def __call__(self, *inputs: object, **named: object) -> float:
        """Takes a step, with the arguments of the training step for this process's share. Returns the mean loss."""
        arguments = self._gradients.arguments
        given = order_named(self._gradients.name, arguments, inputs, named)
        dims = self._gradients.bind(*given)
        results = self._gradients(*given)
        loss = np.asarray(results if len(self._gradients.results) == 1 else results[0])
        states = self.session.states
        parts = [*(states[name] for name in self._states), loss]
        weight = np.float32(1 if self.samples is None else dims.pop(self.samples))
        compared = {"the number of the step": self.number, **{f"the dim `{name}`": n for name, n in dims.items()}}
        bits = np.array([n >> place & 1 for n in compared.values() for place in range(_BITS)], loss.dtype)
        flat = np.concatenate([part.reshape(-1) for part in parts])
        if self.samples is not None:  # of f16, a product may be too large
            flat = flat.astype(np.result_type(flat, np.float32)) * weight
        mean = self.average(np.concatenate([flat, bits, np.array([weight], flat.dtype)]))
        _check_equal(compared, mean[flat.size : -1])
        if self.samples is not None:
            mean = mean / mean[-1]
        start = 0
        for name, part in zip(self._states, parts, strict=False):
            states[name] = mean[start : start + part.size].astype(part.dtype, copy=False).reshape(part.shape)
            start += part.size
        by_name = dict(zip((argument.name for argument in arguments), given, strict=True))
        self._update(*(by_name[argument.name] for argument in self._update.arguments))
        self.number += 1
        return float(mean[start])


def _check_equal(compared: Mapping[str, int], means: Array) -> None:
    """Raises NacreError if the bits of a number are not the same in all processes."""
    for (name, number), bits in zip(compared.items(), means.astype(np.float64).reshape(-1, _BITS), strict=True):
        # A mean over up to a thousand processes.
        if not ((bits < 1e-3) | (bits > 1 - 1e-3)).all():
            hint = "; `samples` weights shares of different sizes" if "dim" in name else ""
            raise NacreError(f"{name} differs between the processes: it is {number} in this one{hint}")


def torch_average(array: Array, group: Any = None) -> Array:
    """The mean over the processes of `torch.distributed`, whose process group is initialised, with gloo for example.
    Raises NacreError if a process has ended."""
    torch: Any = importlib.import_module("torch")
    tensor = torch.from_numpy(array)
    try:
        torch.distributed.all_reduce(tensor, group=group)
    except RuntimeError as error:
        raise NacreError(f"the average over the processes failed, so one may have ended: {error}") from error
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
            arrays, self._arrays, self._mean = self._arrays, [], None
            if len({(each.shape, each.dtype) for each in arrays}) > 1:
                shown = ", ".join(f"{each.dtype}{list(each.shape)}" for each in arrays)
                result.set_exception(NacreError(f"the processes pass different arrays: {shown}"))
            else:
                mean: Array = np.stack(arrays).mean(axis=0, dtype=np.float64)
                result.set_result(mean.astype(array.dtype))
        return await result


def ray_meeting(count: int) -> Any:
    """Returns an actor of Ray where `count` processes meet, for `ray_average`."""
    ray: Any = importlib.import_module("ray")
    return ray.remote(num_cpus=0)(Meeting).remote(count)


def ray_average(meeting: Any, seconds: float = 600.0) -> Average:
    """The mean over the processes that meet in an actor of Ray. It raises NacreError if the actor has ended, or if some
    processes have not come to the step `seconds` after this one, as when one has ended. Later calls then raise it too,
    since the meeting still waits for these processes."""
    ray: Any = importlib.import_module("ray")
    failure = ""

    def average(array: Array) -> Array:
        nonlocal failure
        if failure:
            raise NacreError(f"{failure}; start all processes again, with a new meeting")
        try:
            return np.array(ray.get(meeting.mean.remote(array), timeout=seconds))
        except ray.exceptions.GetTimeoutError:
            failure = f"other processes have not come to this step in {seconds:g} s, so one may have ended"
        except ray.exceptions.RayActorError:
            failure = "the actor in which the processes meet has ended"
        raise NacreError(failure)

    return average
