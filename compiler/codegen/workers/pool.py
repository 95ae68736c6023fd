"""The fork servers of this process, one for each kind of worker, and the children that they fork.

A server starts before its first job, since its imports take a while. A child that has finished a build waits for the
next one: a new child touches thousands of pages that it shares with its server, which takes as long as compiling a
small kernel. An object depends on its text alone, and not on earlier jobs of its child.

    take_child --> jobs of a build --> give_back --> idle --> take_child
                         |                            |
                   a failure: closed        unused, or too old: closed
"""

from __future__ import annotations

import atexit
import os
import resource
import threading
import time
from collections.abc import Sequence

from .child import Child
from .forking import ForkServer
from .messages import IDLE_SECONDS

_JOBS = 400
"""The number of jobs after which a child makes room for another one: its MLIR context retains types and attributes."""
_FRESH_SECONDS = IDLE_SECONDS / 2
"""Seconds for which an idle child is used: later it may be about to end."""

_servers: dict[str, ForkServer] = {}
_idle: dict[str, list[tuple[Child, float]]] = {}
"""The idle children by kind of worker, and the times since when they are idle, on the monotonic clock."""
_lock = threading.Lock()


def prestart(worker: str) -> None:
    """Starts the server for a kind of worker, unless one is running."""
    with _lock:
        _server(worker)


def take_child(worker: str) -> Child:
    """Returns a child that does no other job; its user closes it, or gives it back."""
    with _lock:
        if (idle := _take_idle(worker)) is not None:
            return idle
        try:
            return Child(_server(worker))
        except OSError:
            # Another process killed the server.
            _servers.pop(worker).close()
            return Child(_server(worker))


def give_back(worker: str, children: Sequence[Child]) -> None:
    """Keeps children that have finished their jobs for further ones; no more than there are processors."""
    with _lock:
        idle = _idle.setdefault(worker, [])
        for child in children:
            if child.jobs < _JOBS and len(idle) < (os.cpu_count() or 1):
                idle.append((child, time.monotonic()))
            else:
                child.close()


def _take_idle(worker: str) -> Child | None:
    idle = _idle.get(worker, [])
    while idle:
        child, since = idle.pop()
        is_fresh = time.monotonic() - since < _FRESH_SECONDS
        if is_fresh and child.is_alive and child.limit == resource.getrlimit(resource.RLIMIT_DATA):
            return child
        child.close()
    return None


def end_idle() -> None:
    """Ends the children that wait for a job."""
    for children in _idle.values():
        for child, _ in children:
            child.close()
    _idle.clear()


def _server(worker: str) -> ForkServer:
    if worker not in _servers:
        _servers[worker] = ForkServer(worker)
    return _servers[worker]


@atexit.register
def end_waiting() -> None:
    with _lock:
        end_idle()
        while _servers:
            _servers.popitem()[1].close()


def _begin_fork() -> None:
    """Replaces the lock, since another thread may have held it at the fork, and leaves the idle children to the
    parent."""
    global _lock
    _lock = threading.Lock()
    end_idle()


os.register_at_fork(after_in_child=_begin_fork)
