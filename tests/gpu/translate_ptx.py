"""Translates PTX to threaded code, so that a CPU runs what a GPU would run; `machine.h` has the memory and the threads.

An instruction becomes a row of words: the function in C that executes its form, and what the form leaves open, which
are the offsets of registers, numbers, addresses and the distance of a jump.

    add.s32 %r3, %r4, 7;    form:  U32(o[3]) = (int32_t)((int32_t)(U32(o[1])) + (int32_t)((uint32_t)o[2]));
                            words: 32, 7, 28

Kernels have few forms, so the C compiler has little to compile. An unknown instruction is an error. The translation
knows the instructions that the compiler writes: no texture, no atomic, no call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ptx_instructions import Kernel
from ptx_operands import split_operands, width

_REGISTERS = re.compile(r"\.reg \.(\w+)\s+(%\w+)<(\d+)>;")
_DEPOT = re.compile(r"\.local \.align (\d+) \.b8\s+(\w+)\[(\d+)\];")
_SHARED = re.compile(r"\.shared \.align (\d+) \.b8 (\w+)\[(\d*)\]")
_GLOBAL = re.compile(r"\.(?:global|const) \.align (\d+) \.b(\d+) (\w+)(?:\[(\d+)\])?(?: = (?:\{([^}]*)\}|(\w+)))?;")
_PARAMETER = re.compile(r"\.param (?:\.align \d+ )?\.(\w+)\s+(?:\.ptr [^,)]*?)?([\w$]+)(?:\[(\d+)\])?\s*[,\n)]")
_LABEL = re.compile(r"([\w$]+):\s*")
_OWN, _HALF = re.compile(r"\{ \.reg \.(b\d+) %?tmp"), re.compile(r"%?\btmp\b")
"""The half of a register that nothing reads: a block of its own declares it."""
_PRODUCT = re.compile(r"wgmma\.mma_async\S*\s*\{([^}]*)\}")
_ENTRY = re.compile(r"\.entry ([\w$]+)\((.*?)\)(.*?)\n\{\n(.*?)\n\}", re.DOTALL)


@dataclass
class Program:
    """Kernels, and constants: each with its alignment."""

    kernels: list[Kernel] = field(default_factory=list)
    data: list[tuple[int, bytes]] = field(default_factory=list)


def translate(*modules: str) -> Program:
    """Returns the code of all kernels of modules, and their constants."""
    made = Program()
    for ptx in modules:
        _add_module(ptx, made)
    return made


def _add_module(ptx: str, to: Program) -> None:
    ptx = re.sub(r"//[^\n]*", "", ptx)
    assert ".extern .func" not in ptx
    shared: dict[str, int] = {}
    end = 0
    # Memory without a size is that of the launch, behind the rest.
    for align, name, size in sorted(_SHARED.findall(ptx), key=lambda each: not each[2]):
        begin = -(-end // int(align)) * int(align)
        shared[name], end = begin, begin + int(size) if size else end
    dynamic = max([end, *(begin for begin in shared.values())])
    globals: dict[str, int] = {}
    for align, bits, name, count, values, single in _GLOBAL.findall(ptx):
        globals[name] = len(to.data)
        mask = (1 << int(bits)) - 1
        numbers = [int(number, 0) & mask for number in (values or single or "0").split(",")]
        data = b"".join(number.to_bytes(int(bits) // 8, "little") for number in numbers)
        to.data.append((int(align), data.ljust(int(count or 1) * int(bits) // 8, b"\0")))
    for name, parameters, _, body in _ENTRY.findall(ptx):
        to.kernels.append(_translate_kernel(Kernel(name, _place(parameters), shared, globals, dynamic), body))


def _place(parameters: str) -> dict[str, tuple[int, int]]:
    """Returns the places and sizes of parameters."""
    places: dict[str, tuple[int, int]] = {}
    end = 0
    for type, parameter, count in _PARAMETER.findall(parameters + ")"):
        size = width(type) // 8 * int(count or 1)
        end = -(-end // size) * size
        places[parameter] = (end, size)
        end += size
    return places


def _translate_kernel(kernel: Kernel, body: str) -> Kernel:
    for type, prefix, count in _REGISTERS.findall(body):
        for number in range(int(count)):
            kernel.declare(f"{prefix}{number}", type)
    for special in ("%SP", "%SPL"):
        if f"{special};" in body:
            kernel.declare(special, "b64")
    depot = _DEPOT.search(body)
    if depot is not None:
        kernel.depot = (depot[2], int(depot[3]))
        kernel.place(depot[2], int(depot[3]), 16)
    product = _PRODUCT.search(body)
    kernel.sums = split_operands(product[1]) if product is not None else []
    half = ""
    for statement in body.split(";"):
        text = " ".join(statement.split())
        while (found := _LABEL.match(text)) is not None:
            kernel.labels[found[1]] = len(kernel.rows)
            text = text[found.end() :]
        if (own := _OWN.fullmatch(text)) is not None:
            half = f"%tmp_{own[1]}"
            if half not in kernel.types:
                kernel.declare(half, own[1])
            continue
        text = text.removeprefix("}").strip()
        if text and not text.startswith("."):
            kernel.write(_HALF.sub(half, text) if "tmp" in text else text)
    kernel.write("ret")
    return kernel
