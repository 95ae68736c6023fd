"""Device functions in LLVM IR to PTX, the assembly that the driver of a GPU compiles for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...targets.target import Target
from ..llvm.machine import Machine, Options

_DEFINITION = re.compile(r"^define (?:[a-z_]+ )*?void @([\w.]+)\((.*)\)(.*)\{$", re.MULTILINE)
_FOREIGN = re.compile(r"\.extern \.func .*?(\w+)\s*\(", re.DOTALL)


class PtxError(Exception):
    """Device code that calls a library function that does not exist on GPUs."""


def mark_kernels(text: str, threads: Mapping[str, int], blocks: Mapping[str, int]) -> str:
    """Returns LLVM IR in which the named functions can be launched, with that many threads in a block at most, and that
    many blocks of a processor at least, where the number is not 0."""

    def mark(found: re.Match[str]) -> str:
        name, arguments, attributes = found.groups()
        if name not in threads:
            return found[0]
        least = f' "nvvm.minctasm"="{blocks[name]}"' if blocks[name] else ""
        return f'define ptx_kernel void @{name}({arguments}){attributes}"nvvm.maxntid"="{threads[name]}"{least} {{'

    return _DEFINITION.sub(mark, text)


class DeviceMachine:
    """LLVM for a GPU."""

    def __init__(self, target: Target) -> None:
        self._machine = Machine(target, Options(3))

    def optimize(self, text: str, kernels: frozenset[str]) -> str:
        """Returns the optimised module with the kernels and what they call."""
        module: Any = self._machine.parse(text)
        self._machine.hide_others(module, kernels, visible=True)
        self._machine.optimize(module, vectorize=False)
        return str(module)

    def emit(self, text: str) -> str:
        """Returns PTX. Raises PtxError."""
        made = self._machine.emit_assembly(self._machine.parse(text))
        foreign = _FOREIGN.search(made)
        if foreign is not None:
            raise PtxError(f"there is no device function `{foreign[1]}`")
        return made
