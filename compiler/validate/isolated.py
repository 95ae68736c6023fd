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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

TIMEOUT = 60.0
"""Seconds of processor time that a task may take between progress messages."""
_IDLE = 0.01
"""A task that uses less than this part of a processor waits; one that competes for processors uses more."""
_SOON = 0.05
"""Seconds until a message is late: only then is the processor time of the child read, since that takes milliseconds."""

Progress = Callable[[str], None]
"""Reports the next step, so that a hang can be attributed to it."""
Answer = TypeVar("Answer")
Task = Callable[[Progress], Answer]
"""A task; its answer must support pickling."""


@dataclass(frozen=True, slots=True)
class Died:
    """The end of a task without an answer: `kind` is crash or hang, `message` describes it, `doing` is the last
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
        for answer in _run_child(tasks[done:], timeout):
            done += 1
            yield answer


def _run_child(tasks: Sequence[Task[Answer]], timeout: float) -> Iterator[Answer | Died]:
    """Yields the answers of the tasks up to the one at which the child dies."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _serve(tasks, writer)
    os.close(writer)
    doing, left = "start", len(tasks)
    try:
        while left:
            if not _is_ready(reader, child, timeout):
                yield Died("hang", f"no answer within {timeout:g} seconds while running {doing}", doing)
                return
            message = _receive(reader)
            if message is None:
                code, child = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0
                assert code < 0, f"the child ended with {code} while running {doing}"
                yield Died("crash", f"{signal.Signals(-code).name} while running {doing}", doing)
                return
            if message[0]:
                left, doing = left - 1, "start"
                yield message[1]
            else:
                doing = message[1]
    finally:
        os.close(reader)
        if child:
            _end(child)


def _is_ready(reader: int, child: int, timeout: float) -> bool:
    """Waits for a message; returns False if the child hangs."""
    if select.select([reader], [], [], min(timeout, _SOON))[0]:
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


def _serve(tasks: Sequence[Task[Answer]], pipe: int) -> None:
    """Runs the tasks in the child, and ends it."""
    os.setpgid(0, 0)
    # A crash is an expected answer here.
    faulthandler.disable()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _limit_memory()
    try:
        for task in tasks:
            _send(pipe, (True, task(lambda what: _send(pipe, (False, what)))))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(3)
    os._exit(0)


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


def _send(pipe: int, message: tuple[bool, object]) -> None:
    data = pickle.dumps(message)
    data = struct.pack("<Q", len(data)) + data
    while data:
        data = data[os.write(pipe, data) :]


def _receive(pipe: int) -> tuple[bool, Any] | None:
    header = _read(pipe, 8)
    if header is None:
        return None
    data = _read(pipe, struct.unpack("<Q", header)[0])
    if data is None:
        return None
    message: tuple[bool, Any] = pickle.loads(data)
    return message


def _read(pipe: int, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        more = os.read(pipe, min(size - len(data), 1 << 20))
        if not more:
            return None
        data += more
    return bytes(data)
