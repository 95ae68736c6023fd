"""Children that start before there is anything for them to do, since what they import takes a while.

A child that nobody took waits for the next build of this process, or for its end.
"""

from __future__ import annotations

import atexit
import os
from collections import defaultdict, deque

from .child import Child

_waiting: defaultdict[str, deque[Child]] = defaultdict(deque)


def start_ahead(worker: str) -> None:
    """Lets a child of the kind start, unless one waits already."""
    if not _waiting[worker]:
        _waiting[worker].append(Child(worker))


def take_child(worker: str) -> Child:
    """One that was started ahead, or a new one; whoever takes it closes it."""
    try:
        return _waiting[worker].popleft()
    except IndexError:
        return Child(worker)


@atexit.register
def end_waiting() -> None:
    for children in _waiting.values():
        while children:
            children.popleft().close()


# Two processes cannot talk to one child: those that wait belong to whoever started them.
os.register_at_fork(after_in_child=_waiting.clear)
