"""From a lowered module to an object file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..lower.module import Lowered
from .child import TIMEOUT, Source, generate
from .job import Job
from .routes import LEVELS
from .target import Target


@dataclass(frozen=True, slots=True)
class ObjectResult:
    """An object file that exports the entries (hidden from other libraries), and the seconds of each stage."""

    code: bytes
    times: Mapping[str, float]


def generate_object(
    lowered: Lowered,
    target: Target | None = None,
    level: int = 2,
    dump_dir: Path | None = None,
    *,
    timeout: float = TIMEOUT,
    quick: bool = False,
    visible: bool = False,
) -> ObjectResult:
    """Compiles kernels and entries for the target.

    dump_dir: a folder for the text after every stage, in numbered files.
    timeout: seconds after which code generation is taken to hang.
    quick: leave the machine code unoptimised, which takes a third of the time.
    visible: let a loader find the entries by name.

    Raises CompilerFault where MLIR or LLVM fail.
    """
    target = target or Target()
    source = Source(tuple((k.name, k.text) for k in lowered.kernels), lowered.entry_ir)
    job = Job(
        route=LEVELS[level],
        # Level 0 is a choice of route, not of slow machine code.
        level=0 if quick else max(level, 1),
        cpu=target.cpu,
        triple=target.triple,
        features=target.features,
        keep=tuple(entry.symbol for entry in lowered.entries),
        visible=visible,
    )
    code, times = generate(source, job, dump_folder=dump_dir, timeout=timeout)
    return ObjectResult(code, times)
