"""Two sessions on two threads: all results are those of one thread, bit by bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Barrier, Thread

from .cases import Packed, arrays_of, call, load
from .compare import same_bits
from .records import Record, began, ended


def check_threads(folder: Path, packed: Packed, device: str, rounds: int, first: int) -> Iterator[Record]:
    """The calls of one entry with one set of inputs, by both threads in all rounds, are a case. All run together, so
    that none is left for another process."""
    if first:
        return
    given = [(case.name, case.entry, inputs) for case, inputs, _ in arrays_of(folder, packed) if not case.error]
    models = [load(folder, packed.name, device) for _ in range(2)]
    expected = [call(models[0], entry, inputs) for _, entry, inputs in given]
    failures: dict[str, str] = {}
    start = Barrier(len(models))

    def work(number: int) -> None:
        start.wait()
        try:
            for round in range(rounds):
                order: Sequence[int] = range(len(given))
                for place in order if (round + number) % 2 == 0 else reversed(order):
                    name, entry, inputs = given[place]
                    results = call(models[number], entry, inputs)
                    if not all(map(same_bits, results, expected[place])):
                        failures[name] = f"thread {number} has other results in round {round}"
        except Exception as error:
            failures[given[0][0]] = f"thread {number}: {type(error).__name__}: {error}"

    yield began(given[0][0])
    threads = [Thread(target=work, args=(number,)) for number in range(len(models))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, _, _ in given:
        yield ended(name, failures.get(name))
