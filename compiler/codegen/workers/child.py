"""Child processes that generate code: one job at a time each, with an outcome for every job.

MLIR and LLVM abort on unexpected input, and may hang; such a child is an outcome too. The compiler's
process decides how a failure is reported to the user.
"""

from __future__ import annotations

import os
import re
import resource
import select
import selectors
import signal
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field

from ....dialect.lazy_dataclass import dataclass
from ...base.compiler_errors import NO_ANSWER
from .forking import ForkServer, read_status
from .job import ENTRIES, INNER_FILE, KERNEL, WRITTEN, Job, Result, text_name, to_json
from .messages import STAGE, Answer, Request

TIMEOUT = 600.0
"""Seconds after which a job is assumed to hang."""
KERNEL_WORKER = "nacre.compiler.codegen.workers.kernel_worker"
ENTRY_WORKER = "nacre.compiler.codegen.workers.entry_worker"

_COMMENT = re.compile(r" ; .*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Source:
    """The input of a job: files by name. `kernel` is the symbol of the job's kernel, if it is one, and `nodes` are the
    nodes that the kernel computes. `identity` is its text without the parts that do not affect the object."""

    files: Mapping[str, str]
    job: Job
    identity: str
    worker: str
    kernel: str = ""
    nodes: tuple[str, ...] = ()

    @property
    def whole(self) -> str:
        """The files with their names, whose parts may all appear in dumps."""
        return to_json(dict(self.files), sort_keys=True)


def kernel_source(text: str, identity: str, job: Job, nodes: tuple[str, ...] = (), written: str = "") -> Source:
    """Returns the source of a kernel; `written` is its first text, where a device needs that too."""
    files = {text_name(KERNEL, job.start): text} | ({WRITTEN: written} if written else {})
    return Source(files, job, identity, KERNEL_WORKER, job.keep[0], nodes)


def entry_source(text: str, job: Job, dumped: Mapping[str, str], inner: Sequence[str] = ()) -> Source:
    """Returns the source of entries; `dumped` are the texts of all kernels, for dumps of the whole program, and
    `inner` the texts of the kernels that loops of the entries copy."""
    files = {f"{INNER_FILE}{number:06}.ll": code for number, code in enumerate(inner)}
    identity = "\n".join([_COMMENT.sub("", text), *inner])
    return Source({text_name(ENTRIES, job.start): text, **files, **dumped}, job, identity, ENTRY_WORKER)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a job: the object and the dumps, by file name, or the error."""

    code: bytes
    result: Result
    output: str
    dumps: Mapping[str, str] = field(default_factory=dict)


class Child:
    """A child process, forked by a server. It waits for jobs until it is closed, or was idle for `IDLE_SECONDS`.

    jobs: the number of jobs that it received.
    limit: the limit of this process's data when the child was forked, which is also its own.
    """

    def __init__(self, server: ForkServer) -> None:
        # Its output goes into a file: a pipe would have to be drained all the time.
        self._server, self._said = server, tempfile.TemporaryFile()  # noqa: SIM115  (closed with the child)
        self.jobs, self.limit = 0, resource.getrlimit(resource.RLIMIT_DATA)
        (theirs, jobs), (answers, ours) = os.pipe(), os.pipe()
        self._jobs, self.answers = os.fdopen(jobs, "wb"), os.fdopen(answers, "rb")
        try:
            self._line = server.fork(theirs, ours, self._said.fileno())
        except OSError:
            self._close_files()
            raise
        finally:
            os.close(theirs)
            os.close(ours)
        self._read = 0

    @property
    def is_alive(self) -> bool:
        # Its exit status arrives when it ends.
        return not select.select([self._line], [], [], 0)[0]

    def send(self, source: Source) -> None:
        self.jobs += 1
        self._read = os.fstat(self._said.fileno()).st_size
        try:
            self._jobs.write(Request(source.job, source.files).pack())
            self._jobs.flush()
        except BrokenPipeError:
            pass  # it is dead, which shows where its answer is read

    def outcome(self) -> Outcome:
        """Returns the outcome of the job, once the child has finished it or died."""
        answer = Answer.unpack(self.answers.read)
        if answer is not None:
            return Outcome(answer.code, answer.result, self._output(), answer.dumps)
        status = read_status(self._line)
        if status is None:
            return self.failed(f"the child could not start: {_last_words(self._server.output())}")
        how = f"died of {signal.Signals(-status).name}" if status < 0 else "ended"
        return self.failed(f"the child {how}: {_last_words(self._output())}")

    def failed(self, why: str) -> Outcome:
        """Returns the outcome of a job without an answer: the child has reported its last stage."""
        output = self._output()
        stages = [line.removeprefix(STAGE) for line in output.splitlines() if line.startswith(STAGE)]
        return Outcome(b"", Result(stage=stages[-1] if stages else "start", error=why), output)

    def _output(self) -> str:
        """Returns the child's output since it received the job."""
        return os.pread(self._said.fileno(), 1 << 24, self._read).decode(errors="replace")

    def close(self) -> None:
        # Its server ends it at any stage of a job.
        self._line.close()
        self._close_files()

    def _close_files(self) -> None:
        with suppress(BrokenPipeError):
            self._jobs.close()
        self.answers.close()
        self._said.close()


def _last_words(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith(STAGE)]
    errors = [line for line in lines if "error" in line.lower() or "fatal" in line.lower()]
    return (errors or lines or ["it printed nothing"])[0].strip()


class Children:
    """A group of children that do jobs of one kind, one job per child at a time. Closing it ends children that are
    still at work."""

    def __init__(self, children: Sequence[Child]) -> None:
        self._children = list(children)

    def close(self) -> None:
        for child in self._children:
            child.close()
        self._children.clear()

    def release(self) -> list[Child]:
        """Returns the children, which have finished all jobs; closing the group leaves them alone then."""
        released, self._children = self._children, []
        return released

    def run(self, sources: Sequence[Source], timeout: float, take: Callable[[int, Outcome], None]) -> None:
        """Calls `take` with the index of every source and its outcome, as soon as the outcome arrives. A job without an
        answer within `timeout` seconds is assumed to hang; the time that it waits for a child does not count.

        `take` must raise where the outcome is a failure: the child may be dead.
        """
        assert self._children or not sources
        waiting, idle = deque(enumerate(sources)), deque(self._children)
        with selectors.DefaultSelector() as selector:
            while waiting or selector.get_map():
                while waiting and idle:
                    child, (number, source) = idle.popleft(), waiting.popleft()
                    selector.register(child.answers, selectors.EVENT_READ, (child, number, time.monotonic() + timeout))
                    child.send(source)
                # The first registered child has the longest-running job.
                child, number, deadline = next(iter(selector.get_map().values())).data
                events = selector.select(max(0.0, deadline - time.monotonic()))
                if not events:
                    take(number, child.failed(f"{NO_ANSWER} {timeout:g} seconds"))
                    return
                for key, _ in events:
                    child, number, _ = key.data
                    selector.unregister(key.fileobj)
                    idle.append(child)
                    take(number, child.outcome())
