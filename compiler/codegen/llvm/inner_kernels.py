"""Links copies of kernels into the module of the entries, for loops that are one function.

Kernels state that their tensors do not alias. That holds within one call, but a loop reads results of earlier
iterations, and may update a tensor in place, so the copies do not state it. A kernel whose inner loop holds many
vectors keeps its own function, since LLVM would spill some of them in a larger one:

    %44 = phi <8 x float> ...        8 accumulators or fewer: inlined
    %45 = phi <8 x float> ...        12, beside which 4 operands fill the 16 registers of AVX2: called
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .machine import Machine

MOST_ACCUMULATORS = 8
"""The most vectors that an inner loop of an inlined kernel holds from one iteration to the next."""

_HEAD = re.compile(r"^define .*$", re.MULTILINE)
_ACCUMULATORS = re.compile(r"(?:^  %[-\w.$]+ = phi <.*\n)+", re.MULTILINE)


def link_inner_kernels(machine: Machine, entries: str, kernels: Sequence[str], suffix: str) -> str:
    """Returns the module of entries with the functions of kernels, each with the suffix at its name."""
    whole = machine.parse(entries)
    for text in kernels:
        attribute = "alwaysinline" if count_accumulators(text) <= MOST_ACCUMULATORS else "noinline"
        module = machine.parse(_HEAD.sub(lambda head: head[0].replace(" noalias", ""), text))
        for function in module.functions:
            if not function.is_declaration:
                function.name += suffix
                function.add_function_attribute(attribute)
        whole.link_in(module)
    return str(whole)


def count_accumulators(text: str) -> int:
    """Returns the number of vectors that the innermost loops of a kernel hold at most."""
    return max((found[0].count("\n") for found in _ACCUMULATORS.finditer(text)), default=0)
