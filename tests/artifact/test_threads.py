"""Calls that use several threads: the same bits as with one, from many threads and sessions, after a fork, unloaded."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from at_once import at_once, is_soon
from c_models import build, zoo
from nacre.runtime.loader import ArgumentError, ArtifactError, load

Floats = npt.NDArray[np.float32]
CPUS = len(os.sched_getaffinity(0))
SEVERAL = pytest.mark.skipif(CPUS < 2, reason="needs two CPUs")
ROWS = np.random.default_rng(5).standard_normal((500, 64), np.float32)
"""Some milliseconds of work, of which every part is worth a thread."""


@pytest.fixture(scope="module")
def expected(zoo_file: Path) -> Floats:
    result: Floats = load(zoo_file, threads=1).entries["rows"](ROWS)
    return result


def in_process(code: str, *arguments: object, **environment: str) -> str:
    """What a process prints that runs the code after some imports."""
    head = """
import ctypes, gc, os, sys, threading
import numpy as np
from nacre.runtime.loader import load
def tasks():
    return len(os.listdir("/proc/self/task"))
x = np.ones((500, 64), np.float32)
alone = tasks()
"""
    command = [sys.executable, "-c", head + code, *map(str, arguments)]
    # Numpy's own threads would be counted.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", **environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("threads", range(9))
def test_any_number_of_threads_gives_the_same_bits(zoo_file: Path, expected: Floats, threads: int) -> None:
    rows = load(zoo_file, threads=threads).entries["rows"]
    for count in (500, 499, 64, 3, 2, 1, 0):
        assert np.array_equal(rows(ROWS[:count]), expected[:count])


def test_many_sessions_in_many_threads(zoo_file: Path, tmp_path: Path, expected: Floats) -> None:
    files = [zoo_file, build(zoo("other"), tmp_path / "other.so")]
    shared = [load(file, threads=2) for file in files]

    def work(index: int) -> None:
        for i in range(10):
            model = shared[i % 2] if i % 3 else load(files[(index + i) % 2], threads=2 + index)
            assert np.array_equal(model.entries["rows"](ROWS), expected)

    at_once(6, work)


def within(child: int, seconds: float) -> int:
    """The exit status of a child, which is killed where it hangs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")


# Python warns of the fork, rightly in general.
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_fork_in_the_middle(zoo_file: Path, expected: Floats) -> None:
    rows = load(zoo_file, threads=2).entries["rows"]
    rows(ROWS)
    over = threading.Event()

    def work(index: int) -> None:
        while not over.is_set():
            assert np.array_equal(rows(ROWS), expected)

    callers = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for caller in callers:
        caller.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                fine = all(np.array_equal(rows(ROWS), expected) for _ in range(5))
                os._exit(0 if fine else 1)
            assert within(child, 20) == 0
    finally:
        over.set()
        for caller in callers:
            caller.join()
    assert np.array_equal(rows(ROWS), expected)


@SEVERAL
def test_workers_are_as_many_as_asked_for_and_shared_by_artifacts(zoo_file: Path, tmp_path: Path) -> None:
    other = build(zoo("other"), tmp_path / "other.so")
    code = """
first, second = load(sys.argv[1], threads=2), load(sys.argv[2], threads=2)
counts = []
for model in (first, second, first):
    for _ in range(5):
        model.entries["rows"](x)
    counts.append(tasks() - alone)
del first, model
gc.collect()  # the worker that the first library started is gone with it, and the second starts one
for _ in range(5):
    second.entries["rows"](x)
print(*counts, tasks() - alone)
"""
    assert in_process(code, zoo_file, other) == "1 1 1 1"


def test_confined_to_one_cpu(zoo_file: Path) -> None:
    code = """
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
model = load(sys.argv[1], threads=4)
for _ in range(5):
    model.entries["rows"](x)
print(tasks() - alone)
"""
    assert in_process(code, zoo_file) == "0"


@SEVERAL
def test_workers_run_where_the_session_may(zoo_file: Path) -> None:
    """Even if a thread that is confined to one CPU makes the first call."""
    code = """
model = load(sys.argv[1], threads=2)
before = set(os.listdir("/proc/self/task"))
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
for _ in range(5):
    model.entries["rows"](x)
(worker,) = set(os.listdir("/proc/self/task")) - before
print(len(os.sched_getaffinity(int(worker))) > 1)
"""
    assert in_process(code, zoo_file) == "True"


def test_sessions_come_and_go(zoo_file: Path) -> None:
    code = """
most = 0
for i in range(1000):
    model = load(sys.argv[1], threads=2)
    if i % 20 == 0:
        model.entries["rows"](x)
    most = max(most, tasks() - alone)
del model
gc.collect()
print(most <= 4, tasks() - alone)
"""
    assert in_process(code, zoo_file) == "True 0"


BY_HAND = """
class Options(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_uint32), ("threads", ctypes.c_uint32), ("weights", ctypes.c_char_p))
class Call(ctypes.Structure):
    _fields_ = [(n, ctypes.c_void_p) for n in ("session", "entry", "inputs", "outputs", "dims", "workspace", "bytes")]
class Artifact:
    def __init__(self):
        self.library = ctypes.CDLL(sys.argv[1])
        self.library.nacre_get_api.restype = ctypes.c_void_p
        self.table = ctypes.cast(self.library.nacre_get_api(1) + 8, ctypes.POINTER(ctypes.c_void_p))
    def function(self, number, *arguments):
        return ctypes.CFUNCTYPE(ctypes.c_int32, *arguments)(self.table[number])
    def session(self):
        made = ctypes.c_void_p()
        options = Options(ctypes.sizeof(Options), 2, None)
        create = self.function(3, ctypes.c_void_p, ctypes.c_void_p)
        assert create(ctypes.addressof(options), ctypes.addressof(made)) == 0
        return made
    def call(self, session, name, count, y=None):
        entry = self.function(2, ctypes.c_char_p)(name)
        y, dims = np.zeros_like(x) if y is None else y, ctypes.c_int64(count)
        inputs, outputs = (ctypes.c_void_p * 1)(x.ctypes.data), (ctypes.c_void_p * 1)(y.ctypes.data)
        places = [ctypes.addressof(p) for p in (inputs, outputs, dims)]
        frame = Call(session, entry, *places, None, 0)
        return self.function(10, ctypes.c_void_p)(ctypes.addressof(frame))
"""

UNLOAD = """
import _ctypes
for turn in range(16):
    artifact = Artifact()
    session = artifact.session()
    assert [artifact.call(session, b"rows", 500) for _ in range(3)] == [0, 0, 0]
    if turn % 2:
        artifact.function(4, ctypes.c_void_p)(session)
    _ctypes.dlclose(artifact.library._handle)
    assert not any("zoo.so" in line for line in open("/proc/self/maps")), "it is still loaded"
print(tasks() - alone)
"""

FORK_IN_A_CALL = """
import time
artifact = Artifact()
session = artifact.session()
assert artifact.function(5, ctypes.c_void_p, ctypes.c_int64)(session, 64) == 0
x[:], y = 0, np.zeros_like(x)
other = threading.Thread(target=artifact.call, args=(session, b"wait", 0, y))
other.start()
while y[0, 0] != -1:
    time.sleep(0.001)
child = os.fork()
if child == 0:
    x[:] = 1
    os._exit(artifact.call(session, b"wait", 0))
print(artifact.call(session, b"wait", 0), os.waitpid(child, 0)[1])
x[:] = 1
other.join()
"""


def test_unloading(zoo_file: Path) -> None:
    """Even with a session that nobody destroyed."""
    assert in_process(BY_HAND + UNLOAD, zoo_file) == "0"


def test_a_session_that_is_busy_is_not_so_in_the_child_of_a_fork(zoo_file: Path) -> None:
    assert in_process(BY_HAND + FORK_IN_A_CALL, zoo_file) == "4 0"


def test_leaving_in_the_middle_of_calls(zoo_file: Path) -> None:
    code = """
model = load(sys.argv[1], threads=2)
def work():
    while True:
        model.entries["rows"](x)
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
model.entries["rows"](x)
print("left")
"""
    for _ in range(3):
        assert in_process(code, zoo_file) == "left"


@SEVERAL
def test_the_variable_says_how_many(zoo_file: Path) -> None:
    code = """
model = load(sys.argv[1])
for _ in range(5):
    model.entries["rows"](x)
print(tasks() - alone)
"""
    assert in_process(code, zoo_file, NACRE_THREADS="1") == "0"
    assert in_process(code, zoo_file, NACRE_THREADS="2") == "1"
    assert in_process(code, zoo_file, NACRE_THREADS="") == str(CPUS - 1)
    assert in_process(code.replace("(sys.argv[1])", "(sys.argv[1], threads=1)"), zoo_file, NACRE_THREADS="2") == "0"


@pytest.mark.parametrize("text", ["0", "-1", "two", "2 threads"])
def test_a_variable_that_says_nothing(zoo_file: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("NACRE_THREADS", text)
    with pytest.raises(ArtifactError, match=f"the variable NACRE_THREADS is `{text}`, not a number of threads"):
        load(zoo_file)
    assert load(zoo_file, threads=1).entries["constant"]() == 7


def test_a_negative_number_of_threads(zoo_file: Path) -> None:
    with pytest.raises(ArgumentError, match="threads must be at least 0, not -1"):
        load(zoo_file, threads=-1)


@SEVERAL
def test_workers_do_their_part(zoo_file: Path) -> None:
    """By the time that threads compute, which other processes do not change."""
    rows = load(zoo_file, threads=2).entries["rows"]
    rows(ROWS)
    here, all_threads = time.thread_time(), time.process_time()

    def share() -> float:
        for _ in range(50):
            rows(ROWS)
        spent = time.process_time() - all_threads
        return (spent - (time.thread_time() - here)) / spent

    # On a busy machine a worker may be kept from running for a while; one that does nothing has no share ever.
    assert is_soon(lambda: 0.25 < share() < 0.75)
