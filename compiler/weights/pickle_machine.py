"""Reads pickles without running code of the file.

A pickle is a program for a stack machine. This machine has the opcodes that data of protocols 2 to 5 need: numbers,
strings, tuples, lists, dicts, and calls of globals. A global is a name, and a table gives the few names that have a
meaning; each other name is refused, and nothing is ever imported. `opcode -> stack` for `{"x": (1, 2)}`:

    EMPTY_DICT {}    BINUNICODE "x"    BININT1 1    BININT1 2    TUPLE2 (1, 2)    SETITEM    STOP
    [{}]             [{}, "x"]         [.., 1]      [.., 1, 2]   [{}, "x", (1, 2)]  [{"x": (1, 2)}]

The number of opcodes bounds the memory, since each makes one small object. Keys of dicts are strings and numbers, so
that hashing them takes a bounded time. Results can contain themselves; callers that walk through them must expect this.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Protocol, runtime_checkable

from ...dialect.lazy_dataclass import dataclass

MOST_OPCODES = 1 << 21
"""The limit of a pickle's length. A tensor takes about 25 opcodes."""
_HIGHEST_PROTOCOL = 5
_MARK = object()


class PickleError(ValueError):
    """The bytes are not a pickle that this machine reads; the text is the reason."""


class RefusedGlobalError(PickleError):
    """The pickle calls a global without a meaning here."""

    def __init__(self, name: str) -> None:
        super().__init__(f"it names the global `{name}`")
        self.name = name


class Buffer(Protocol):
    """Bytes in memory, or of a mapped file."""

    def __len__(self) -> int: ...

    def __getitem__(self, key: slice, /) -> bytes: ...


@runtime_checkable
class Stateful(Protocol):
    """An object of a global, to which the pickle gives a state after the call."""

    def restore(self, state: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class Global:
    """A name with a meaning: `build` makes a value of the arguments of a call; None if the name is only data."""

    name: str
    build: Callable[..., Any] | None = None


@dataclass(slots=True)
class Machine:
    """The state of one run. `globals` has the known names, as `module.name`; `persistent` gives the objects that the
    pickle names by an identifier."""

    data: Buffer
    position: int
    globals: Mapping[str, Global]
    persistent: Callable[[Any], Any]
    stack: list[Any] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def run(self) -> Any:
        """Returns the object. `position` is then after it."""
        for _ in range(MOST_OPCODES):
            code = self.take(1)[0]
            if code == _STOP:
                return self.pop()
            step = _STEPS.get(code)
            if step is None:
                raise PickleError(f"opcode {code:#04x} at byte {self.position - 1} is not one of a checkpoint")
            step(self)
        raise PickleError(f"it has more than {MOST_OPCODES} opcodes")

    def take(self, count: int) -> bytes:
        end = self.position + count
        if end > len(self.data):
            raise PickleError(f"it ends at byte {len(self.data)}, within an object")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def number(self, format: str) -> Any:
        return struct.unpack(format, self.take(struct.calcsize(format)))[0]

    def text(self, count: int) -> str:
        return str(self.take(count), "utf-8", "surrogatepass")

    def line(self) -> str:
        """Reads the text up to the end of its line; names are short."""
        start = self.position
        while self.take(1) != b"\n":
            if self.position - start > 256:
                raise PickleError(f"the name at byte {start} has no end")
        return str(self.data[start : self.position - 1], "utf-8")

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise PickleError(f"the stack is empty at byte {self.position - 1}")
        return self.stack.pop()

    def pop_to_mark(self) -> list[Any]:
        for index in range(len(self.stack) - 1, -1, -1):
            if self.stack[index] is _MARK:
                taken = self.stack[index + 1 :]
                del self.stack[index:]
                return taken
        raise PickleError(f"there is no mark at byte {self.position - 1}")

    def top(self, kind: type[Any]) -> Any:
        value = self.stack[-1] if self.stack else None
        if not isinstance(value, kind):
            raise PickleError(f"a {kind.__name__} is expected at byte {self.position - 1}, not a {_kind(value)}")
        return value

    def find(self, name: str) -> Global:
        found = self.globals.get(name)
        if found is None:
            raise RefusedGlobalError(name)
        return found

    def remember(self, index: int) -> None:
        value = self.pop()
        self.push(value)
        self.memo[index] = value

    def recall(self, index: int) -> None:
        if index not in self.memo:
            raise PickleError(f"object {index} is used before it is made, at byte {self.position - 1}")
        self.push(self.memo[index])


def _kind(value: Any) -> str:
    return "mark" if value is _MARK else type(value).__name__


def _protocol(machine: Machine) -> None:
    version = machine.take(1)[0]
    if not 2 <= version <= _HIGHEST_PROTOCOL:
        raise PickleError(f"protocol {version} is not one of 2 to {_HIGHEST_PROTOCOL}")


def _integer(machine: Machine) -> None:
    machine.push(int.from_bytes(machine.take(machine.take(1)[0]), "little", signed=True))


def _tuple(count: int) -> Callable[[Machine], None]:
    def step(machine: Machine) -> None:
        taken = [machine.pop() for _ in range(count)]
        machine.push(tuple(reversed(taken)))

    return step


def _set(machine: Machine, target: dict[Any, Any], key: Any, value: Any) -> None:
    if not isinstance(key, str | int | float | None) or (isinstance(key, int) and key.bit_length() > 64):
        raise PickleError(f"the key of an entry is a {_kind(key)}, at byte {machine.position - 1}")
    target[key] = value


def _set_item(machine: Machine) -> None:
    value, key = machine.pop(), machine.pop()
    _set(machine, machine.top(dict), key, value)


def _set_items(machine: Machine) -> None:
    taken = machine.pop_to_mark()
    if len(taken) % 2:
        raise PickleError(f"a key has no value at byte {machine.position - 1}")
    target = machine.top(dict)
    for index in range(0, len(taken), 2):
        _set(machine, target, taken[index], taken[index + 1])


def _append(machine: Machine) -> None:
    value = machine.pop()
    machine.top(list).append(value)


def _append_all(machine: Machine) -> None:
    taken = machine.pop_to_mark()
    machine.top(list).extend(taken)


def _stack_global(machine: Machine) -> None:
    name, module = machine.pop(), machine.pop()
    if not isinstance(name, str) or not isinstance(module, str):
        raise PickleError(f"the name of a global is not a string, at byte {machine.position - 1}")
    machine.push(machine.find(f"{module}.{name}"))


def _call(machine: Machine) -> None:
    arguments, called = machine.pop(), machine.pop()
    if not isinstance(called, Global) or called.build is None or not isinstance(arguments, tuple):
        shown = f"`{called.name}`" if isinstance(called, Global) else f"a {_kind(called)}"
        raise PickleError(f"{shown} is called at byte {machine.position - 1}")
    try:
        machine.push(called.build(*arguments))
    except TypeError:
        raise PickleError(f"`{called.name}` is called with {len(arguments)} wrong arguments") from None


def _build(machine: Machine) -> None:
    """Drops the attributes of a dict: the `_metadata` of a state dict has the versions of its modules."""
    state = machine.pop()
    if machine.stack and isinstance(machine.stack[-1], Stateful):
        machine.stack[-1].restore(state)
    else:
        machine.top(dict)


_STOP = ord(".")
_STEPS: Mapping[int, Callable[[Machine], None]] = {
    0x80: _protocol,
    0x95: lambda m: m.number("<Q") and None,  # FRAME: the length of what follows, which buffers may use
    ord("("): lambda m: m.push(_MARK),
    ord("N"): lambda m: m.push(None),
    0x88: lambda m: m.push(True),
    0x89: lambda m: m.push(False),
    ord("K"): lambda m: m.push(m.take(1)[0]),
    ord("M"): lambda m: m.push(m.number("<H")),
    ord("J"): lambda m: m.push(m.number("<i")),
    ord("G"): lambda m: m.push(m.number(">d")),
    0x8A: _integer,  # LONG1
    ord("X"): lambda m: m.push(m.text(m.number("<I"))),
    0x8C: lambda m: m.push(m.text(m.take(1)[0])),  # SHORT_BINUNICODE
    ord("C"): lambda m: m.push(m.take(m.take(1)[0])),
    ord("B"): lambda m: m.push(m.take(m.number("<I"))),
    ord("}"): lambda m: m.push({}),
    ord("]"): lambda m: m.push([]),
    ord(")"): lambda m: m.push(()),
    ord("t"): lambda m: m.push(tuple(m.pop_to_mark())),
    0x85: _tuple(1),
    0x86: _tuple(2),
    0x87: _tuple(3),
    ord("s"): _set_item,
    ord("u"): _set_items,
    ord("a"): _append,
    ord("e"): _append_all,
    ord("q"): lambda m: m.remember(m.take(1)[0]),
    ord("r"): lambda m: m.remember(m.number("<I")),
    0x94: lambda m: m.remember(len(m.memo)),  # MEMOIZE
    ord("h"): lambda m: m.recall(m.take(1)[0]),
    ord("j"): lambda m: m.recall(m.number("<I")),
    ord("c"): lambda m: m.push(m.find(f"{m.line()}.{m.line()}")),
    0x93: _stack_global,
    ord("R"): _call,
    0x81: _call,  # NEWOBJ: a class, and the arguments of its constructor
    ord("b"): _build,
    ord("Q"): lambda m: m.push(m.persistent(m.pop())),
}
"""The opcodes, by their bytes: https://github.com/python/cpython/blob/main/Lib/pickletools.py."""


def unpickle(
    data: Buffer, start: int, globals: Mapping[str, Global], persistent: Callable[[Any], Any]
) -> tuple[Any, int]:
    """Returns the object of the pickle at `start`, and the position after it. Raises PickleError."""
    machine = Machine(data, start, globals, persistent)
    try:
        return machine.run(), machine.position
    except UnicodeError:
        raise PickleError(f"the text before byte {machine.position} is not UTF-8") from None
