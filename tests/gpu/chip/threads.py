"""Two sessions on two threads: all results are those of one thread, bit by bit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

from .cases import Packed, arrays_of, call, load
from .compare import same_bits


def check_threads(folder: Path, packed: Packed, device: str, rounds: int) -> dict[str, Any]:
    given = [(case.name, case.entry, inputs) for case, inputs, _ in arrays_of(folder, packed) if not case.error]
    models = [load(folder, packed.name, device) for _ in range(2)]
    expected = [call(models[0], entry, inputs) for _, entry, inputs in given]
    failures: list[str] = []
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
                        failures.append(f"{name}: thread {number} has other results in round {round}")
        except Exception as error:
            failures.append(f"thread {number}: {type(error).__name__}: {error}")

    threads = [Thread(target=work, args=(number,)) for number in range(len(models))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"cases": len(given) * rounds * len(models), "failures": failures}
