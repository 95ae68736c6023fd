"""Many threads that begin at once, and conditions that hold after a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def at_once(count: int, work: Callable[[int], None]) -> None:
    """Runs `work(number)` in as many threads; none may fail or hang."""
    faults: list[BaseException] = []

    def guarded(index: int) -> None:
        try:
            work(index)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not faults and not any(thread.is_alive() for thread in threads), faults


def is_soon(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Returns whether a condition holds within the time; it is asked again and again."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True
