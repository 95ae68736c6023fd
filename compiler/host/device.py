"""Entries whose kernels run on a device: the host evaluates sizes and offsets, and launches.

Tensors are in device memory, so the entry reads and writes numbers by calls of the runtime. The functions
`nacre_device_...` are in `runtime/cuda/`. After an error, which the runtime keeps until the entry returns, they do
nothing. The launcher of a kernel with one dim and two tensors, number 2 in the module:

    define internal void @add_launch(ptr %team, i64 %a0, ptr %a1, ptr %a2) noinline {
      ...                                                            the arguments, in memory
      %blocks = call i64 @add_blocks(i64 %a0, ptr %a1, ptr %a2)
      call void @nacre_device_launch(ptr %team, i64 2, i64 %blocks, ptr %arguments)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..lower.storage import Alarm, Failure, Storage
from ..targets.cuda import BLOCKS, IMAGE, IMAGE_TYPE
from .entry import RECORD_BYTES, Call, EntryText
from .states import Copy

LAUNCH = "_launch"
"""The suffix of the function that launches a kernel."""
IMAGES = "nacre_images"
"""The table of the descriptors of all launches, with the suffix of the target."""

_RUNTIME = (
    "i8 @nacre_device_load_i8(ptr, ptr)",
    "i64 @nacre_device_load_i64(ptr, ptr)",
    "void @nacre_device_store(ptr, i64, ptr)",
    "void @nacre_device_copy(ptr, ptr, ptr, i64)",
    "void @nacre_device_read(ptr, ptr, ptr, i64)",
    "ptr @nacre_device_record(ptr)",
    "void @nacre_device_launch(ptr, i64, i64, ptr)",
    "void @nacre_device_show(ptr, ptr, i64)",
    "i64 @llvm.smin.i64(i64, i64)",
    "i64 @llvm.smax.i64(i64, i64)",
)


class DeviceEntryText(EntryText):
    """The text of an entry whose kernels run on a device. Checks that depend on weights alone run in every call."""

    remembers_checks = False

    def address(self, storage: Storage) -> str:
        if isinstance(storage, Failure):
            return self.define("call ptr @nacre_device_record(ptr %team)")
        if isinstance(storage, Alarm):
            return self.define(f"getelementptr i8, ptr {self.address(Failure())}, i64 {RECORD_BYTES}")
        return super().address(storage)

    def load(self, type: str, pointer: str) -> str:
        return f"call {type} @nacre_device_load_{type}(ptr %team, ptr {pointer})"

    def store_word(self, value: str, pointer: str) -> None:
        self.lines.append(f"  call void @nacre_device_store(ptr %team, i64 {value}, ptr {pointer})")

    def copy(self, copy: Copy) -> None:
        source, target, size = self.address(copy.source), self.address(copy.target), self.size(copy.size)
        self.lines.append(f"  call void @nacre_device_copy(ptr %team, ptr {target}, ptr {source}, i64 {size})")

    def launcher(self, call: Call) -> tuple[str, ...]:
        return (f"{call.kernel}{LAUNCH}",)

    def show(self, call: Call) -> None:
        for storage, size in call.results:
            arguments = f"ptr %watch, ptr {self.address(storage)}, i64 {self.size(size)}"
            self.lines.append(f"  call void @nacre_device_show({arguments}){self.scope.at(call.span)}")

    def keep_record(self, record: Storage, line: str) -> None:
        arguments = f"ptr %team, ptr %failure, ptr {self.address(record)}, i64 {RECORD_BYTES}"
        self.lines.append(f"  call void @nacre_device_read({arguments}){line}")


def declare_device(calls: Iterable[Call], suffix: str) -> str:
    """Returns the declarations that entries with these calls need, the launchers, and the table of the launches."""
    kernels = {call.kernel: (len(call.dims), len(call.storages)) for call in calls}
    types: Mapping[str, Sequence[str]] = {k: ["i64"] * d + ["ptr"] * p for k, (d, p) in sorted(kernels.items())}
    lines = [*(f"declare {line}" for line in _RUNTIME)]
    lines += [f"declare i64 @{kernel}{BLOCKS}({', '.join(types[kernel])})" for kernel in types]
    lines += [f"@{kernel}{IMAGE} = external hidden constant {IMAGE_TYPE}" for kernel in types]
    images = ", ".join(f"ptr @{kernel}{IMAGE}" for kernel in types)
    table = f"{{i64, [{len(types)} x ptr]}} {{i64 {len(types)}, [{len(types)} x ptr] [{images}]}}"
    lines.append(f"@{IMAGES}{suffix} = hidden constant {table}, align 8")
    return "\n".join([*lines, *(_write_launcher(k, number, types[k]) for number, k in enumerate(types))])


def _write_launcher(kernel: str, number: int, types: Sequence[str]) -> str:
    count = max(1, len(types))
    values = [f"{type} %a{i}" for i, type in enumerate(types)]
    lines = [
        f"define internal void @{kernel}{LAUNCH}({', '.join(['ptr %team', *values])}) noinline {{",
        f"  %values = alloca [{count} x i64], align 8",
        f"  %arguments = alloca [{count} x ptr], align 8",
    ]
    for i, value in enumerate(values):
        lines += [
            f"  %v{i} = getelementptr i64, ptr %values, i64 {i}",
            f"  store {value}, ptr %v{i}, align 8",
            f"  %p{i} = getelementptr ptr, ptr %arguments, i64 {i}",
            f"  store ptr %v{i}, ptr %p{i}, align 8",
        ]
    lines += [
        f"  %blocks = call i64 @{kernel}{BLOCKS}({', '.join(values)})",
        f"  call void @nacre_device_launch(ptr %team, i64 {number}, i64 %blocks, ptr %arguments)",
        "  ret void",
        "}",
        "",
    ]
    return "\n".join(lines)
