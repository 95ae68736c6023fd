"""Compiles kernels for a device, several to a module: twice as fast as one by one.

The stages and their passes are those of a build, which compiles one kernel to a module. LLVM treats each kernel of a
module by itself, so that its code is the same.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nacre.compiler.codegen.gpu.image import make_image
from nacre.compiler.codegen.gpu.outline import Launch
from nacre.compiler.codegen.gpu.ptx import check_launches
from nacre.compiler.codegen.llvm.machine import Machine, Options, Pipeline
from nacre.compiler.codegen.objects import ObjectCode, plan_program
from nacre.compiler.codegen.workers.child import Source
from nacre.compiler.codegen.workers.job import Report
from nacre.compiler.codegen.workers.kernel_worker import lower_kernel, mark_launches
from nacre.compiler.codegen.workers.messages import Request
from nacre.compiler.codegen.workers.serve import Task
from nacre.compiler.lower.lowered import LoweredKernel
from nacre.compiler.pipeline import Build
from nacre.compiler.stages import KERNELS
from nacre.compiler.targets.cuda import BLOCKS, TILES
from nacre.compiler.targets.target import MadeFor, Target

TOGETHER = 16
"""The kernels of a module. The time for each of them hardly falls with more."""


@dataclass(frozen=True)
class _Joined:
    """Kernels in one module: their reports, their launches by name, and the code as LLVM IR and as PTX."""

    reports: Mapping[str, Report]
    launches: Mapping[str, Launch]
    text: str
    ptx: str


def write_texts(build: Build, known: Container[str] = ()) -> list[str]:
    """Returns modules with the kernels of a build for one device, except those whose names are `known`. Raises
    CompilerError for a kernel that a build cannot compile either."""
    build.make("lowered")
    assert build.lowered is not None
    (target,) = build.options.targets
    kernels = [kernel for kernel in build.lowered.kernels if kernel.symbol + target.suffix not in known]
    return [joined.ptx for joined in _join_groups(build, kernels)]


def run_joined(build: Build, output: Path) -> None:
    """Builds the library for one device, as `Build.run` does, with several kernels in an object. Raises what
    `write_texts` does."""
    build.make("lowered")
    assert build.lowered is not None
    (target,) = build.options.targets
    host, made = Machine(target.host, Options(0)), dict[str, ObjectCode]()
    made_for = MadeFor(target.cpu, host.made_for.triple)
    for joined in _join_groups(build, build.lowered.kernels):
        first = next(iter(joined.reports))
        code = make_image(host, joined.text, joined.ptx, b"", first, joined.launches)
        # The object of a group is that of its first kernel.
        made |= {
            name.removesuffix(target.suffix): ObjectCode(
                code if name == first else b"", replace(report, made_for=made_for)
            )
            for name, report in joined.reports.items()
        }
    build.program = plan_program(build.lowered, {target: made})
    build.objects = tuple(code for code in build.generate_entries(build.program) if code)
    build.run(output)


def _join_groups(build: Build, kernels: Sequence[LoweredKernel]) -> list[_Joined]:
    (target,) = build.options.targets
    with build._generator(KERNELS) as generator:
        sources = [generator._source(kernel, target) for kernel in kernels]
        return [_join(sources[begin : begin + TOGETHER], target) for begin in range(0, len(sources), TOGETHER)]


def _join(sources: Sequence[Source], target: Target) -> _Joined:
    machine = Machine(target, Options(3))
    modules, reports, launches = [], dict[str, Report](), dict[str, Launch]()
    for source in sources:
        task = Task(Request(source.job, source.files))
        text, named = mark_launches(task, lower_kernel(task))
        module = machine.parse(text)
        # Functions of two kernels may have one name. The host needs those that count blocks and place tiles.
        kept = frozenset(name + suffix for name in named for suffix in ("", BLOCKS, TILES))
        machine.hide_others(module, kept, visible=True)
        modules.append(module)
        reports[source.kernel] = task.report
        launches |= named
    joined, *others = modules
    for module in others:
        joined.link_in(module)
    text = str(joined)
    machine.hide_others(joined, frozenset(launches), visible=True)
    machine.optimize(joined, Pipeline.VECTORS)
    ptx = machine.emit_assembly(machine.parse(str(joined)))
    check_launches(ptx, launches)
    return _Joined(reports, launches, text, ptx)
