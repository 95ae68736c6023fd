"""The schedules of the kernels of a model."""

from __future__ import annotations

from nacre.compiler.checking import read_model
from nacre.compiler.codegen.objects import Program
from nacre.compiler.pipeline import Build


def generate(text: str) -> Program:
    """Returns the code of a model."""
    build = Build(read_model(text))
    return build.generate(build.lower(build.optimize()))


def schedules(program: Program) -> list[tuple[str, ...]]:
    """Returns the schedules of each kernel, sorted."""
    (kernels,) = program.kernels.values()
    return sorted(kernel.report.schedules for kernel in kernels.values())
