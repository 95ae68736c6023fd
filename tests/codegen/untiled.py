"""Finds the kernels that the tiler does not support, without generating code for the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from nacre.compiler.base.mlir import ir
from nacre.compiler.codegen.tiler.kernels import write_kernel
from nacre.compiler.codegen.tiler.read import read_kernel
from nacre.compiler.codegen.tiler.structure import Sequential, Unsupported
from nacre.compiler.targets.vector_unit import VectorUnit


@cache
def open_context() -> Any:
    """The MLIR context of all kernels, since creating one takes as long as tiling a small kernel."""
    context = ir.Context()
    context.enable_multithreading(False)
    context.allow_unregistered_dialects = True
    return context


def find_untiled(text: str, units: Iterable[VectorUnit], *, strict: bool = False) -> Iterator[str]:
    """A line for each unit for which the kernel of a text would become plain loops."""
    with open_context():
        module = ir.Module.parse(text)
        kernel = module.body.operations[0]
        for unit in units:
            try:
                # Writing moves tensors to the stack, so every unit gets a kernel of its own.
                write_kernel(read_kernel(kernel), unit, strict=strict)
            except Sequential:
                pass
            except Unsupported as reason:
                name = ir.StringAttr(kernel.attributes["sym_name"]).value
                yield f"{name}: {reason} ({unit.bytes} bytes, {sorted(unit.features)})"
