"""A session as a module of PyTorch, for training loops of other libraries.

    module = SessionModule(nacre.load("model.so").session())
    optimizer = SessionOptimizer(lr=1e-3)
    loss = optimizer.step(lambda: module.step(x, y, optimizer.lr))

The entry of the artifact computes the gradients and updates the states, so nothing is left for autograd: loops call it
where they would call an optimizer, as Lightning does with manual optimization. The tensors of `state_dict` share the
memory of the session. Requires PyTorch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from .arguments import as_torch
from .library import NacreError
from .loader import Session

torch: Any = importlib.import_module("torch")


class SessionModule(torch.nn.Module):  # type: ignore[misc]  # PyTorch has no types where it is not installed
    """A module whose calls are entries of a session, with tensors of PyTorch as arguments and results.

    `module(x)` calls the entry `forward`, or the one that the session calls if it is not given; `module.step(x, y)`
    calls the entry `step`. The states that `forward` reads are the parameters of the module, without gradients, and the
    others, such as those of an optimizer, are its buffers. Their tensors share the memory of the session. On a GPU, the
    module has neither. In both cases `state_dict` has every state, and `load_state_dict` copies into the session. The
    module cannot be moved to another device or dtype: `nacre.load` chooses the device.
    """

    def __init__(self, session: Session, forward: str | None = None) -> None:
        super().__init__()
        self.session = session.with_results("torch")
        self._forward = forward
        # Raises AttributeError for a name that is not an entry.
        entry = self.session.main if forward is None else getattr(self.session, forward)
        read = () if entry is None else entry.states
        # The names have dots, which the functions that register tensors refuse.
        for name in self.session.states if self.session.device == "cpu" else ():
            if name in read:
                self._parameters[name] = torch.nn.Parameter(self._tensor(name), requires_grad=False)
            else:
                self._buffers[name] = self._tensor(name)

    def forward(self, *inputs: object, **named: object) -> Any:
        """Calls the entry for inference."""
        entry = self.session if self._forward is None else self.session.entries[self._forward]
        return entry(*inputs, **named)

    def __getattr__(self, name: str) -> Any:
        """Returns the entry of this name, unless the module has an attribute of the name."""
        session: Session | None = self.__dict__.get("session")
        if session is not None and name in session.entries:
            return session.entries[name]
        return super().__getattr__(name)

    def __deepcopy__(self, memo: object) -> SessionModule:
        """Returns a module with a fork of the session."""
        made = SessionModule(self.session.fork(), self._forward)
        made.train(self.training)
        return made

    def extra_repr(self) -> str:
        return ", ".join(self.session.entries)

    def _apply(self, function: Callable[[Any], Any], recurse: bool = True) -> SessionModule:
        """Refuses functions that move tensors or change their dtypes, which `to` and similar methods apply."""
        for name, tensor in [*self._parameters.items(), *self._buffers.items()]:
            probe = torch.empty(0, dtype=tensor.dtype)
            changed = function(probe)
            if (changed.device, changed.dtype) != (probe.device, probe.dtype):
                raise RuntimeError(f"the state `{name}` stays on the {probe.device} in {probe.dtype}")
        return self

    # PyTorch calls these two functions for each module of a tree, with the prefix of its names.
    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        for name in self.session.states:
            destination[prefix + name] = self._tensor(name)

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        states = self.session.states
        given = {key.removeprefix(prefix): value for key, value in state_dict.items() if key.startswith(prefix)}
        missing_keys += [prefix + name for name in states if name not in given]
        if strict:
            unexpected_keys += [prefix + name for name in given if name not in states]
        for name in states:
            if name in given:
                try:
                    states[name] = given[name]
                except NacreError as error:
                    error_msgs.append(str(error))

    def _tensor(self, name: str) -> Any:
        """Returns a state as a tensor that shares its memory; as a copy, if a GPU computes."""
        states = self.session.states
        on_device = self.session.device != "cpu"
        return as_torch(states.argument(name), states[name] if on_device else states.view(name))


class SessionOptimizer(torch.optim.Optimizer):  # type: ignore[misc]  # as above
    """The step of a training loop: `step(closure)` runs the closure, which calls the entry that updates the states.
    Schedulers of PyTorch and fastai change the learning rate `lr` and `momentum`, which the closure passes to the entry
    if it takes them."""

    def __init__(self, lr: float = 1e-3, momentum: float = 0.9) -> None:
        super().__init__([{"params": []}], {"lr": lr, "momentum": momentum})

    @property
    def lr(self) -> float:
        """The learning rate, as schedulers last set it."""
        return float(self.param_groups[0]["lr"])

    @property
    def momentum(self) -> float:
        """The momentum, as schedulers last set it."""
        return float(self.param_groups[0]["momentum"])

    def step(self, closure: Callable[[], Any]) -> Any:
        """Returns the result of the closure."""
        return closure()
