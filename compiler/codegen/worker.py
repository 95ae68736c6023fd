"""The child process that generates code: `python -m nacre.compiler.codegen.worker JOB.json`.

It reads the job's texts from the job's folder, and writes the object and `result.json` beside them. MLIR and LLVM may
abort or hang here; whoever started the process makes a diagnostic of that.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .. import mlir
from .job import Job, Result
from .literals import rewrite_literals
from .machine import Machine, Options, vector_features
from .routes import ROUTES
from .target import Target
from .tiler.apply import apply_tiler
from .tiler.tile import choose_machine


class KernelError(Exception):
    """A kernel that a stage could not take."""


class Worker:
    """One job. `times` are seconds per stage."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.job, self.folder = job, folder
        self.times: dict[str, float] = {}
        self.stage = "start"
        self._dumped = 0

    def run(self) -> bytes:
        """The object."""
        text = (self.folder / "kernels.mlir").read_text(encoding="utf-8")
        entries = (self.folder / "entries.ll").read_text(encoding="utf-8")
        with mlir.ir.Context() as context:
            context.enable_multithreading(False)
            ir = self._lower(text)
        with self._timed("literals"):
            ir = rewrite_literals(ir)
        with self._timed("llvm-ir"):
            options = Options(self.job.level)
            machine = Machine(Target(self.job.cpu, self.job.triple, self.job.features), options)
            module = machine.parse(ir)
            module.link_in(machine.parse(entries))
            machine.hide_kernels(module, frozenset(self.job.keep), self.job.visible)
        self._dump("llvm-ir.ll", lambda: str(module))
        with self._timed("optimize"):
            machine.optimize(module)
        self._dump("optimized.ll", lambda: str(module))
        with self._timed("emit"):
            code = machine.emit_object(module)
        self._dump("assembly.s", lambda: machine.emit_assembly(module))
        return code

    def _lower(self, text: str) -> str:
        with self._timed("linalg"):
            module = mlir.ir.Module.parse(text)
        self._dump("linalg.mlir", lambda: text)
        for stage in ROUTES[self.job.route].stages:
            with self._timed(stage.name):
                for action in stage.actions:
                    if action.startswith(":"):
                        ACTIONS[action](module, self.job)
                    else:
                        mlir.passmanager.PassManager.parse(f"builtin.module({action})").run(module.operation)
            self._dump(f"{stage.name}.mlir", lambda: str(module))
        with self._timed("translate"):
            return mlir.translate(module)

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        self.stage = stage
        # Read by whoever finds this process dead.
        (self.folder / "stage").write_text(stage)
        start = time.perf_counter()
        yield
        self.times[stage] = time.perf_counter() - start

    def _dump(self, name: str, text: Callable[[], str]) -> None:
        if self.job.dump:
            (self.folder / "dump").mkdir(exist_ok=True)
            (self.folder / "dump" / f"{self._dumped:02}-{name}").write_text(text(), encoding="utf-8")
        self._dumped += 1


def _operations(module: Any, *names: str) -> list[Any]:
    found: list[Any] = []

    def visit(operation: Any) -> Any:
        if operation.name in names:
            found.append(operation)
        return mlir.ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def _kernel_of(operation: Any) -> str:
    while operation is not None and operation.name not in ("func.func", "llvm.func"):
        operation = operation.parent
    return "?" if operation is None else mlir.ir.StringAttr(operation.attributes["sym_name"]).value


def _copies_to_linalg(module: Any, job: Job) -> None:
    for copy in _operations(module, "memref.copy"):
        source, target = copy.operands
        with mlir.ir.InsertionPoint(copy), copy.location:
            mlir.linalg.copy(source, outs=[target])
        copy.erase()


def _assert_no_allocation(module: Any, job: Job) -> None:
    for operation in _operations(module, "memref.alloc", "memref.alloca"):
        raise KernelError(f"{_kernel_of(operation)}: bufferization made `{operation}` at {operation.location}")


def _assert_llvm(module: Any, job: Job) -> None:
    """Translation would abort the process at whatever is left of other dialects."""

    def visit(operation: Any) -> Any:
        if not operation.name.startswith("llvm.") and operation.name != "builtin.module":
            raise KernelError(f"{_kernel_of(operation)}: `{operation.name}` has no lowering at {operation.location}")
        return mlir.ir.WalkResult.ADVANCE

    module.operation.walk(visit)


def _tile(module: Any, job: Job) -> None:
    machine = choose_machine(vector_features(Target(job.cpu, job.triple, job.features)))
    if machine is not None:
        apply_tiler(module, machine)


ACTIONS: Mapping[str, Callable[[Any, Job], None]] = {
    ":tile": _tile,
    ":copies-to-linalg": _copies_to_linalg,
    ":assert-no-allocation": _assert_no_allocation,
    ":assert-llvm": _assert_llvm,
}


def main(path: str) -> int:
    folder = Path(path).parent
    worker = Worker(Job.from_json(Path(path).read_text(encoding="utf-8")), folder)
    try:
        # Whatever goes wrong, the parent tells it.
        (folder / "kernels.o").write_bytes(worker.run())
        result = Result(worker.times)
    except Exception as error:
        result = Result(worker.times, stage=worker.stage, error=f"{type(error).__name__}: {error}")
    (folder / "result.json").write_text(result.to_json(), encoding="utf-8")
    return 0 if not result.error else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
