"""How a planted fault replaces what the compiler has: attributes of modules and classes, and items of tables."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Setter:
    """Replaces, and puts everything back on `undo`, the last first."""

    _before: list[Callable[[], None]] = field(default_factory=list)

    def attribute(self, where: Any, name: str, value: Any) -> None:
        before = getattr(where, name)
        self._before.append(lambda: setattr(where, name, before))
        setattr(where, name, value)

    def item(self, where: MutableMapping[str, Any], name: str, value: Any) -> None:
        before = where[name]
        self._before.append(lambda: where.__setitem__(name, before))
        where[name] = value

    def undo(self) -> None:
        while self._before:
            self._before.pop()()
