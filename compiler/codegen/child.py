"""Runs code generation in a child process, and makes a fault with a reproducer of whatever goes wrong there.

MLIR and LLVM abort on what they do not expect. A fault names the kernel at which it happens, found by halving; the
folder that it leaves holds that kernel, the options, the versions, and the command that shows the fault again.
"""

from __future__ import annotations

import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .job import Job, Result
from .target import check_target_is_known

TIMEOUT = 600.0
"""Seconds after which a child is taken to hang."""
_LOCATING_TIMEOUT = 60.0
_WORKER = "nacre.compiler.codegen.worker"


class CompilerFault(Exception):  # noqa: N818 (a fault, not an error of the user's)
    """The compiler's own fault. `reproducer` is a folder that shows it, `kernel` the function at which it happens."""

    exit_code = 70

    def __init__(self, what: str, stage: str, kernel: str, reproducer: Path) -> None:
        self.what, self.stage, self.kernel, self.reproducer = what, stage, kernel, reproducer
        where = f" in `{kernel}`" if kernel else ""
        super().__init__(f"code generation failed at stage {stage}{where}: {what}\nreproducer: {reproducer}")


@dataclass(frozen=True, slots=True)
class Source:
    """The texts of a job: kernels by name, and the entries that call them."""

    kernels: tuple[tuple[str, str], ...]
    entries: str

    def only(self, kernels: Sequence[tuple[str, str]]) -> Source:
        return Source(tuple(kernels), "")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a child left: the object, or what went wrong."""

    code: bytes
    result: Result
    output: str
    timed_out: bool = False


def write_job(folder: Path, source: Source, job: Job) -> list[str]:
    """Writes the files of a job, and gives the command that runs it."""
    (folder / "kernels.mlir").write_text("\n".join(text for _, text in source.kernels), encoding="utf-8")
    (folder / "entries.ll").write_text(source.entries, encoding="utf-8")
    (folder / "job.json").write_text(job.to_json(), encoding="utf-8")
    # -P: no module of the folder that the user happens to stand in is taken for one of ours.
    return [sys.executable, "-P", "-X", "faulthandler", "-m", _WORKER, str(folder / "job.json")]


def attempt(folder: Path, source: Source, job: Job, timeout: float) -> Outcome:
    """One child, whatever becomes of it."""
    command = write_job(folder, source, job)
    try:
        process = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout)
    except subprocess.TimeoutExpired as error:
        output = error.stderr.decode(errors="replace") if isinstance(error.stderr, bytes) else (error.stderr or "")
        return Outcome(b"", _dead(folder, f"no answer within {timeout:g} seconds"), output, timed_out=True)
    if process.returncode < 0:
        died = signal.Signals(-process.returncode).name
        words = f"the child died of {died}: {_last_words(process.stderr)}"
        return Outcome(b"", _dead(folder, words), process.stderr)
    if not (folder / "result.json").exists():
        return Outcome(b"", _dead(folder, f"the child ended: {_last_words(process.stderr)}"), process.stderr)
    result = Result.from_json((folder / "result.json").read_text(encoding="utf-8"))
    code = b"" if result.error else (folder / "kernels.o").read_bytes()
    return Outcome(code, result, process.stderr)


def _dead(folder: Path, words: str) -> Result:
    """The result of a child that wrote none: it left the stage that it had come to."""
    reached = folder / "stage"
    return Result(stage=reached.read_text() if reached.exists() else "start", error=words)


def _last_words(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    told = [line for line in lines if "error" in line.lower() or "fatal" in line.lower()]
    return (told or lines or ["it said nothing"])[0].strip()


def generate(
    source: Source, job: Job, *, dump_folder: Path | None = None, timeout: float = TIMEOUT
) -> tuple[bytes, dict[str, float]]:
    """The object of a job and the seconds of its stages. Raises CompilerFault, DiagnosticError for an unknown CPU."""
    with tempfile.TemporaryDirectory(prefix="nacre-") as name:
        folder = Path(name)
        outcome = attempt(folder, source, replace(job, dump=dump_folder is not None), timeout)
        if dump_folder is not None and (folder / "dump").exists():
            shutil.copytree(folder / "dump", dump_folder, dirs_exist_ok=True)
    check_target_is_known(outcome.output)
    if outcome.result.error:
        raise _fault(source, job, outcome, timeout)
    return outcome.code, outcome.result.times


def _fault(source: Source, job: Job, outcome: Outcome, timeout: float) -> CompilerFault:
    culprit, outcome = _locate(source, job, outcome, timeout)
    folder = Path(tempfile.mkdtemp(prefix="nacre-fault-"))
    command = write_job(folder, culprit, job)
    (folder / "output.txt").write_text(f"{outcome.result.error}\n\n{outcome.output}", encoding="utf-8")
    (folder / "versions.txt").write_text("".join(f"{line}\n" for line in _versions()))
    rerun = [*command[:-1], "job.json"]
    (folder / "rerun.sh").write_text(f'#!/bin/sh\ncd "$(dirname "$0")" && {shlex.join(rerun)}\n')
    kernel = culprit.kernels[0][0] if len(culprit.kernels) == 1 else ""
    return CompilerFault(outcome.result.error, outcome.result.stage, kernel, folder)


def _locate(source: Source, job: Job, outcome: Outcome, timeout: float) -> tuple[Source, Outcome]:
    """The smallest part of the source that still fails, where one kernel is at fault; else all of it."""
    if outcome.timed_out:
        # Every try would take as long again, and perhaps it is no single kernel that takes it.
        return source, outcome

    def fails(kernels: Sequence[tuple[str, str]]) -> Outcome | None:
        part = replace(job, keep=tuple(name for name, _ in kernels), dump=False)
        with tempfile.TemporaryDirectory(prefix="nacre-") as name:
            tried = attempt(Path(name), source.only(kernels), part, min(timeout, _LOCATING_TIMEOUT))
        return tried if tried.result.error else None

    suspects = list(source.kernels)
    found = fails(suspects)
    if found is None:
        return source, outcome
    while len(suspects) > 1:
        half = len(suspects) // 2
        for part in (suspects[:half], suspects[half:]):
            tried = fails(part)
            if tried is not None:
                suspects, found = part, tried
                break
        else:
            break
    return source.only(suspects), found


def _versions() -> list[str]:
    lines = [f"python {platform.python_version()}", platform.platform()]
    for package in ("nacre", "torch-mlir", "mlir", "llvmlite", "numpy"):
        try:
            lines.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return lines
