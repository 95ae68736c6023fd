"""The fork servers of this process, one for each kind of worker, and the children that they fork.

A server starts before its first job, since its imports take a while.
"""

from __future__ import annotations

import atexit
import os
import threading

from .child import Child
from .forking import ForkServer

_servers: dict[str, ForkServer] = {}
_lock = threading.Lock()


def prestart(worker: str) -> None:
    """Starts the server for a kind of worker, unless one is running."""
    with _lock:
        _server(worker)


def take_child(worker: str) -> Child:
    """Returns a new child; its user closes it."""
    with _lock:
        try:
            return Child(_server(worker))
        except OSError:
            # Another process killed the server.
            _servers.pop(worker).close()
            return Child(_server(worker))


def _server(worker: str) -> ForkServer:
    if worker not in _servers:
        _servers[worker] = ForkServer(worker)
    return _servers[worker]


@atexit.register
def end_waiting() -> None:
    with _lock:
        while _servers:
            _servers.popitem()[1].close()


def _renew_lock() -> None:
    """Replaces the lock: another thread may have held it at the fork."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
