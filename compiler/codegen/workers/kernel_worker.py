"""The child process that compiles kernels: `python -m nacre.compiler.codegen.workers.kernel_worker FOLDER`.

One kernel is one job and one object: a kernel is independent of the other kernels and of the process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from ...base import mlir
from ...lower.parts import SEQUENCE, KernelPart
from ...lower.writer import part_name
from ...targets.cuda import WARPGROUPS
from ...targets.features import native_features
from ...targets.target import MadeFor, Target, machine_of
from ...targets.vector_unit import VectorUnit
from ..elementary.functions import replace_math
from ..gpu.cubin import make_cubin
from ..gpu.image import make_image
from ..gpu.math import expand_device_math, find_foreign_math
from ..gpu.outline import Launch, NoDeviceCodeError, Rounding, outline
from ..gpu.ptx import DeviceMachine, check_launches, mark_kernels, name_dynamic_memory
from ..llvm.lines import attach_lines, settle_locations
from ..llvm.literals import rewrite_literals
from ..llvm.locations import keep_source_locations
from ..llvm.machine import Machine, Options, Pipeline, cpu_name, vector_features
from ..tiler.fast_math import allow_fast_math
from ..tiler.kernels import read_in_place, read_without, tile_kernels
from .emit import dump_name, make_object
from .job import KERNEL, WRITTEN, Job
from .routes import ASSEMBLY, CUBIN, DEVICE, FIRST, LLVM_IR, LLVM_STAGES, OPTIMIZED, ROUTES, split_action
from .serve import Task, serve

CONTEXT: Any = mlir.ir.Context()
"""The MLIR context of all kernels, since creating one takes as long as compiling a small kernel. It retains types and
attributes, which do not affect any text."""
CONTEXT.enable_multithreading(False)


_TILES = (32, 64)
"""The sizes along one axis of what a warp or a block of a device computes at once; so are the threads of a block."""


class KernelError(Exception):
    """A kernel that a stage could not process."""


def lower_kernel(task: Task) -> str:
    """Returns the LLVM IR of a kernel that is given at an earlier stage."""
    with CONTEXT:
        text = _lower(task, task.read(KERNEL) if task.job.start not in LLVM_STAGES else task.files[WRITTEN])
    with task.timed("literals"):
        return rewrite_literals(text)


def compile_kernel(task: Task) -> bytes:
    stage = task.job.start
    if task.job.route == DEVICE:
        return _make_image(task, task.read(KERNEL) if stage == LLVM_IR else lower_kernel(task))
    if stage in LLVM_STAGES:
        text = task.read(KERNEL)
    else:
        text, stage = lower_kernel(task), LLVM_IR
    if task.job.inner and task.report.tiled:
        task.report = replace(task.report, code=text)
    return make_object(task, text, stage, kept_functions(task), choose_pipeline(task))


def choose_pipeline(task: Task) -> Pipeline:
    """Returns the optimisation passes of a kernel. A vectorized loop would set an alarm with a masked scatter in each
    step, which takes longer than the rest of the step even where no lane sets it."""
    if task.report.tiled:
        return Pipeline.SHORT
    return Pipeline.SCALARS if task.job.alarm else Pipeline.LOOPS


def _lower(task: Task, text: str) -> str:
    start = FIRST if task.job.start in LLVM_STAGES else task.job.start
    with task.timed(start):
        mlir.ir.Context.current.allow_unregistered_dialects = True
        module = mlir.ir.Module.parse(text)
        if task.job.debug:
            settle_locations(module)
        if start != FIRST:
            _report_parts(module, task)
    task.dump(f"{start}.mlir", lambda: text)
    stages = ROUTES[task.job.route].stages
    for stage in stages[[FIRST, *(stage.name for stage in stages)].index(start) :]:
        with task.timed(stage.name):
            actions = stage.actions_of(task.report.tiled)
            found = _names(module) if any("?" in action for action in actions) else frozenset()
            for names, passes in map(split_action, actions):
                if names and found.isdisjoint(names):
                    continue
                if passes.startswith(":"):
                    ACTIONS[passes](module, task)
                else:
                    _run_passes(passes, module)
        task.dump(f"{stage.name}.mlir", lambda: _print(module))
    with task.timed("translate"):
        if task.job.debug:
            attach_lines(module)
        return mlir.translate(module)


def _run_passes(passes: str, module: Any) -> None:
    _pass_manager(passes).run(module.operation)


@cache
def _pass_manager(passes: str) -> Any:
    """Returns the pass manager of all kernels: passes collect their patterns when a manager first runs, which takes
    longer than most kernels.

    The final module is verified: verification after each pass would take a fifth of the time of a small kernel.
    """
    manager = mlir.passmanager.PassManager.parse(f"builtin.module({passes})", CONTEXT)
    manager.enable_verifier(False)
    return manager


def _print(module: Any) -> str:
    """Returns the text of a module, with source locations, and without aliases at its top."""
    return keep_source_locations(module.operation.get_asm(use_local_scope=True, enable_debug_info=True)) + "\n"


def _make_image(task: Task, text: str) -> bytes:
    """Compiles device functions to PTX and machine code, and wraps them into an object of the host. Functions of a
    later stage may be given; the host's functions are then those of the kernel as it was written."""
    job, symbol = task.job, task.job.keep[0]
    target = Target(job.cpu, job.triple, job.features)
    text, launches = mark_launches(task, text)
    task.dump(dump_name(LLVM_IR), lambda: text)
    ptx = task.read(KERNEL) if job.start == ASSEMBLY else _write_ptx(task, DeviceMachine(target), text, launches)
    task.dump(dump_name(ASSEMBLY), lambda: ptx)
    # A launch that is missing in a given text is an error of that text.
    with task.timed(job.start if job.start in LLVM_STAGES else "image"):
        check_launches(ptx, launches)
    with task.timed(CUBIN):
        cubin = make_cubin(job.ptxas, ptx, job.cpu) if job.ptxas else b""
    with task.timed("image"):
        # Setting up the code generator of level 2 takes longer than everything else about an image.
        host = Machine(target.host, Options(0))
        task.report = replace(task.report, made_for=MadeFor(target.cpu, host.made_for.triple))
        return make_image(host, text, ptx, cubin, symbol, launches)


def mark_launches(task: Task, text: str) -> tuple[str, Mapping[str, Launch]]:
    """Returns the LLVM IR of a kernel with its launches marked, and the launches by the names of their functions."""
    launches = [Launch.read(schedule) for schedule in task.report.schedules]
    named = {part_name(task.job.keep[0], number): launch for number, launch in enumerate(launches)}
    threads = {name: launch.threads for name, launch in named.items()}
    text = mark_kernels(text, threads, {name: launch.blocks_at_once for name, launch in named.items()})
    return name_dynamic_memory(text), named


def _write_ptx(task: Task, machine: DeviceMachine, text: str, launches: Collection[str]) -> str:
    """Returns the PTX of functions in LLVM IR, unless the task has them in their optimised form."""
    is_optimized = task.job.start == OPTIMIZED
    given = task.read(KERNEL) if is_optimized else text
    if task.job.start in LLVM_STAGES:
        with task.timed(task.job.start):
            machine.verify(given)
    with task.timed("optimize"):
        optimized = given if is_optimized else machine.optimize(given, frozenset(launches))
    task.dump(dump_name(OPTIMIZED), lambda: optimized)
    with task.timed("emit"):
        return machine.emit(optimized)


def kept_functions(task: Task) -> frozenset[str]:
    """Returns the functions that the object exports: the functions named by the job, in every part of the kernel."""
    names = task.job.keep
    kernel = names[0]
    parts = range(len(task.report.parts))
    return frozenset(part_name(kernel, n) + name.removeprefix(kernel) for n in parts for name in names)


def _names(module: Any) -> frozenset[str]:
    """Returns the names of the operations of a module, and those of their dialects."""
    names: set[str] = set()

    def visit(operation: Any) -> Any:
        names.add(operation.name)
        return mlir.ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return frozenset(names | {name.partition(".")[0] for name in names})


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
    return "?" if operation is None else _symbol(operation)


def _symbol(function: Any) -> str:
    return str(mlir.ir.StringAttr(function.attributes["sym_name"]).value)


def _copies_to_linalg(module: Any, task: Task) -> None:
    for copy in _operations(module, "memref.copy"):
        source, target = copy.operands
        element = mlir.ir.MemRefType(target.type).element_type
        attributes = {"operandSegmentSizes": mlir.ir.DenseI32ArrayAttr.get([1, 1])}
        with mlir.ir.InsertionPoint(copy), copy.location:
            made = mlir.ir.Operation.create("linalg.copy", operands=[source, target], attributes=attributes, regions=1)
            body = made.regions[0].blocks.append(element, element)
            with mlir.ir.InsertionPoint(body):
                mlir.ir.Operation.create("linalg.yield", operands=[body.arguments[0]])
        copy.erase()


def _round_integers_twice(conversions: Sequence[Any]) -> None:
    """Converts integers to bf16 through f32, as kernels state it.

    Canonicalisation folds the two steps into one, which LLVM cannot compile without AVX-512 BF16: it would call
    `__truncsfbf2`, which libm does not define.
    """
    for conversion in conversions:
        (result,) = conversion.results
        if "bf16" not in str(result.type):
            continue
        wide = mlir.ir.Type.parse(str(result.type).replace("bf16", "f32"))
        with mlir.ir.InsertionPoint(conversion), conversion.location:
            widened = mlir.ir.Operation.create(conversion.name, [wide], list(conversion.operands))
            rounded = mlir.ir.Operation.create("arith.truncf", [result.type], list(widened.results))
        result.replace_all_uses_with(rounded.results[0])
        conversion.erase()


def _round_by_instruction(roundings: Sequence[Any]) -> None:
    """Makes LLVM round to even: upstream passes would call `roundeven` of libm, which glibc has only since 2.25."""
    for rounding in roundings:
        (result,) = rounding.results
        with mlir.ir.InsertionPoint(rounding), rounding.location:
            made = mlir.ir.Operation.create("llvm.intr.roundeven", [result.type], list(rounding.operands))
        result.replace_all_uses_with(made.results[0])
        rounding.erase()


def _settle_rounding(module: Any, task: Task) -> None:
    """Writes the roundings that upstream passes would lower to functions of libm in another way."""
    roundings: list[Any] = []
    conversions: list[Any] = []
    for operation in _operations(module, "math.roundeven", "arith.sitofp", "arith.uitofp"):
        (roundings if operation.name == "math.roundeven" else conversions).append(operation)
    _round_by_instruction(roundings)
    _round_integers_twice(conversions)


def _assert_no_allocation(module: Any, task: Task) -> None:
    if task.report.tiled:
        return
    for operation in _operations(module, "memref.alloc", "memref.alloca"):
        raise KernelError(f"{_kernel_of(operation)}: bufferization made `{operation}` at {operation.location}")


def _choose_features(module: Any, task: Task) -> None:
    """States the features of functions that do without some of the CPU's, and of those with slow gathers.

    LLVM replaces a gather by loads only where all lanes are read: it would branch for each lane of a mask. Loops that
    the tiler leaves unchanged get their gathers from LLVM's vectorizer.
    """
    job = task.job
    target = Target(job.cpu, job.triple, job.features)
    family = target.family
    slow = family is not None and job.level > 0 and cpu_name(target) in family.slow_gathers
    for function in (found for found in module.body.operations if found.operation.name == "llvm.func"):
        signed = [f"-{feature}" for feature in read_without(function)]
        if slow and family is not None:
            masks = [gather.operands[1].owner for gather in _operations(function, "llvm.intr.masked.gather")]
            whole = all(getattr(mask, "name", "") == "llvm.mlir.constant" for mask in masks)
            if whole if masks else not task.report.tiled:
                signed.append(f"+{family.no_gathers}")
        if not signed:
            continue
        own = native_features(target) if target.cpu == "native" else target.features
        function.attributes["target_features"] = _features_attribute((*filter(None, own.split(",")), *signed))


@cache
def _features_attribute(features: Sequence[str]) -> Any:
    quoted = ", ".join(f'"{feature}"' for feature in features)
    return mlir.ir.Attribute.parse(f"#llvm.target_features<[{quoted}]>", CONTEXT)


def _assert_llvm(module: Any, task: Task) -> None:
    """Raises if the module is invalid or operations of other dialects are left: translation would abort the process."""

    def visit(operation: Any) -> Any:
        if not operation.name.startswith("llvm.") and operation.name != "builtin.module":
            raise KernelError(f"{_kernel_of(operation)}: `{operation.name}` has no lowering at {operation.location}")
        return mlir.ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    module.operation.verify()


def _tile(module: Any, task: Task) -> None:
    job = task.job
    unit = _vector_unit(job)
    if unit is None:
        task.report = replace(task.report, reason=f"there is no vector code for {machine_of(job.triple)}")
        return
    (report,) = tile_kernels(module, unit, strict=job.strict, debug=job.debug)
    task.report = replace(task.report, schedules=report.schedules, reason=report.reason, steps=report.steps)
    if task.report.tiled:
        # This applies only to tiled kernels: inlining also simplifies, and then bufferization would need memory.
        _run_passes("inline{default-pipeline=},symbol-dce,canonicalize,cse", module)


def _outline(module: Any, task: Task) -> None:
    job = task.job
    rounding = Rounding(job.strict, job.tf32 and not job.strict)
    has_warpgroups = job.cpu in WARPGROUPS
    launches = outline(
        module, job.keep[0], rounding, scratch=job.scratch, parts=job.parts, has_warpgroups=has_warpgroups
    )
    alone = "its loops run step by step" if any(launch.schedule == SEQUENCE for launch in launches) else ""
    steps = tuple(sorted({*_TILES, *(launch.threads for launch in launches)}))
    task.report = replace(task.report, schedules=tuple(map(str, launches)), reason=alone, steps=steps)


def _expand_math(module: Any, task: Task) -> None:
    expand_device_math(module)


def _assert_device_math(module: Any, task: Task) -> None:
    foreign = find_foreign_math(module)
    if foreign is not None:
        name, dtype = foreign.name.removeprefix("math."), foreign.results[0].type
        raise NoDeviceCodeError(f"there is no `{name}` of {dtype} for GPUs")


def _allow_fast_math(module: Any, task: Task) -> None:
    allow_fast_math(module)
    unit = _vector_unit(task.job)
    replace_math(module, frozenset() if unit is None else unit.features)


def _vector_unit(job: Job) -> VectorUnit | None:
    """Returns the vector unit of the target, or None if there is no vector code for it."""
    target = Target(job.cpu, job.triple, job.features)
    if target.family is None:
        return None
    return target.family.choose_unit(vector_features(target), cpu_name(target))


def _report_parts(module: Any, task: Task) -> None:
    """Reports the tensors that each part still uses, since tiles and loops need less scratch than whole tensors, and
    the tiler's notes on memory that may be shared."""
    functions = {_symbol(function): function for function in module.body.operations}
    parts: list[KernelPart] = []
    for number in range(max(1, len(task.report.schedules))):
        function = functions[part_name(task.job.keep[0], number)]
        arguments = list(function.regions[0].blocks[0].arguments)
        tensors = [a for a in arguments if str(a.type).startswith(("memref", "!llvm.ptr"))]
        parts.append(KernelPart(tuple(any(True for _ in a.uses) for a in tensors), read_in_place(function)))
    task.report = replace(task.report, parts=tuple(parts))


ACTIONS: Mapping[str, Callable[[Any, Task], None]] = {
    ":tile": _tile,
    ":outline": _outline,
    ":expand-math": _expand_math,
    ":assert-device-math": _assert_device_math,
    ":fast-math": _allow_fast_math,
    ":copies-to-linalg": _copies_to_linalg,
    ":settle-rounding": _settle_rounding,
    ":assert-no-allocation": _assert_no_allocation,
    ":report-parts": _report_parts,
    ":choose-features": _choose_features,
    ":assert-llvm": _assert_llvm,
}


if __name__ == "__main__":
    sys.exit(serve(compile_kernel, sys.argv[1:]))
