"""Compiles PTX, translated to C, for the fake driver: a module to a library, whose kernels a CPU runs.

`python compile_kernels.py FOLDER SOURCE` does it for a process of its own. It starts for every module, so it imports
little.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from ptx_to_c import UnknownError, translate

_HERE = Path(__file__).parent
_FLAGS = ("-std=gnu11", "-w", "-fPIC", "-shared", "-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing")
REFUSED = (UnknownError, AssertionError, RuntimeError, KeyError)
"""The errors of a module that cannot be compiled."""


def compile_ptx(ptx: str, folder: Path, *others: str) -> Path:
    """Returns a library with the kernels of PTX modules, translated to C. Small modules take a fifth of the
    time if they are one library: a C compiler takes longer to start than to compile one."""
    texts = (ptx, *others)
    made = folder / f"{hashlib.sha256(chr(0).join(texts).encode()).hexdigest()[:24]}.so"
    if not made.exists():
        source = made.with_suffix(f".{os.getpid()}.c")
        source.write_text(translate(*texts))
        driver = build_driver(folder)
        _run(made, str(source), str(driver), f"-Wl,-rpath,{folder}")
    return made


def _run(made: Path, *inputs: str) -> None:
    # Several processes may make the same library.
    whole = made.with_suffix(f".{os.getpid()}.so")
    command = ["cc", *_FLAGS, f"-I{_HERE}", *inputs, "-o", str(whole), "-lm", "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[:400])
    whole.rename(made)


def build_driver(folder: Path) -> Path:
    made = folder / "libfakecuda.so"
    if not made.exists():
        _run(made, *(str(_HERE / f"{part}.c") for part in ("fake_driver", "machine", "banks")), "-O2")
    return made


def main() -> int:
    """Compiles a module for such a process."""
    folder, source = map(Path, sys.argv[1:])
    try:
        print(compile_ptx(source.read_text(), folder))
    except REFUSED as error:
        print(f"{type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
