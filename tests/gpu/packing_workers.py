"""Processes that make the parts of what travels to a machine with a GPU, several at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Generic, TypeVar

T = TypeVar("T")


def end_with_parent() -> None:
    """Ends this process when the one that has started it ends, by a signal too. Nothing else tells a worker that waits
    for its next part."""
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()


class _Worker(Generic[T]):
    """A process that makes parts, one after another. A part that ends the process is a failure of that part alone."""

    def __init__(self, make: Callable[[int], T], done: Callable[[int, T | str], None]) -> None:
        self.make, self.done = make, done
        self.pool = self.start()

    def start(self) -> ProcessPoolExecutor:
        # A process that is forked would share the compiler's children with its parent.
        return ProcessPoolExecutor(1, get_context("spawn"), end_with_parent)

    def run(self, numbers: Iterator[int]) -> None:
        try:
            for number in numbers:
                self.done(number, self.try_part(number))
        finally:
            self.pool.shutdown()

    def try_part(self, number: int) -> T | str:
        try:
            return self.pool.submit(self.make, number).result()
        except BrokenProcessPool:
            self.pool = self.start()
            return "its process has ended"
        except Exception as error:
            return f"{type(error).__name__}: {error}"


def make_parts(make: Callable[[int], T], count: int, jobs: int, done: Callable[[int, T | str], None]) -> None:
    """Calls `make`, which other processes can import, with the numbers below `count`, as many at a time as there are
    `jobs`; `done` receives each number with what is made, or with the reason why nothing is."""
    numbers = iter(range(count))
    workers = [_Worker(make, done) for _ in range(jobs)]
    with ThreadPoolExecutor(jobs) as threads:
        list(threads.map(lambda worker: worker.run(numbers), workers))
