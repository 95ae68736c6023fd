"""Runs tasks in child processes, so that a crash or a hang becomes an ordinary answer.

Tasks run one after another in one child, a fork of this process that shares its data. If it dies, another child
continues with the next task. Processes that a child starts (for code generation) end with it.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import resource
import select
import signal
import struct
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from ...dialect.lazy_dataclass import dataclass

TIMEOUT = 60.0
"""Seconds of processor time that a task may take between progress messages."""
_IDLE = 0.01
"""A task that uses less than this part of a processor waits; one that competes for processors uses more."""
_SOON, _SOON_PART = 0.5, 0.1
"""Seconds until a message is late, but no more than a part of the time limit: only then is the processor time of the
child read, since that takes milliseconds."""

CRASH, HANG = "crash", "hang"

Progress = Callable[[str], None]
"""Reports the next step, so that a hang can be attributed to it."""
Answer = TypeVar("Answer")
Question = TypeVar("Question")
Task = Callable[[Progress], Answer]
"""A task; its answer must support pickling."""


@dataclass(frozen=True, slots=True)
class Died:
    """The end of a task without an answer: `kind` is CRASH or HANG, `message` describes it, `doing` is the last
    step."""

    kind: str
    message: str
    doing: str = ""


def run_isolated(tasks: Sequence[Task[Answer]], timeout: float = TIMEOUT) -> list[Answer | Died]:
    """Returns the answers of all tasks, in order.

    A task hangs if it uses `timeout` seconds of processor time between messages, or waits for as many seconds. A task
    that other processes slow down does not hang.
    """
    return list(run_each_isolated(tasks, timeout))


def run_each_isolated(tasks: Sequence[Task[Answer]], timeout: float = TIMEOUT) -> Iterator[Answer | Died]:
    """Yields the answers as they arrive. Tasks beyond the last requested answer are ended."""
    done = 0
    while done < len(tasks):
        with closing(_Child(partial(_run_tasks, tasks[done:]))) as child:
            while done < len(tasks) and child.is_alive:
                answer = child.answer(timeout)
                done += 1
                yield answer


class Isolated(Generic[Question, Answer]):
    """Answers questions in a child process, one after another. The child is forked for the first one, with the data
    that this process has then. Questions and answers must support pickling."""

    def __init__(self, answer: Callable[[Question, Progress], Answer], timeout: float = TIMEOUT) -> None:
        self._answer, self._timeout = answer, timeout
        self._child: _Child | None = None
        self._questions = -1

    def ask(self, question: Question) -> Answer | Died:
        """Returns the answer. If the child dies, another one answers the next question; after a crash, another one also
        tries this question, unless it was the first: an earlier answer may have damaged the memory of the child."""
        while True:
            child, is_first = self._child or self._start(), self._child is None
            self._child = child
            with suppress(BrokenPipeError):
                _send(self._questions, question)
            answer: Answer | Died = child.answer(self._timeout)
            if child.is_alive:
                return answer
            self.close()
            if is_first or (isinstance(answer, Died) and answer.kind == HANG):
                return answer

    def close(self) -> None:
        """Ends the child, if there is one; a later question starts another."""
        if self._child is not None:
            self._child.close()
            os.close(self._questions)
            self._child = None

    def _start(self) -> _Child:
        questions, self._questions = os.pipe()

        def serve(pipe: int) -> None:
            os.close(self._questions)
            _answer_questions(self._answer, questions, pipe)

        child = _Child(serve)
        os.close(questions)
        return child


class _Child:
    """A fork of this process that runs `serve`, which writes messages to a pipe."""

    def __init__(self, serve: Callable[[int], None]) -> None:
        self._reader, writer = os.pipe()
        self.is_alive = True
        sys.stdout.flush()
        sys.stderr.flush()
        self._process = os.fork()
        if self._process == 0:
            os.close(self._reader)
            _serve(serve, writer)
        os.close(writer)

    def answer(self, timeout: float) -> Any:
        """Returns the next answer of the child, or Died if there will be none."""
        doing = "start"
        while _is_ready(self._reader, self._process, timeout):
            message = _receive(self._reader)
            if message is None:
                code, self._process = os.waitstatus_to_exitcode(os.waitpid(self._process, 0)[1]), 0
                self.is_alive = False
                assert code < 0, f"the child ended with {code} while running {doing}"
                return Died(CRASH, f"{signal.Signals(-code).name} while running {doing}", doing)
            is_answer, content = message
            if is_answer:
                return content
            doing = content
        self.is_alive = False
        return Died(HANG, f"no answer within {timeout:g} seconds while running {doing}", doing)

    def close(self) -> None:
        """Ends the child, if it has not ended."""
        os.close(self._reader)
        if self._process:
            _end(self._process)


def _is_ready(reader: int, child: int, timeout: float) -> bool:
    """Waits for a message; returns False if the child hangs."""
    if select.select([reader], [], [], min(_SOON_PART * timeout, _SOON))[0]:
        return True
    first = before = _cpu_seconds(child)
    while not select.select([reader], [], [], timeout)[0]:
        now = _cpu_seconds(child)
        if now - first >= timeout or now - before < _IDLE * timeout:
            return False
        before = now
    return True


def _cpu_seconds(group: int) -> float:
    """Returns the processor time of the processes in a group, and of those that they waited for."""
    ticks = 0
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.getpgid(int(name)) == group:
                # The name of the program is in parentheses, and may contain spaces. proc(5)
                fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:15]))
        except (OSError, ValueError):
            continue  # it has ended
    return ticks / os.sysconf("SC_CLK_TCK")


def _end(child: int) -> None:
    """Ends a child and all processes that it started."""
    for kill in (os.killpg, os.kill):
        try:
            kill(child, signal.SIGKILL)
        except ProcessLookupError:
            continue
    os.waitpid(child, 0)


def _serve(serve: Callable[[int], None], pipe: int) -> None:
    """Serves in the child, and ends it."""
    os.setpgid(0, 0)
    # A crash is an expected answer here.
    faulthandler.disable()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _limit_memory()
    try:
        serve(pipe)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(3)
    os._exit(0)


def _run_tasks(tasks: Sequence[Task[Answer]], pipe: int) -> None:
    for task in tasks:
        _send(pipe, (True, task(lambda what: _send(pipe, (False, what)))))


def _answer_questions(answer: Callable[[Question, Progress], Answer], questions: int, pipe: int) -> None:
    while (question := _receive(questions)) is not None:
        _send(pipe, (True, answer(question, lambda what: _send(pipe, (False, what)))))


_GIVEN_LIMITS: list[tuple[int, int]] = []
"""In a child, the limits of its parent's memory."""


def _limit_memory() -> None:
    """Limits memory, so that an excessive allocation fails before the machine runs out."""
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    _GIVEN_LIMITS.append((soft, hard))
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def allow_reserved_memory() -> None:
    """Gives the child that calls it the limits of its parent, before it opens a driver of GPUs. The limit counts all
    private writable mappings, used or not (getrlimit(2)), and no document bounds those that a driver reserves: for
    addresses that the host and its devices share, they may exceed the memory of the machine."""
    if _GIVEN_LIMITS:
        resource.setrlimit(resource.RLIMIT_DATA, _GIVEN_LIMITS[-1])


def _send(pipe: int, message: object) -> None:
    data = pickle.dumps(message)
    data = struct.pack("<Q", len(data)) + data
    while data:
        data = data[os.write(pipe, data) :]


def _receive(pipe: int) -> Any:
    """Returns the next message; None at the end."""
    header = _read(pipe, 8)
    if header is None:
        return None
    data = _read(pipe, struct.unpack("<Q", header)[0])
    if data is None:
        return None
    return pickle.loads(data)


def _read(pipe: int, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        more = os.read(pipe, min(size - len(data), 1 << 20))
        if not more:
            return None
        data += more
    return bytes(data)
