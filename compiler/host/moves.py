"""The steps of a function in order, with loops and branches, and the moves that need no code.

The memory plan takes a list of steps that run in order. Loops and branches become such a list by two rules:

- A tensor that a loop reads, and that exists before it, is live until the end of the loop: the next iteration reads it
  again. An additional step at the end of the loop names all such tensors.
- Both parts of a branch follow one another. Only one of them runs, and neither reads a tensor of the other.

A move copies `source` to `target` as the last use of `source`. Both can be one memory, and the move is omitted, if no
step between the first write to `source` and the move needs the old value of `target`:

    %h is carried            matmul(%h) -> %a      last use of the old %h
                             gates(%a)  -> %n      %n is written: nothing reads %h any more
                             move(%n)   -> %h      omitted: `gates` writes to the memory of %h

The step that writes `source` may read `target` if the kernel permits the two to share memory. An omitted move stays a
step, as the last use of its source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from ...dialect.dims import Size
from ...dialect.lazy_dataclass import dataclass
from ...passes.analysis.liveness import Step
from ..lower.lowered import LoweredCall, LoweredFunction, Tensor
from ..lower.nodes import Computed
from ..lower.parts import KernelPart, Parts
from ..lower.schedule import Branch, Item, Loop, While
from ..lower.storage import Input, Sliced, Weight

Operand = str | Input | Weight | Sliced[Tensor]
"""A tensor of a kernel: by name, or by storage."""


@dataclass
class Timeline:
    """The steps of a function in order.

    old: by number, the names of the inputs that copies of states read or overwrite; loops keep them live to their end.
    last_check: the last step of a kernel that checks indices, or of the loop around it; -1 if there is none.
    operands: for each call, its tensors in the order of the kernel's arguments.
    scratch: the bytes of tensors that only one kernel uses, by name.
    omitted: the numbers of the calls that are moves without code.
    aliases: maps the source of an omitted move to the tensor whose memory it shares.
    slices: maps a tensor to the slice of a larger tensor that holds it.
    """

    function: LoweredFunction
    parts: Parts
    old: Mapping[int, str] = field(default_factory=dict)
    last_check: int = -1
    steps: list[Step] = field(default_factory=list)
    operands: list[list[Operand]] = field(default_factory=list)
    scratch: dict[str, Size] = field(default_factory=dict)
    omitted: set[int] = field(default_factory=set)
    aliases: dict[str, str] = field(default_factory=dict)
    slices: dict[str, Sliced[Computed]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.slices = dict(self.function.slices)
        self._moves: list[tuple[int, int, str, str]] = []
        self._add(self.function.items)
        if self._moves:
            self._omit_moves()

    # --- steps ---

    def _add(self, items: Sequence[Item[LoweredCall, Tensor]]) -> None:
        for item in items:
            if isinstance(item, Loop):
                # All slices of a collected result stay, so its memory is taken before the first iteration.
                collected = [slice.base for slice in self.slices.values() if slice.loop == item.name]
                self._loop([item.index, *collected], item.body)
            elif isinstance(item, While):
                self._loop([], (*item.condition, *item.body), item.test)
            elif isinstance(item, Branch):
                self._step([item.test])
                self._add((*item.then, *item.otherwise))
            else:
                self._call(item)

    def _step(self, tensors: Sequence[Tensor]) -> None:
        self.steps.append(Step(tuple(dict.fromkeys(filter(None, map(self.memory, tensors))))))

    def _loop(
        self, tensors: Sequence[Tensor], items: Sequence[Item[LoweredCall, Tensor]], test: Tensor | None = None
    ) -> None:
        self._step(tensors)
        first, last_check = len(self.steps), self.last_check
        self._add(items)
        if test is not None:
            self._step([test])
        before = {name for step in self.steps[:first] for name in step.tensors} | set(self.old.values())
        inside = dict.fromkeys(name for step in self.steps[first - 1 :] for name in step.tensors)
        self.steps.append(Step(tuple(name for name in inside if name in before)))
        if self.last_check > last_check:
            self.last_check = len(self.steps) - 1

    def _call(self, call: LoweredCall) -> None:
        number = len(self.operands)
        scratch = [f"scratch {number}.{k}" for k in range(len(call.kernel.scratch))]
        self.scratch |= {name: type.bytes for name, type in zip(scratch, call.kernel.scratch, strict=True)}
        inputs = [self.name(source) for source in call.inputs]
        tensors: list[Operand] = [*inputs, *call.outputs, *scratch]
        self.operands.append(tensors)
        parts = self.parts.get(call.symbol, (KernelPart((True,) * len(tensors)),))
        over = None if call.over is None else self.name(call.over)
        for part in parts:
            used = [self.memory(t) for t, uses in zip(tensors, part.uses, strict=True) if uses]
            # No part writes a result without elements, but the result exists.
            made = [self.memory(t) for t in call.outputs] if part is parts[-1] else []
            pairs = list(self._in_place(tensors, part))
            if isinstance(over, str) and part is parts[0]:
                made = [over, *map(self.memory, call.outputs)]
                pairs.append((call.outputs[0], over))
            names = tuple(name for name in dict.fromkeys([*used, *made]) if name is not None)
            self.steps.append(Step(names, tuple(pairs)))
        if call.check:
            self.last_check = len(self.steps) - 1
        source, target = tensors[0], call.outputs[0]
        if call.is_move and isinstance(source, str) and source not in self.old.values() and len(parts) == 1:
            self._moves.append((number, len(self.steps) - 1, source, target))

    def name(self, tensor: Tensor) -> Operand:
        """Returns a tensor by name, or by storage. The inputs that copies of states use have names."""
        if isinstance(tensor, Input):
            return self.old.get(tensor.number, tensor)
        return tensor.name if isinstance(tensor, Computed) else tensor

    def resolved_states(self) -> LoweredFunction:
        """Returns the function; values of states after the call have the names of the tensors whose memory they
        share."""
        states = [
            replace(state, source=Computed(self.resolve(state.source.name)))
            if isinstance(state.source, Computed)
            else state
            for state in self.function.states
        ]
        return replace(self.function, states=tuple(states))

    def memory(self, tensor: Tensor | Operand) -> str | None:
        """Returns the name of the tensor whose memory holds this one; None for memory of the caller and weights."""
        if isinstance(tensor, Computed | Input):
            tensor = self.name(tensor)
        if isinstance(tensor, str):
            return self.slices[tensor].base.name if tensor in self.slices else tensor
        return self.memory(tensor.base) if isinstance(tensor, Sliced) else None

    def _in_place(self, tensors: Sequence[Operand], part: KernelPart) -> Iterator[tuple[str, str]]:
        """Yields the tensors that may share memory; a tensor that is passed more than once counts as each of its
        arguments."""
        for written, read in part.in_place:
            new, old = tensors[written], tensors[read]
            same = [i for i, t in enumerate(tensors) if self.memory(t) == self.memory(old) and part.uses[i]]
            if not isinstance(new, str) or not isinstance(old, str) or self.slices.keys() & {new, old}:
                continue
            if all((written, i) in part.in_place for i in same):
                yield new, old

    # --- moves ---

    def _omit_moves(self) -> None:
        mentions: dict[str, list[int]] = {}
        for number, step in enumerate(self.steps):
            for name in step.tensors:
                mentions.setdefault(name, []).append(number)
        for call, move, source, target in self._moves:
            source, storage = self.resolve(source), self.resolve(target)
            memory = self.memory(storage)
            assert memory is not None, target
            if source in self.function.outputs or source in self.slices or source == memory:
                continue
            first, last = mentions[source][0], mentions[source][-1]
            between = [number for number in mentions.get(memory, ()) if first <= number < move]
            if last != move or not all(
                number == first and (source, memory) in self.steps[number].in_place for number in between
            ):
                continue
            self.omitted.add(call)
            self.aliases[source] = storage
            mentions[memory] = sorted({*mentions.get(memory, ()), *mentions.pop(source)})
        self.steps = [self._renamed(step) for step in self.steps]

    def resolve(self, name: str) -> str:
        """Returns the tensor whose memory a tensor shares."""
        while name in self.aliases:
            name = self.aliases[name]
        return name

    def _renamed(self, step: Step) -> Step:
        def memory(name: str) -> str:
            found = self.memory(self.resolve(name))
            assert found is not None, name
            return found

        pairs = ((memory(new), memory(old)) for new, old in step.in_place if not self.aliases.keys() & {new, old})
        return Step(tuple(dict.fromkeys(map(memory, step.tensors))), tuple(pairs))
