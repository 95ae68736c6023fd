"""The object of a kernel for a GPU: an object of the host that holds PTX, and the functions that count blocks.

The runtime finds each launch through a descriptor, the struct `nacre_kernel_image` of `runtime/cuda/device.h`:

    @softmax_ptx = internal constant [n x i8] c"..."
    @softmax_image = hidden constant {ptr, ptr, i64} {ptr @softmax_ptx, ptr @softmax_name, i64 256}
    define hidden i64 @softmax_blocks(i64 %d0, ptr %p0, ...)
"""

from __future__ import annotations

from collections.abc import Sequence

from ...lower.writer import part_name
from ...targets.cuda import BLOCKS, IMAGE
from ..llvm.machine import Machine
from .outline import Launch

_PLAIN = frozenset(range(32, 127)) - frozenset(b'"\\')


def make_image(host: Machine, text: str, ptx: str, symbol: str, launches: Sequence[Launch]) -> bytes:
    """Returns the object, made by LLVM for the host. `text` is LLVM IR with the functions that count blocks."""
    names = [part_name(symbol, number) for number in range(len(launches))]
    lines = [_string(f"{symbol}_ptx", ptx)]
    for name, launch in zip(names, launches, strict=True):
        lines.append(_string(f"{name}_name", name))
        fields = f"ptr @{symbol}_ptx, ptr @{name}_name, i64 {launch.threads}"
        lines.append(f"@{name}{IMAGE} = hidden constant {{ptr, ptr, i64}} {{{fields}}}, align 8")
    module = host.parse("\n".join([text, *lines]))
    host.hide_others(module, frozenset(name + BLOCKS for name in names), visible=False)
    host.optimize(module, vectorize=False)
    return host.emit_object(host.parse(str(module)))


def _string(symbol: str, text: str) -> str:
    data = text.encode() + b"\0"
    escaped = "".join(chr(byte) if byte in _PLAIN else f"\\{byte:02X}" for byte in data)
    return f'@{symbol} = internal constant [{len(data)} x i8] c"{escaped}", align 8'
