"""Device functions in LLVM IR to PTX, the assembly that the driver of a GPU compiles for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ...targets.target import Target
from ..llvm.machine import Machine, Options, Pipeline

_DEFINITION = re.compile(r"^define (?:[a-z_]+ )*?void @([\w.]+)\((.*)\)(.*)\{$", re.MULTILINE)
_SHARED = re.compile(
    r"^@([\w.]+) = (?:private |internal )?addrspace\(3\) global \[(\d+) x i8\] undef, align \d+$", re.MULTILINE
)
_DYNAMIC = re.compile(r"^@([\w.]+)_has(\d+)bytes = ", re.MULTILINE)
_ENTRY = re.compile(r"\.entry ([\w.$]+)")
_MOST_STATIC = 48 << 10
"""A block has more shared memory only where the launch asks for it."""
_FOREIGN = re.compile(r"\.extern \.func .*?(\w+)\s*\(", re.DOTALL)


_KERNEL = re.compile(r"^(define ptx_kernel void @[\w.]+\()(.*?)(\)[^\n]*\{\n)(.*?)^\}", re.MULTILINE | re.DOTALL)
_MAP = re.compile(r"= (?:tail )?call i64 asm \"map (\d)\", \"=l\"\(\)")
_ASSEMBLY = re.compile(r"^(.*\bcall .*\basm sideeffect .*\))$", re.MULTILINE)


class PtxError(Exception):
    """Device code that lacks a function: a launch, or a library function that does not exist on GPUs."""


def check_launches(text: str, names: Iterable[str]) -> None:
    """Raises PtxError where PTX lacks a launch of a kernel: the text may be a person's."""
    entries = set(_ENTRY.findall(text))
    if missing := [name for name in names if name not in entries]:
        raise PtxError(f"there is no `.entry {missing[0]}`")


def mark_kernels(text: str, threads: Mapping[str, int], blocks: Mapping[str, int]) -> str:
    """Returns LLVM IR in which the named functions can be launched, with that many threads in a block at most, and that
    many blocks of a processor at least, where the number is not 0. Tensor maps are further arguments."""

    def mark(found: re.Match[str]) -> str:
        name, arguments, attributes = found.groups()
        if name not in threads:
            return found[0]
        least = f' "nvvm.minctasm"="{blocks[name]}"' if blocks[name] else ""
        return f'define ptx_kernel void @{name}({arguments}){attributes}"nvvm.maxntid"="{threads[name]}"{least} {{'

    # The threads of a warp execute an instruction of assembly together.
    text = _ASSEMBLY.sub(r"\1 convergent", _DEFINITION.sub(mark, text))
    return _KERNEL.sub(_pass_maps, text)


def _pass_maps(found: re.Match[str]) -> str:
    """Returns a kernel with an argument for each tensor map that it asks for."""
    head, arguments, rest, body = found.groups()
    count = 1 + max((int(each[1]) for each in _MAP.finditer(body)), default=-1)
    maps = [f'ptr byval([128 x i8]) align 64 "nvvm.grid_constant" %map{number}' for number in range(count)]
    body = _MAP.sub(r"= ptrtoint ptr %map\1 to i64", body)
    return f"{head}{', '.join([arguments, *maps])}{rest}{body}}}"


def name_dynamic_memory(text: str) -> str:
    """Returns LLVM IR in which shared memory beyond the size of static memory is that of the launch, at a multiple of
    1024 bytes. A launch has one such piece of memory."""

    def declare(name: str, bytes: int) -> str:
        return f"@{name}_has{bytes}bytes = external addrspace(3) global [0 x i8], align 1024"

    large = {found[1]: int(found[2]) for found in _SHARED.finditer(text) if int(found[2]) > _MOST_STATIC}
    text = _SHARED.sub(lambda found: declare(found[1], large[found[1]]) if found[1] in large else found[0], text)
    for name, bytes in large.items():
        text = re.sub(rf"@{re.escape(name)}\b(?!_has)", f"@{name}_has{bytes}bytes", text)
    return text


def dynamic_bytes(text: str, launch: str) -> int:
    """Returns the bytes of the shared memory that a launch asks for."""
    return next((int(found[2]) for found in _DYNAMIC.finditer(text) if found[1].startswith(f"{launch}_nest")), 0)


class DeviceMachine:
    """LLVM for a GPU."""

    def __init__(self, target: Target) -> None:
        self._machine = Machine(target, Options(3))

    def verify(self, text: str) -> None:
        """Raises RuntimeError, with the line, where LLVM cannot read a text."""
        self._machine.parse(text)

    def optimize(self, text: str, kernels: frozenset[str]) -> str:
        """Returns the optimised module with the kernels and the functions that they call."""
        module: Any = self._machine.parse(text)
        self._machine.hide_others(module, kernels, visible=True)
        self._machine.optimize(module, Pipeline.VECTORS)
        return str(module)

    def emit(self, text: str) -> str:
        """Returns PTX. Raises PtxError."""
        made = self._machine.emit_assembly(self._machine.parse(text))
        foreign = _FOREIGN.search(made)
        if foreign is not None:
            raise PtxError(f"there is no device function `{foreign[1]}`")
        return made
