"""Many threads that begin at once."""

from __future__ import annotations

import threading
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
