"""The child processes that generate code: one job at a time each, and whatever becomes of it.

MLIR and LLVM abort on what they do not expect, and may hang; a child that does so is an outcome like any other. Nothing
here decides what a failure means to the user.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .job import ENTRIES, KERNEL, Job, Result, text_name
from .messages import STAGE, Answer, Request

TIMEOUT = 600.0
"""Seconds after which code generation is taken to hang."""
NO_ANSWER = "no answer within"
"""What is said of a child that hangs begins so."""
KERNEL_WORKER = "nacre.compiler.codegen.worker"
ENTRY_WORKER = "nacre.compiler.codegen.entry_worker"

_COMMENT = re.compile(r" ; .*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Source:
    """What a job is made from: files by name. `kernel` is the symbol of the kernel that it is, if it is one, and
    `nodes` what it computes; `identity` is its text without what makes no difference to the object."""

    files: Mapping[str, str]
    job: Job
    identity: str
    worker: str
    kernel: str = ""
    nodes: tuple[str, ...] = ()


def kernel_source(text: str, identity: str, job: Job, nodes: tuple[str, ...] = ()) -> Source:
    return Source({text_name(KERNEL, job.start): text}, job, identity, KERNEL_WORKER, job.keep[0], nodes)


def entry_source(text: str, job: Job, dumped: Mapping[str, str]) -> Source:
    """`dumped` are texts of kernels, for dumps of the whole."""
    return Source({text_name(ENTRIES, job.start): text, **dumped}, job, _COMMENT.sub("", text), ENTRY_WORKER)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a job left: the object and the dumps, by file name, or what went wrong."""

    code: bytes
    result: Result
    output: str
    dumps: Mapping[str, str] = field(default_factory=dict)


def worker_command(worker: str) -> list[str]:
    # -P: no module of the folder that the user happens to stand in is taken for one of ours.
    return [sys.executable, "-P", "-X", "faulthandler", "-m", worker]


class Child:
    """One process. It starts to import what it needs at once, and waits for jobs until it is closed."""

    def __init__(self, worker: str) -> None:
        # What it says goes into a file: a pipe would have to be emptied all the time.
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the child)
        self._process = subprocess.Popen(
            worker_command(worker), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._jobs, self.answers = self._process.stdin, self._process.stdout
        self._read = 0

    def send(self, source: Source) -> None:
        self._read = os.fstat(self._said.fileno()).st_size
        try:
            self._jobs.write(Request(source.job, source.files).pack())
            self._jobs.flush()
        except BrokenPipeError:
            pass  # it is dead, which shows where its answer is read

    def outcome(self) -> Outcome:
        """What became of the job, once the child has ended it or died of it."""
        answer = Answer.unpack(self.answers.read)
        if answer is not None:
            return Outcome(answer.code, answer.result, self._output(), answer.dumps)
        status = self._process.wait()
        how = f"died of {signal.Signals(-status).name}" if status < 0 else "ended"
        return self.fault(f"the child {how}: {_last_words(self._output())}")

    def fault(self, why: str) -> Outcome:
        """The outcome of a job without an answer: the child has told the stage that it had come to."""
        output = self._output()
        stages = [line.removeprefix(STAGE) for line in output.splitlines() if line.startswith(STAGE)]
        return Outcome(b"", Result(stage=stages[-1] if stages else "start", error=why), output)

    def _output(self) -> str:
        """What it said since it was given the job."""
        return os.pread(self._said.fileno(), 1 << 24, self._read).decode(errors="replace")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._said.close()


def _last_words(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith(STAGE)]
    told = [line for line in lines if "error" in line.lower() or "fatal" in line.lower()]
    return (told or lines or ["it said nothing"])[0].strip()


class Children:
    """Do jobs of one kind, as many at a time as there are. To be closed: whoever still works then is ended."""

    def __init__(self, children: Sequence[Child]) -> None:
        self._children = list(children)

    def close(self) -> None:
        for child in self._children:
            child.close()
        self._children.clear()

    def run(self, sources: Sequence[Source], timeout: float, take: Callable[[int, Outcome], None]) -> None:
        """Gives `take` the number of every source, and its outcome as soon as it is there.

        It has to raise where the outcome is a failure: the child may be dead.
        """
        assert self._children or not sources
        deadline = time.monotonic() + timeout
        waiting, idle = deque(enumerate(sources)), deque(self._children)
        with selectors.DefaultSelector() as selector:
            while waiting or selector.get_map():
                while waiting and idle:
                    child, (number, source) = idle.popleft(), waiting.popleft()
                    selector.register(child.answers, selectors.EVENT_READ, (child, number))
                    child.send(source)
                events = selector.select(max(0.0, deadline - time.monotonic()))
                if not events:
                    # The one that has been at its job for longest.
                    child, number = next(iter(selector.get_map().values())).data
                    take(number, child.fault(f"{NO_ANSWER} {timeout:g} seconds"))
                    return
                for key, _ in events:
                    child, number = key.data
                    selector.unregister(key.fileobj)
                    idle.append(child)
                    take(number, child.outcome())
