"""Fork servers: one start serves many children, and no child outlives its user."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from nacre.compiler.codegen.workers import forking, serve
from nacre.compiler.codegen.workers import pool as worker_pool
from nacre.compiler.codegen.workers.child import ENTRY_WORKER, Child, Outcome, entry_source
from nacre.compiler.codegen.workers.job import Job
from nacre.compiler.codegen.workers.messages import IDLE_SECONDS
from nacre.compiler.codegen.workers.pool import end_waiting, give_back, take_child
from nacre.compiler.codegen.workers.routes import LLVM_IR
from nacre.compiler.validate.isolated import Died, Progress, run_isolated

SOURCE = entry_source("define void @f() {\n  ret void\n}\n", Job(1, "x86-64-v3", "", "", ("f",), start=LLVM_IR), {})
SECONDS = 60.0


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The processes of the servers that a test starts."""
    found: list[int] = []

    class Watched(forking.ForkServer):
        def __init__(self, worker: str) -> None:
            super().__init__(worker)
            found.append(self._process.pid)

    end_waiting()
    monkeypatch.setattr(worker_pool, "ForkServer", Watched)
    yield found
    end_waiting()
    assert not any(map(is_running, found))


def is_running(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


def children_of(process: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def wait_for_end(process: int) -> None:
    end = time.monotonic() + SECONDS
    while is_running(process):
        assert time.monotonic() < end, f"{process} is still there"
        time.sleep(0.01)


def do_job(child: Child) -> Outcome:
    child.send(SOURCE)
    return child.outcome()


def test_children_share_a_start_and_make_the_same(started: list[int]) -> None:
    outcomes = []
    for _ in range(3):
        child = take_child(ENTRY_WORKER)
        outcomes.append(do_job(child))
        child.close()
    assert len(started) == 1
    assert outcomes[0].code and not outcomes[0].result.error, outcomes[0]
    assert {outcome.code for outcome in outcomes} == {outcomes[0].code}


def test_a_child_does_the_jobs_of_several_builds(started: list[int]) -> None:
    first = take_child(ENTRY_WORKER)
    code = do_job(first).code
    give_back(ENTRY_WORKER, [first])
    again, new = take_child(ENTRY_WORKER), take_child(ENTRY_WORKER)
    assert again is first and new is not first
    assert do_job(again).code == do_job(new).code == code
    give_back(ENTRY_WORKER, [again, new])


def test_an_idle_child_that_was_killed_is_not_used(started: list[int]) -> None:
    child = take_child(ENTRY_WORKER)
    do_job(child)
    (process,) = children_of(started[0])
    give_back(ENTRY_WORKER, [child])
    os.kill(process, signal.SIGKILL)
    wait_for_end(process)
    other = take_child(ENTRY_WORKER)
    assert other is not child and not do_job(other).result.error
    other.close()


def test_a_child_under_another_limit_is_not_used(started: list[int]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    child = take_child(ENTRY_WORKER)
    do_job(child)
    give_back(ENTRY_WORKER, [child])
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (1 << 40, hard))
        other = take_child(ENTRY_WORKER)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    assert other is not child and not do_job(other).result.error
    other.close()


def test_a_child_that_may_soon_end_is_not_used(started: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    child = take_child(ENTRY_WORKER)
    do_job(child)
    give_back(ENTRY_WORKER, [child])
    now = time.monotonic()
    monkeypatch.setattr(worker_pool.time, "monotonic", lambda: now + IDLE_SECONDS * 0.6)
    other = take_child(ENTRY_WORKER)
    assert other is not child
    other.close()


def test_a_child_without_jobs_ends() -> None:
    jobs, sender = os.pipe()

    def wait(tell: Progress) -> int:
        serve.IDLE_SECONDS = 0.05
        os.dup2(jobs, 0)
        return serve._serve_jobs(lambda task: b"")

    # The sender is open: there is no end of the stream.
    assert run_isolated([wait]) == [0]
    os.close(jobs)
    os.close(sender)


def test_a_fork_leaves_idle_children_to_its_parent(started: list[int]) -> None:
    child = take_child(ENTRY_WORKER)
    do_job(child)
    give_back(ENTRY_WORKER, [child])

    def take(tell: Progress) -> bool:
        own = take_child(ENTRY_WORKER)
        return own is not child and not do_job(own).result.error

    assert run_isolated([take]) == [True]
    assert take_child(ENTRY_WORKER) is child
    assert not do_job(child).result.error
    child.close()


def test_a_child_that_hangs_ends_when_it_is_closed(started: list[int]) -> None:
    child, other = take_child(ENTRY_WORKER), take_child(ENTRY_WORKER)
    assert not do_job(child).result.error
    (server,) = started
    hanging, _ = children_of(server)
    os.kill(hanging, signal.SIGSTOP)
    child.close()
    wait_for_end(hanging)
    assert not do_job(other).result.error, "one child ends, the others go on"
    other.close()


@pytest.mark.parametrize("how", [signal.SIGABRT, signal.SIGSEGV, signal.SIGKILL])
def test_the_signal_that_ends_a_child_is_reported(how: signal.Signals, started: list[int]) -> None:
    child = take_child(ENTRY_WORKER)
    do_job(child)
    (process,) = children_of(started[0])
    os.kill(process, how)
    wait_for_end(process)
    assert f"the child died of {how.name}" in do_job(child).result.error
    child.close()


def test_a_server_that_was_killed_is_replaced(started: list[int]) -> None:
    take_child(ENTRY_WORKER).close()
    os.kill(started[0], signal.SIGKILL)
    os.waitid(os.P_PID, started[0], os.WEXITED | os.WNOWAIT)
    child = take_child(ENTRY_WORKER)
    assert not do_job(child).result.error and len(started) == 2
    child.close()


def test_a_server_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    # It takes the request, and ends without a child.
    failing = "import sys, socket; print('error: no room', flush=True); socket.socket(fileno=0).recv(99)"
    monkeypatch.setattr(forking, "worker_command", lambda worker: [sys.executable, "-c", failing])
    child = take_child(ENTRY_WORKER)
    assert "could not start: error: no room" in do_job(child).result.error
    child.close()


def test_a_process_that_is_killed_takes_its_children_along(started: list[int]) -> None:
    take_child(ENTRY_WORKER).close()
    (server,) = started

    def take_and_die(tell: Progress) -> None:
        child = take_child(ENTRY_WORKER)
        do_job(child)
        (process,) = children_of(server)
        os.kill(process, signal.SIGSTOP)
        tell(str(process))
        os.abort()

    (died,) = run_isolated([take_and_die])
    assert isinstance(died, Died)
    wait_for_end(int(died.doing))
    assert len(started) == 1 and is_running(server), "a fork shares the server, and leaves it"


def test_nothing_is_left_of_a_killed_builder() -> None:
    program = (
        "from nacre.compiler.codegen.workers.pool import take_child\n"
        "from nacre.compiler.codegen.workers.child import ENTRY_WORKER\n"
        "import time\n"
        "child = take_child(ENTRY_WORKER)\n"
        "from nacre.compiler.codegen.workers import pool as nursery\n"
        "print(nursery._servers[ENTRY_WORKER]._process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as builder:
        assert builder.stdout is not None
        server = int(builder.stdout.readline())
        assert is_running(server)
        builder.kill()
    wait_for_end(server)
