"""The warnings of a build, for the command line and for `nacre.compile`.

They are found here, and shown by their users: nothing is printed.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from ..dialect.diagnostics import Diagnostic, DiagnosticError, NacreWarning
from ..runtime.loader import Model
from .codegen.target import Target
from .frontend import Elaborated
from .pipeline import Build
from .precision.effects import find_slow_products

_NAMED = 3
"""The kernels that a warning names."""

UntiledKernel: TypeAlias = tuple[str, str, str]
"""A kernel that became plain loops, the target, and the reason."""


def with_warnings(elaborated: Elaborated, targets: Sequence[Target]) -> Elaborated:
    """The model with the warnings that depend on the targets, beside those that it has."""
    slow = find_slow_products(elaborated.module, targets)
    return replace(elaborated, warnings=(*elaborated.warnings, *slow))


def untiled_in_build(build: Build) -> Iterator[UntiledKernel]:
    for left in build.program.untiled if build.program is not None else ():
        yield left.kernel, left.target.name, left.reason


def warn_of_untiled(untiled: Iterable[UntiledKernel]) -> tuple[Diagnostic, ...]:
    """A warning where kernels are far slower than they could be."""
    found = list(untiled)
    if not found:
        return ()
    names = list(dict.fromkeys(kernel for kernel, _, _ in found))
    targets = ", ".join(dict.fromkeys(target for _, target, _ in found))
    count = "1 kernel is" if len(names) == 1 else f"{len(names)} kernels are"
    named = ", ".join(f"`{name}`" for name in names[:_NAMED]) + ", ..." * (len(names) > _NAMED)
    message = f"{count} plain loops for {targets}, which may be far slower than vector code: {named}"
    help_text = f"{found[0][2]}; `nacre compile -v` lists every kernel with its reason"
    return (Diagnostic("untiled-kernels", message, severity="warning", help=help_text),)


def issue_warnings(build: Build, model: Model) -> None:
    """Issues the warnings of a finished build as `NacreWarning`.

    A model from the cache describes its untiled kernels; the causes of its size are known where it is compiled.
    """
    levels = model.describe()["target"]["levels"]
    untiled = [(u["kernel"], level["name"], u["reason"]) for level in levels for u in level.get("untiled", ())]
    for diagnostic in (*build.elaborated.warnings, *warn_of_untiled(untiled)):
        _issue(str(DiagnosticError([diagnostic], build.elaborated.sources)))
    if build.sizes is not None and build.sizes.is_told:
        _issue(str(build.sizes))


def _issue(text: str) -> None:
    """At the line outside of the package that called it."""
    level, frame = 1, sys._getframe()
    package = __name__.split(".")[0]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == package:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, NacreWarning, stacklevel=level)
