"""Fork servers: a process imports what code generation needs once, and forks a child for every build.

A child then costs a fork in place of half a second of imports. It starts from the state of a new process, so that no
object depends on the builds before it. A child has two connections:

    builder --- jobs, answers, output -------------------------- child
       |                                                           | forked by
       +------ lifeline: closed by the builder, it ends the child; server
               when the child ends, it carries the exit status

Forks of the builder share its servers. A server exits when no process is left that could request a child.
"""

from __future__ import annotations

import gc
import os
import resource
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import NoReturn

from ....dialect.lazy_dataclass import dataclass
from ...base.environment import BLAS_THREADS

FORK = "--fork"
"""The argument that makes a worker a fork server. Its standard input is then the socket for requests."""
_LIMIT = struct.Struct("<qq")
_STATUS = struct.Struct("<i")


def worker_command(worker: str) -> list[str]:
    # -P: modules in the user's current folder do not shadow ours.
    return [sys.executable, "-P", "-X", "faulthandler", "-m", worker]


class ForkServer:
    """The builder's side of a fork server. The server has the environment of its start."""

    def __init__(self, worker: str) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the server)
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Other threads do not survive a fork, and code generation multiplies no matrices.
        environment = {**os.environ, BLAS_THREADS: "1"}
        with theirs:
            self._process = subprocess.Popen(
                [*worker_command(worker), FORK],
                stdin=theirs.fileno(),
                stdout=self._output,
                stderr=self._output,
                env=environment,
            )
        self._owner, self._asked = os.getpid(), False

    def fork(self, jobs: int, answers: int, output: int) -> socket.socket:
        """Requests a child that reads and writes these descriptors; returns its lifeline. Raises OSError if the server
        is dead."""
        line, theirs = socket.socketpair()
        # A child may use as much memory as this process.
        limit = _LIMIT.pack(*resource.getrlimit(resource.RLIMIT_DATA))
        with theirs:
            try:
                socket.send_fds(self._requests, [limit], [jobs, answers, output, theirs.fileno()])
            except OSError:
                line.close()
                raise
        self._asked = True
        return line

    def output(self) -> str:
        """Returns the server's own output, such as the reason why it could not start."""
        return os.pread(self._output.fileno(), 1 << 24, 0).decode(errors="replace")

    def close(self) -> None:
        """Ends the server and its children. In a fork of the process that started it, only releases it."""
        if self._owner == os.getpid():
            if self._asked:
                # Forks of this process may hold the socket too.
                with suppress(OSError):
                    self._requests.shutdown(socket.SHUT_RDWR)
            else:
                self._process.kill()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._requests.close()
        self._output.close()


def read_status(line: socket.socket) -> int | None:
    """Returns the exit status of a child that has ended, negative for a signal; None if the server is dead."""
    try:
        data = line.recv(_STATUS.size, socket.MSG_WAITALL)
    except ConnectionError:
        return None
    return int(_STATUS.unpack(data)[0]) if len(data) == _STATUS.size else None


# --- the server's side ---


@dataclass(frozen=True, slots=True)
class _Forked:
    """A child; `line` is its lifeline, and `end` the read end of a pipe that closes with the child."""

    process: int
    line: socket.socket
    end: int


def serve_forks(serve: Callable[[], int]) -> int:
    """Forks children that run `serve`, until no process is left that could request one."""
    requests = socket.socket(fileno=0)
    children: set[_Forked] = set()
    # A garbage collection would write to memory that is shared with the children.
    gc.collect()
    gc.freeze()
    while True:
        with selectors.DefaultSelector() as selector:
            selector.register(requests, selectors.EVENT_READ)
            for child in children:
                selector.register(child.line, selectors.EVENT_READ, child)
                selector.register(child.end, selectors.EVENT_READ, child)
            ready = selector.select()
        for ended in {key.data for key, _ in ready if key.data is not None}:
            _end(ended)
            children.remove(ended)
        if any(key.data is None for key, _ in ready):
            limit, descriptors, _, _ = socket.recv_fds(requests, _LIMIT.size, 4)
            if not limit:
                break
            children.add(_fork(serve, _LIMIT.unpack(limit), descriptors, children))
    for child in children:
        _end(child)
    return 0


def _fork(
    serve: Callable[[], int], limit: tuple[int, int], descriptors: Sequence[int], others: Collection[_Forked]
) -> _Forked:
    *standard, line = descriptors
    end, held = os.pipe()
    process = os.fork()
    if process == 0:
        for other in others:
            os.close(other.line.fileno())
            os.close(other.end)
        os.close(line)
        os.close(end)
        _become_child(serve, limit, standard)
    for descriptor in (*standard, held):
        os.close(descriptor)
    return _Forked(process, socket.socket(fileno=line), end)


def _become_child(serve: Callable[[], int], limit: tuple[int, int], standard: Sequence[int]) -> NoReturn:
    status = 1
    try:
        for number, descriptor in enumerate(standard):
            os.dup2(descriptor, number)
            os.close(descriptor)
        if limit != resource.getrlimit(resource.RLIMIT_DATA):
            with suppress(ValueError):
                resource.setrlimit(resource.RLIMIT_DATA, limit)
        status = serve()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        # The child must not return into the server's loop.
        os._exit(status)


def _end(child: _Forked) -> None:
    """Ends a child that has exited, or that no process waits for any more."""
    os.kill(child.process, signal.SIGKILL)
    _, status = os.waitpid(child.process, 0)
    with suppress(OSError):
        child.line.sendall(_STATUS.pack(os.waitstatus_to_exitcode(status)))
    child.line.close()
    os.close(child.end)
