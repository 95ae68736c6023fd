"""The schedules of the kernels of a model, for one CPU variant on every machine: the width of vectors decides some."""

from __future__ import annotations

from nacre.compiler.checking import read_model
from nacre.compiler.codegen.objects import Program
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets

VARIANT = Options(targets=parse_targets("x86-64-v4"))


def generate(text: str) -> Program:
    """Returns the code of a model for AVX-512."""
    build = Build(read_model(text), VARIANT)
    return build.generate(build.lower(build.optimize()))


def schedules(program: Program) -> list[tuple[str, ...]]:
    """Returns the schedules of each kernel, sorted."""
    (kernels,) = program.kernels.values()
    return sorted(kernel.report.schedules for kernel in kernels.values())
