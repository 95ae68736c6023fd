"""What machine code is made for: a CPU level, and the triple."""

from __future__ import annotations

import re
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


_REFUSALS = re.compile(
    r"'(?P<name>[^']+)' is not a recognized (?P<kind>processor|feature) for this target"
    r"|(?P<bits>64-bit code requested on a subtarget that doesn't support it)"
)


def check_target_is_known(output: str) -> None:
    """Raises DiagnosticError where LLVM's output tells that it does not know the target: it goes on with another one,
    or ends the process, so the names that it knows are found out by trying.
    """
    refusal = _REFUSALS.search(output)
    if refusal is None:
        return
    message = "the target is no 64-bit CPU"
    if refusal["name"]:
        kind = "CPU" if refusal["kind"] == "processor" else "CPU feature"
        message = f"LLVM knows no {kind} `{refusal['name']}`"
    help_text = f"known levels: {', '.join(('native', *LEVELS))}; any name that `llc -mcpu=help` lists will do"
    raise DiagnosticError([Diagnostic("unknown-target", message, help=help_text)])
