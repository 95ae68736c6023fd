"""Tasks in a child process each of them may kill: a crash or a hang is an answer like any other.

Tasks run one after another in one child, which is a fork of this process and so has whatever they need. Where it dies,
the next one goes on with the next task.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import select
import signal
import struct
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

TIMEOUT = 60.0
"""Seconds that a task may take without telling anything, on a busy machine."""

Tell = Callable[[str], None]
"""Says what is about to be done, so that it is known if it does not end."""
Answer = TypeVar("Answer")
Task = Callable[[Tell], Answer]
"""Gives what can be pickled."""


@dataclass(frozen=True, slots=True)
class Died:
    """The end of a task without an answer: `kind` is crash or hang, `message` says how, and at what."""

    kind: str
    message: str


def run_isolated(tasks: Sequence[Task[Answer]], timeout: float = TIMEOUT) -> list[Answer | Died]:
    """The answers of all tasks, in order."""
    answers: list[Answer | Died] = []
    while len(answers) < len(tasks):
        answers += _run_child(tasks[len(answers) :], timeout)
    return answers


def _run_child(tasks: Sequence[Task[Answer]], timeout: float) -> list[Answer | Died]:
    """The answers of the tasks up to one at which the child dies."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _serve(tasks, writer)
    os.close(writer)
    answers: list[Answer | Died] = []
    doing, hung = "start", False
    while True:
        ready, _, _ = select.select([reader], [], [], timeout)
        if not ready:
            os.kill(child, signal.SIGKILL)
            hung = True
            break
        message = _receive(reader)
        if message is None:
            break
        if message[0]:
            answers.append(message[1])
            doing = "start"
        else:
            doing = message[1]
    os.close(reader)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if len(answers) < len(tasks):
        assert status < 0, f"the child ended with {status} while running {doing}"
        died = "no answer" if hung else signal.Signals(-status).name
        answers.append(Died("hang" if hung else "crash", f"{died} while running {doing}"))
    return answers


def _serve(tasks: Sequence[Task[Answer]], pipe: int) -> None:
    """Runs the tasks in the child, and ends it."""
    # Dying is an answer here.
    faulthandler.disable()
    try:
        for task in tasks:
            _send(pipe, (True, task(lambda what: _send(pipe, (False, what)))))
    except BaseException:
        traceback.print_exc()
        os._exit(3)
    os._exit(0)


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
    data = b""
    while len(data) < size:
        more = os.read(pipe, size - len(data))
        if not more:
            return None
        data += more
    return data
