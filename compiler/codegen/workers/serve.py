"""The main program of code generation workers.

A worker is a fork server; each child reads jobs from standard input and answers each. Given folders on the command
line, it processes the jobs in these folders instead, and writes the results beside them. MLIR and LLVM may abort or
hang in a job; the parent process turns that into a diagnostic.
"""

from __future__ import annotations

import gc
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from .forking import FORK, serve_forks
from .job import DUMPS, OBJECT, RESULT, Job, Report, Result, job_path, text_name
from .messages import IDLE_SECONDS, STAGE, Answer, Request


class Task:
    """One job. `times` are seconds per stage. With a folder, dumps are written there at once, before a stage that may
    abort."""

    def __init__(self, request: Request, folder: Path | None = None) -> None:
        self.job, self.files, self._folder = request.job, request.files, folder
        self.report: Report = request.job.known
        self.times: dict[str, float] = {}
        self.dumps: dict[str, str] = {}
        self.stage = "start"

    def read(self, kind: str) -> str:
        """Returns the text of the job."""
        return self.files[text_name(kind, self.job.start)]

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        self.stage = stage
        # The parent reads this if the process dies.
        os.write(2, f"{STAGE}{stage}\n".encode())
        start = time.perf_counter()
        yield
        self.times[stage] = self.times.get(stage, 0.0) + time.perf_counter() - start

    def dump(self, name: str, text: Callable[[], str]) -> None:
        """Keeps the text of a stage, if it was requested."""
        if name.partition(".")[0] not in self.job.dump:
            return
        self.dumps[name] = text()
        if self._folder is not None:
            (self._folder / DUMPS).mkdir(exist_ok=True)
            (self._folder / DUMPS / name).write_text(self.dumps[name], encoding="utf-8")


def _do(task: Task, generate: Callable[[Task], bytes]) -> Answer:
    try:
        # The parent reports every kind of failure.
        code = generate(task)
    except Exception as error:
        failed = Result(task.times, stage=task.stage, error=f"{type(error).__name__}: {error}")
        return Answer(failed, dumps=task.dumps)
    return Answer(Result(task.times, report=task.report), code, task.dumps)


def _do_in_folder(folder: Path, generate: Callable[[Task], bytes]) -> bool:
    texts = {p.name: p.read_text(encoding="utf-8") for p in folder.iterdir() if p.suffix in (".mlir", ".ll", ".s")}
    request = Request(Job.from_json(job_path(folder).read_text(encoding="utf-8")), texts)
    answer = _do(Task(request, folder), generate)
    (folder / RESULT).write_text(answer.result.to_json(), encoding="utf-8")
    if not answer.result.error:
        (folder / OBJECT).write_bytes(answer.code)
    return not answer.result.error


def serve(generate: Callable[[Task], bytes], arguments: Sequence[str]) -> int:
    """Runs the worker; returns the exit status: 1 where a job of the command line failed."""
    if list(arguments) == [FORK]:
        return serve_forks(partial(_serve_jobs, generate))
    return 0 if all([_do_in_folder(Path(folder), generate) for folder in arguments]) else 1


def _serve_jobs(generate: Callable[[Task], bytes]) -> int:
    # A job makes many objects, and frees nearly all of them by reference counts: collections during a job find little,
    # and take 3 to 5 % of the tiler's time.
    gc.disable()
    # MLIR and LLVM print freely: their standard output must not be taken for an answer.
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        # The builder sends a job after the answer to the one before, so nothing is left in the buffer.
        while select.select([0], [], [], IDLE_SECONDS)[0]:
            if (request := Request.unpack(sys.stdin.buffer.read)) is None:
                break
            answers.write(_do(Task(request), generate).pack())
            answers.flush()
            # The cycles of this job: only objects made since the last collection are visited.
            gc.collect(0)
    return 0
