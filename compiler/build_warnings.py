"""The warnings of a build, for the command line and for `nacre.compile`.

This module finds the warnings; its callers show them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..dialect.diagnostics import Diagnostic, DiagnosticError, NacreWarning
from ..dialect.emitter import ROUNDED_ROWS
from ..dialect.graph import walk
from ..dialect.ops.support.accumulate import rounded_to
from ..dialect.wrapping import counted
from ..runtime.loader import Model
from .base.environment import asks_for_checks
from .lower.parts import FIXED_POINT
from .lower.writer import ROUNDED
from .model.policy import A16
from .model.source import SourceModel
from .model.weight_notes import initial_value_notes
from .options import Options
from .pipeline import Build
from .quantization.effects import find_faster_precision, find_slow_products
from .targets.target import Target
from .validate.devices import find_runnable

_NAMED = 3
"""The maximum number of kernels that a warning names."""
_LARGE_SHARE = 0.25
"""The share of the bytes of an entry from which on its plain kernels are reported."""
_MANY_BYTES = 1 << 20
"""Kernels that read and write fewer bytes take about as long as their launch."""


_FASTER = {
    "a8": ("dequantize", "it rounds activations to 8 bits"),
    "a8bf16": ("dequantize", "it rounds activations to 8 bits in `decode` and to bf16 in `prefill`"),
    A16: ("widen", f"it rounds factors to 16-bit integers in calls of {ROUNDED_ROWS} tokens or more"),
}
"""The precisions that make language models faster: the treatment of weights without it, and its rounding."""


class UntiledKernel(NamedTuple):
    """A kernel that was compiled to plain loops, or to those of a single thread of a device, with the reason."""

    kernel: str
    target: str
    reason: str
    on_device: bool = False


def with_warnings(source_model: SourceModel, targets: Sequence[Target], *, check: bool) -> SourceModel:
    """Returns the model with the target-dependent warnings added to its own. `check`: the build is to be checked, as it
    is with the variable of the environment."""
    slow = find_slow_products(source_model.module, targets)
    unchecked = _warn_of_unchecked(targets, check) if check or asks_for_checks() else ()
    return replace(source_model, warnings=(*source_model.warnings, *slow, *unchecked))


def _warn_of_unchecked(targets: Sequence[Target], on_devices: bool) -> tuple[Diagnostic, ...]:
    """Returns a warning if the checks of a build run no kernels of a target."""
    left = () if on_devices else tuple((t, "only `--check-passes` opens a driver") for t in targets if t.is_device)
    reasons = (*left, *find_runnable([t for t in targets if on_devices or not t.is_device]).reasons)
    if not reasons:
        return ()
    names = [f"`{target.name}`" for target, _ in reasons]
    message = f"checks of the build run no kernel for {', '.join(names)}; they compare the graphs of all passes"
    help_text = f"checks run the code of CPUs and GPUs of this machine; {reasons[0][1]}"
    return (Diagnostic("unchecked-kernels", message, severity="warning", help=help_text),)


def precision_notes(source_model: SourceModel, options: Options) -> Iterator[str]:
    """Yields a line if another precision makes a language model faster."""
    faster = find_faster_precision(source_model.module, options.targets)
    if faster is not None and not (options.strict and faster == A16):
        does, rounded = _FASTER[faster]
        yield f"products {does} weights and multiply in f32; `--precision {faster}` is faster on this target: {rounded}"


def plain_notes(build: Build, dims: Mapping[str, int]) -> Iterator[str]:
    """Yields a line for each entry and device where kernels with a plain launch read and write a large share of the
    bytes at sizes of the dims."""
    devices = [target for target in build.options.targets if target.is_device]
    for report in build.report(dims) if devices else ():
        every = {kernel.name: report.value(kernel.calls) * report.value(kernel.bytes) for kernel in report.kernels}
        for target in devices:
            plain = [k for k in report.kernels if any(e.is_plain for e in k.launches if e.target == target)]
            found = [k.name for k in plain if k.kind != "check"]
            bytes = sum(every[name] for name in found)
            share = bytes / max(sum(every.values()), 1)
            if bytes >= _MANY_BYTES and share >= _LARGE_SHARE:
                count = "1 plain kernel" if len(found) == 1 else f"{len(found)} plain kernels"
                yield (
                    f"{count} for {target.name} {'has' if len(found) == 1 else 'have'} {share:.0%} of the bytes that "
                    f"`{report.name}` reads and writes; `nacre compile -v` lists them with the reasons"
                )


def rounding_notes(build: Build) -> Iterator[str]:
    """Yields a line for each target of a model whose graph permits to round factors: the number of kernels that do, and
    of those that multiply in f32 nevertheless."""
    functions = build.source_model.module.functions
    if not any(rounded_to(node) is not None for function in functions for node in walk(function.body)):
        return
    for program in (each.program for each in (build, *build.further) if each.program is not None):
        texts = {kernel.symbol: kernel.kernel.text for kernel in program.lowered.kernels}
        for target, kernels in program.kernels.items():
            rounding = sum(FIXED_POINT in made.report.schedules for made in kernels.values())
            others = sum(ROUNDED in texts[symbol] for symbol in kernels) - rounding
            if not rounding:
                yield f"no kernel of `{target.name}` rounds factors to 16-bit integers: their products are in f32"
                continue
            kept = f"; {others} in f32" if others > 0 else ""
            yield (
                f"factors of {counted(rounding, 'kernel')} of `{target.name}` are rounded to 16-bit integers in calls "
                f"of {ROUNDED_ROWS} rows or more{kept}"
            )


def untiled_in_build(build: Build) -> Iterator[UntiledKernel]:
    for each in (build, *build.further):
        for left in each.program.untiled if each.program is not None else ():
            yield UntiledKernel(left.kernel, left.target.name, left.reason, left.target.is_device)


def warn_of_untiled(untiled: Iterable[UntiledKernel]) -> tuple[Diagnostic, ...]:
    """Returns a warning for CPUs, and one for GPUs, if kernels are far slower than they could be."""
    found = list(untiled)
    sides = ([left for left in found if left.on_device == on_device] for on_device in (False, True))
    return tuple(_warn_of_untiled(side) for side in sides if side)


def _warn_of_untiled(found: Sequence[UntiledKernel]) -> Diagnostic:
    names = list(dict.fromkeys(left.kernel for left in found))
    targets = ", ".join(dict.fromkeys(left.target for left in found))
    count = "1 kernel is" if len(names) == 1 else f"{len(names)} kernels are"
    named = ", ".join(f"`{name}`" for name in names[:_NAMED]) + ", ..." * (len(names) > _NAMED)
    message = f"{count} plain loops for {targets}, which may be much slower than vector code: {named}"
    if found[0].on_device:
        message = f"{count} computed by one thread of {targets}, which may be much slower than a CPU: {named}"
    help_text = f"{found[0].reason}; `nacre compile -v` lists every kernel with its reason"
    return Diagnostic("untiled-kernels", message, severity="warning", help=help_text)


def issue_warnings(build: Build, model: Model) -> None:
    """Issues the warnings of a finished build as `NacreWarning`.

    The description of a cached model lists its untiled kernels; the causes of its size are known only during
    compilation.
    """
    target = model.describe()["target"]
    untiled = [
        UntiledKernel(left["kernel"], level["name"], left["reason"])
        for level in target["levels"]
        for left in level.get("untiled", ())
    ]
    untiled += [UntiledKernel(**left, on_device=True) for left in target.get("device", {}).get("untiled", ())]
    for diagnostic in (*build.source_model.warnings, *warn_of_untiled(untiled)):
        _issue(str(DiagnosticError([diagnostic], build.source_model.sources)))
    for note in initial_value_notes(build.source_model):
        _issue(note)
    if build.sizes is not None and build.sizes.is_reported:
        _issue(str(build.sizes))


def _issue(text: str) -> None:
    """Issues a warning at the line outside of the package that called it."""
    level, frame = 1, sys._getframe()
    package = __name__.split(".")[0]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == package:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, NacreWarning, stacklevel=level)
