"""The object of a kernel for a GPU: an object of the host with PTX, machine code, and the functions that count
blocks.

The runtime finds each launch through a descriptor, the struct `nacre_kernel_image` of `runtime/cuda/code.h`:

    @softmax_ptx = internal constant [n x i8] c"..."
    @softmax_cubin = internal constant [m x i8] c"..."
    @softmax_image = hidden constant {ptr, ptr, ptr, i64, i64, ptr, i64, i64}
                     {ptr @softmax_ptx, ptr @softmax_cubin, ptr @softmax_name, i64 256, i64 0, ptr null, i64 4, i64 0}
    define hidden i64 @softmax_blocks(i64 %d0, ptr %p0, ...)

Without machine code, the second pointer is null. For a launch with tensor maps, the last pointer is a function, which
reads the arguments of the launch through pointers and writes the numbers of its maps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ...targets.cuda import BLOCKS, IMAGE, IMAGE_TYPE, TILES
from ..llvm.machine import Machine, Pipeline
from .outline import Launch
from .ptx import dynamic_bytes

_SPECIAL = re.compile(r"[^ -~]")
_FUNCTION, _END = re.compile(r"^define [^@\n]*@([\w.]+)\(", re.MULTILINE), "\n}\n"
_HEAD = re.compile(r"^define (.+) @([\w.]+)\((.*)\).*\{$", re.MULTILINE)
_SYMBOL = re.compile(r"@([\w.]+)")


def make_image(host: Machine, text: str, ptx: str, cubin: bytes, symbol: str, launches: Mapping[str, Launch]) -> bytes:
    """Returns the object, made by LLVM for the host. `text` is LLVM IR with the functions that count blocks; `cubin` is
    empty if there is no machine code; `launches` has the launches by the names of their functions."""
    text = keep_functions(text, [name + suffix for name in launches for suffix in (BLOCKS, TILES)])
    lines = [_string(f"{symbol}_ptx", ptx)]
    machine_code = "null"
    if cubin:
        lines.append(_constant(f"{symbol}_cubin", cubin))
        machine_code = f"@{symbol}_cubin"
    for name, launch in launches.items():
        lines.append(_string(f"{name}_name", name))
        fields = f"ptr @{symbol}_ptx, ptr {machine_code}, ptr @{name}_name"
        fields += f", i64 {launch.threads}, i64 {dynamic_bytes(text, name)}"
        reader, count = _write_reader(text, name, lines)
        fields += f", ptr {reader}, i64 {count}, i64 {launch.blocks_at_once * launch.persistent}"
        lines.append(f"@{name}{IMAGE} = hidden constant {IMAGE_TYPE} {{{fields}}}, align 8")
    module = host.parse("\n".join([text, *lines]))
    host.hide_others(module, frozenset(name + BLOCKS for name in launches), visible=False)
    host.optimize(module, Pipeline.COUNTS)
    return host.emit_object(module)


def keep_functions(text: str, names: Iterable[str]) -> str:
    """Returns LLVM IR with the named functions, those that they call, and no others. The host optimises these alone:
    device functions are most of a kernel's text."""
    bodies: dict[str, str] = {}
    rest, end = [], 0
    for found in _FUNCTION.finditer(text):
        rest += [text[end : found.start()], found[1]]
        end = text.index(_END, found.start()) + len(_END)
        bodies[found[1]] = text[found.start() : end]
    kept: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in bodies and name not in kept:
            kept.add(name)
            waiting += _SYMBOL.findall(bodies[name])
    rest[1::2] = [bodies[name] if name in kept else "" for name in rest[1::2]]
    return "".join([*rest, text[end:]])


def _write_reader(text: str, name: str, lines: list[str]) -> tuple[str, int]:
    """Writes the function that reads a launch's arguments. Returns its name, or `null`, and the number of arguments."""
    found = next((found for found in _HEAD.finditer(text) if found[2] == name + TILES), None)
    if found is None:
        return "null", 0
    result, _, arguments = found.groups()
    types = [argument.split()[0] for argument in arguments.split(", ")]
    lines.append(f"define internal void @{name}_read(ptr %arguments, ptr %words) {{")
    for number, type in enumerate(types):
        lines += [
            f"  %p{number} = getelementptr ptr, ptr %arguments, i64 {number}",
            f"  %q{number} = load ptr, ptr %p{number}",
            f"  %a{number} = load {type}, ptr %q{number}",
        ]
    passed = ", ".join(f"{type} %a{number}" for number, type in enumerate(types))
    lines.append(f"  %made = call {result} @{name}{TILES}({passed})")
    for number in range(result.count("i64")):
        lines += [
            f"  %w{number} = extractvalue {result} %made, {number}",
            f"  %t{number} = getelementptr i64, ptr %words, i64 {number}",
            f"  store i64 %w{number}, ptr %t{number}",
        ]
    lines += ["  ret void", "}"]
    return f"@{name}_read", len(types)


def _string(symbol: str, text: str) -> str:
    return _constant(symbol, text.encode() + b"\0")


def _constant(symbol: str, data: bytes) -> str:
    escaped = data.decode("latin-1")
    for frequent in '\\"\n\t':  # by far the fastest way
        escaped = escaped.replace(frequent, f"\\{ord(frequent):02X}")
    escaped = _SPECIAL.sub(lambda found: f"\\{ord(found[0]):02X}", escaped)
    return f'@{symbol} = internal constant [{len(data)} x i8] c"{escaped}", align 16'
