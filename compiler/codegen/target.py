"""What machine code is made for: a CPU level, and the triple."""

from __future__ import annotations

from dataclasses import dataclass

from ...dialect.diagnostics import Diagnostic, DiagnosticError

LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")


@dataclass(frozen=True, slots=True)
class Target:
    """`cpu` is a name that LLVM knows, or `native` for the CPU that compiles; `features` as in `+avx512f,-fma`."""

    cpu: str = "native"
    triple: str = ""
    features: str = ""


def parse_target(text: str) -> Target:
    """`native`, a CPU level, or any CPU name of LLVM's, perhaps with `+feature` behind it: `x86-64-v3`, `znver4`.

    Raises DiagnosticError where the text is none of these.
    """
    cpu, *features = text.split("+")
    if not cpu or not all(c.isalnum() or c in "-_." for c in cpu):
        known = ", ".join(("native", *LEVELS))
        raise DiagnosticError([Diagnostic("unknown-target", f"`{text}` names no CPU", help=f"known levels: {known}")])
    return Target(cpu=cpu, features=",".join(f"+{feature}" for feature in features))
