"""Language models: the rate of decoding and of prefill, and the part of the machine's read rate that decoding reaches.

    python tests/bench/decoding.py model.so --context 128 1024 --threads 1 [--peer model.gguf]

Decoding reads every weight once for each token, so its bound is the time in which the machine reads them. The read rate
is measured in the same process between the calls, and every figure is the best of its rounds. `--peer` times
llama-cpp-python with the same file in the same rounds, if it is installed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nacre
import numpy as np
from machine import Probe, pinned
from rich.console import Console
from rich.table import Table

PREFILL = 512


def best_of(rounds: int, calls: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Calls each in turn, and returns the figures of all rounds."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            found[name].append(call())
    return found


def ours(model: nacre.Model, context: int, steps: int) -> Callable[[], float]:
    """Returns a function that gives the seconds of one token with this many tokens before it."""
    session = model.session(S=context + steps)
    vocabulary = session.entries["decode"].results[0].shape[0]
    assert isinstance(vocabulary, int)
    rng = np.random.default_rng(0)
    before = rng.integers(0, vocabulary, context).astype(np.int32)
    for part in np.array_split(before, -(-context // PREFILL)):
        session.entries["prefill"](part)
    length = next(name for name in session.states if name.endswith("length"))

    def call() -> float:
        session.states[length] = np.int64(context)
        least = float("inf")
        for token in rng.integers(0, vocabulary, steps).astype(np.int32):
            start = time.perf_counter()
            session.entries["decode"](np.array([token]))
            least = min(least, time.perf_counter() - start)
        return least

    return call


def prefill(model: nacre.Model) -> Callable[[], float]:
    session = model.session(S=PREFILL)
    tokens = np.arange(PREFILL, dtype=np.int32) % 256
    entry = session.entries["prefill"]

    def call() -> float:
        session.reset()
        start = time.perf_counter()
        entry(tokens)
        return time.perf_counter() - start

    return call


def peer(path: Path, context: int, steps: int, threads: int) -> Callable[[], float] | None:
    """The same for llama-cpp-python; None if it is not installed."""
    try:
        llama_cpp: Any = importlib.import_module("llama_cpp")
    except ImportError:
        return None
    made = llama_cpp.Llama(str(path), n_ctx=context + steps, n_threads=threads, n_threads_batch=threads, verbose=False)
    tokens = np.random.default_rng(0).integers(0, made.n_vocab(), context + steps).tolist()
    made.eval(tokens[:context])

    def call() -> float:
        made.n_tokens = context
        least = float("inf")
        for token in tokens[context:]:
            start = time.perf_counter()
            made.eval([token])
            least = min(least, time.perf_counter() - start)
        return least

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description="the rates of a compiled language model")
    parser.add_argument("model", type=Path)
    parser.add_argument("--context", type=int, nargs="+", default=[128, 1024])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8, help="tokens of a round")
    parser.add_argument("--huge-pages", action="store_true", help="weights on large pages")
    parser.add_argument("--peer", type=Path, metavar="FILE.gguf")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[: options.threads]
    table = Table(box=None)
    for title in ("call", "ms", "tokens/s", "GB/s", "of read rate", "llama.cpp ms", "ratio"):
        table.add_column(title, justify="left" if title == "call" else "right")
    with pinned(cores):
        probe = Probe(cores)
        model = nacre.load(options.model, threads=options.threads, huge_pages=options.huge_pages)
        weights = model.describe()["weights"]["bytes"]
        for context in options.context:
            calls = {
                "read": lambda: probe.bandwidth(options.huge_pages),
                "ours": ours(model, context, options.steps),
            }
            other = peer(options.peer, context, options.steps, options.threads) if options.peer else None
            if other is not None:
                calls["peer"] = other
            found = best_of(options.rounds, calls)
            seconds, rate = min(found["ours"]), max(found["read"])
            reached = weights / seconds / 1e9
            row = [f"decode at {context}", f"{seconds * 1e3:.2f}", f"{1 / seconds:.0f}", f"{reached:.1f}"]
            row.append(f"{reached / rate:.0%} of {rate:.1f}")
            if "peer" in found:
                row += [f"{min(found['peer']) * 1e3:.2f}", f"{min(found['peer']) / seconds:.2f}"]
            table.add_row(*row)
        seconds = min(best_of(options.rounds, {"prefill": prefill(model)})["prefill"])
        table.add_row(f"prefill of {PREFILL}", f"{seconds * 1e3:.0f}", f"{PREFILL / seconds:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
