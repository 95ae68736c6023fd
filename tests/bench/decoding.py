"""Language models: the rates of decoding and of prefill, beside llama.cpp, OpenVINO and ONNX Runtime GenAI.

    python tests/bench/language_files.py llama-1.1b q8_0 -o llama.gguf
    nacre compile llama.gguf -o llama.so
    python tests/bench/decoding.py llama.so --context 128 1024 --threads 1 --peer llama.gguf

`--openvino f32` adds OpenVINO, which reads the same GGUF file, with activations in f32 or bf16. `--onnxruntime FOLDER`
adds ONNX Runtime GenAI with a folder that its model builder wrote (`peers/onnxruntime_language.py`).

Decoding reads every weight once for each token, so its bound is the time in which the machine reads them. Each round
measures the read rate too. Calls are interleaved, and every figure is the best of its rounds.
Several artifacts are compared with one another and with these peers. With one thread, times are those of the CPU, so
that other work on the machine does not count; with several threads, they are those of the clock.

`--rows 8` also decodes one token of 8 texts in a call, for artifacts compiled with `--set page=32`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Protocol

import nacre
import numpy as np
from machine import Probe, pinned
from measure import Contender, Plan, interleave
from nacre.compiler.weights.gguf_header import read_header
from peers.llama_cpp_peer import LlamaCpp, Tokens

PREFILL = 512
LLAMA = "llama.cpp"
PAGE = 32
"""Tokens of a page of the artifacts for several texts."""
ROW = "{:<16} {:<20} {:>9} {:>9} {:>6} {:>12}"
PEER_COLUMNS = " {:>14} {:>6}"
TABLE = "token_embd.weight"
"""The table of tokens in a GGUF file, which a call reads whole only if it is also the matrix of the logits."""
Call = Callable[[], float]


class Peer(Protocol):
    """A loaded model with a cache for the tokens of one text."""

    vocabulary: int

    def keep(self, tokens: int) -> None: ...
    def append(self, tokens: Sequence[int] | Tokens, at: int) -> None: ...


Loader = Callable[[int, int], Peer]
"""Loads a model with a cache of a number of tokens, for a number of threads."""


class Timed:
    """Measures seconds by the clock that fits the number of threads."""

    def __init__(self, threads: int, steps: int) -> None:
        self.clock = time.thread_time if threads == 1 else time.perf_counter
        self.steps = steps

    def once(self, call: Callable[[], object]) -> float:
        start = self.clock()
        call()
        return self.clock() - start

    def best(self, call: Callable[[int], object]) -> float:
        """Returns the shortest of several calls, which take their number."""
        return min(self.once(lambda i=i: call(i)) for i in range(self.steps))  # type: ignore[misc]  # i is bound early


def random_tokens(count: int, vocabulary: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.random.default_rng(0).integers(0, vocabulary, count).astype(np.int32)


def unread_bytes(path: Path | None) -> int:
    """Returns the bytes of a GGUF file that decoding does not read, about as many as in an artifact."""
    tensors = {} if path is None else {tensor.name: tensor.bytes for tensor in read_header(path).tensors}
    return tensors[TABLE] if "output.weight" in tensors else 0


def vocabulary_of(model: nacre.Model) -> int:
    size = model.entries["decode"].results[0].shape[0]
    assert isinstance(size, int)
    return size


def new_session(model: nacre.Model, capacity: int) -> nacre.Session:
    """Returns a session for one text; the pool of pages for several texts, if there is one, is as small as possible."""
    pages = {"P": 1} if "decode_rows" in model.entries else {}
    return model.session(S=capacity, **pages)


def fill_states(session: nacre.Session) -> None:
    """Writes random keys and values, which take the time of any others, instead of computing those of tokens."""
    random = np.random.default_rng(0)
    for name, state in session.states.items():
        if np.ndim(state):
            session.states[name] = random.integers(-8, 8, np.shape(state)).astype(np.asarray(state).dtype)


def decode(model: nacre.Model, context: int, timed: Timed) -> Call:
    """Measures one token with `context` tokens before it."""
    session = new_session(model, context + timed.steps)
    tokens = random_tokens(context + timed.steps, vocabulary_of(model))
    fill_states(session)
    length = next(name for name in session.states if name.endswith("length"))

    def call() -> float:
        session.states[length] = np.int64(context)
        return timed.best(lambda i: session.entries["decode"](tokens[context + i : context + i + 1]))

    return call


def decode_rows(model: nacre.Model, context: int, rows: int, timed: Timed) -> Call:
    """Measures one token of each of `rows` texts of `context` tokens."""
    pages = -(-(context + timed.steps) // PAGE)
    session = model.session(S=1, P=pages * rows)
    table = np.arange(pages * rows, dtype=np.int32).reshape(rows, pages)
    tokens = random_tokens(context + timed.steps * rows, vocabulary_of(model))
    step = session.entries["decode_rows"]
    fill_states(session)

    def call() -> float:
        return timed.best(
            lambda i: step(tokens[context + i * rows :][:rows], np.full(rows, context + i, np.int32), table)
        )

    return call


def prefill(model: nacre.Model, timed: Timed) -> Call:
    session = new_session(model, PREFILL)
    tokens, entry = random_tokens(PREFILL, vocabulary_of(model)), session.entries["prefill"]

    def call() -> float:
        session.reset()
        return timed.once(lambda: entry(tokens))

    return call


def peer_decode(load: Loader, context: int, threads: int, timed: Timed) -> Call:
    made = load(context + timed.steps, threads)
    tokens = random_tokens(context + timed.steps, made.vocabulary)
    for first in range(0, context, PREFILL):
        made.append(tokens[first : min(context, first + PREFILL)], first)

    def call() -> float:
        made.keep(context)
        return timed.best(lambda i: made.append(tokens[context + i : context + i + 1], context + i))

    return call


def peer_rows(path: Path, context: int, rows: int, threads: int, timed: Timed) -> Call:
    made = LlamaCpp(path, context + timed.steps, threads, rows)
    tokens = random_tokens(context + timed.steps * rows, made.vocabulary)
    for first in range(0, context, PREFILL):
        made.append(tokens[first : min(context, first + PREFILL)], first)
    made.share()

    def call() -> float:
        made.keep(context)
        return timed.best(lambda i: made.append_rows(tokens[context + i * rows :][:rows], context + i))

    return call


def peer_prefill(path: Path, threads: int, timed: Timed) -> Call:
    made = LlamaCpp(path, PREFILL, threads)
    tokens = random_tokens(PREFILL, made.vocabulary)

    def call() -> float:
        made.keep(0)
        return timed.once(lambda: made.append(tokens, 0))

    return call


def peer_loaders(file: Path | None, openvino: str | None, folder: Path | None) -> dict[str, Loader]:
    """Returns the loaders of the peers that the options name. Their packages are imported only then."""
    loaders: dict[str, Loader] = {}
    if file is not None:
        loaders[LLAMA] = lambda capacity, threads: LlamaCpp(file, capacity, threads)
    if openvino is not None:
        assert file is not None, "--openvino reads the file of --peer"
        made = importlib.import_module("peers.openvino_language").OpenVino
        loaders["OpenVINO"] = lambda capacity, threads: made(file, threads, openvino)
    if folder is not None:
        genai = importlib.import_module("peers.onnxruntime_language").OnnxRuntime
        loaders["ONNX Runtime"] = lambda capacity, threads: genai(folder, capacity, threads)
    return loaders


def main() -> None:
    parser = argparse.ArgumentParser(description="the rates of compiled language models")
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--context", type=int, nargs="*", default=[128, 1024])
    parser.add_argument("--rows", type=int, default=0, help="texts that are decoded together")
    parser.add_argument("--no-prefill", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8, help="tokens of a round")
    parser.add_argument("--huge-pages", action="store_true", help="weights on large pages")
    parser.add_argument("--peer", type=Path, metavar="FILE.gguf", help="llama.cpp with this file")
    parser.add_argument("--openvino", choices=["f32", "bf16"], help="OpenVINO with the file of --peer")
    parser.add_argument("--onnxruntime", type=Path, metavar="FOLDER", help="ONNX Runtime GenAI with this folder")
    options = parser.parse_args()
    threads, file = options.threads, options.peer
    cores = sorted(os.sched_getaffinity(0))[:threads]
    timed = Timed(threads, options.steps)
    loaders = peer_loaders(file, options.openvino, options.onnxruntime)
    # llama.cpp configures the tile registers of AMX once for each thread, so that each peer needs a thread of its own.
    probe = Probe(cores)
    with pinned(cores), ExitStack() as stack:
        pools = {name: stack.enter_context(ThreadPoolExecutor(1)) for name in loaders}

        def apart(name: str, prepare: Callable[[], Call]) -> Call:
            """Returns a call of a peer, prepared and run on its thread."""
            call = pools[name].submit(prepare).result()
            return lambda: pools[name].submit(call).result()

        def llama_alone(prepare: Callable[[Path], Call]) -> dict[str, Call]:
            return {} if file is None else {LLAMA: apart(LLAMA, lambda: prepare(file))}

        loaded = {
            path.stem: nacre.load(path, threads=threads, huge_pages=options.huge_pages) for path in options.models
        }
        cases: list[tuple[str, int, dict[str, Call], dict[str, Call]]] = []
        for context in options.context:
            calls = {name: decode(model, context, timed) for name, model in loaded.items()}
            others = {
                name: apart(name, partial(peer_decode, load, context, threads, timed)) for name, load in loaders.items()
            }
            cases.append((f"decode at {context}", 1, calls, others))
            if options.rows:
                calls = {name: decode_rows(model, context, options.rows, timed) for name, model in loaded.items()}
                others = llama_alone(
                    partial(peer_rows, context=context, rows=options.rows, threads=threads, timed=timed)
                )
                cases.append((f"{options.rows} texts at {context}", options.rows, calls, others))
        if not options.no_prefill:
            calls = {name: prefill(model, timed) for name, model in loaded.items()}
            others = llama_alone(partial(peer_prefill, threads=threads, timed=timed))
            cases.append((f"prefill of {PREFILL}", PREFILL, calls, others))

        def read_rate() -> float:
            """Measures the read rate of huge pages, or of the first artifact."""
            return probe.bandwidth(True) if options.huge_pages else probe.file_bandwidth(options.models[0])

        header = ROW.format("call", "of", "ms", "tokens/s", "GB/s", "of read rate")
        print(header + "".join(PEER_COLUMNS.format(name, "ratio") for name in loaders))
        for case, tokens, calls, others in cases:
            contenders = [
                Contender(name, call, list, lambda count, call=call: count * call())
                for name, call in {**calls, **others}.items()
            ]
            times = interleave(contenders, Plan(options.rounds, 0), read_rate)
            least, rate = times.least(), max(times.peaks)
            for name in calls:
                seconds = least[name]
                reached = (loaded[name].describe()["weights"]["bytes"] - unread_bytes(file)) / seconds / 1e9
                read = ("", "") if tokens == PREFILL else (f"{reached:.1f}", f"{reached / rate:.0%} of {rate:.1f}")
                row = ROW.format(case, name, f"{seconds * 1e3:.2f}", f"{tokens / seconds:.0f}", *read)
                theirs = [(f"{least[peer] * 1e3:.2f}", f"{least[peer] / seconds:.2f}") for peer in others]
                print(row + "".join(PEER_COLUMNS.format(*each) for each in theirs), flush=True)


if __name__ == "__main__":
    main()
