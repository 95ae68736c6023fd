"""The system that an artifact runs on: its object format, and how the C compiler builds the runtime and links.

    Linux   a shared library (ELF), which the dynamic loader maps; threads; weights inside, or in a file beside it
    WASI    a module of WebAssembly, which an engine instantiates; one thread; weights inside

The runtime's C sources differ by system: Linux has threads, files and shared memory, WASI has none of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...dialect.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class System:
    """name: as in triples.
    format: the object format of its artifacts.
    relocation: LLVM's relocation model of its code.
    runtime: the C sources of the runtime, without `.c`.
    compile_flags: those of the C compiler for the runtime.
    link_flags: those that are added to link an artifact. It is in a folder with `exports.map`, a version script.
    export: the flags that export the given functions.
    merge_flags: those that merge objects into one.
    external_weights: whether weights may be in a separate file.
    """

    name: str
    format: str
    relocation: str
    runtime: Sequence[str]
    compile_flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    export: Callable[[Sequence[str]], tuple[str, ...]]
    merge_flags: tuple[str, ...] = ("-r", "-nostdlib")
    external_weights: bool = True


_PORTABLE = ("api", "check", "cpu", "error", "formula", "observe", "session", "state")
"""The sources that need nothing but standard C and a clock."""
NO_DEVICE = "no_device"
"""The source that stands for those of devices in an artifact without code for one."""

LINUX = System(
    name="linux-gnu",
    format="elf",
    relocation="pic",
    runtime=tuple(
        sorted((*_PORTABLE, NO_DEVICE, "affinity", "helpers", "park", "pool", "share", "weights", "workers"))
    ),
    compile_flags=("-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-pthread"),
    link_flags=(
        "-shared",
        "-Wl,--build-id=none",
        "-Wl,--as-needed",
        "-Wl,-z,noexecstack",
        "-Wl,-z,relro",
        "-Wl,-z,now",
        "-Wl,-z,defs",
    ),
    export=lambda functions: ("-Wl,--version-script=exports.map",),
    merge_flags=("-r", "-nostdlib", "-Wl,--build-id=none"),
)

WASI = System(
    name="wasi",
    format="wasm",
    relocation="static",
    runtime=(*_PORTABLE, NO_DEVICE, "single_thread"),
    compile_flags=("-std=c11", "-O2", "-fvisibility=hidden"),
    # A module without `main`: the caller allocates tensors in its memory and calls functions through its table.
    link_flags=(
        "-mexec-model=reactor",
        "-Wl,--export-table",
        "-Wl,--strip-debug",
        "-Wl,-z,stack-size=1048576",
    ),
    export=lambda functions: tuple(f"-Wl,--export={f}" for f in (*functions, "malloc", "free", "aligned_alloc")),
    external_weights=False,
)
