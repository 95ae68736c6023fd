"""Reads PyTorch programs: modules, exported programs, and `.pt2` files."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ...model.source import SourceModel, WeightSource
from . import pt2_file as archive
from .assemble import assemble
from .convert import operator_names
from .program import describe
from .pt2_file import load_program
from .tracing import export
from .writing.package import load_torch


def read_pt2(path: Path, weights: WeightSource | None = None) -> SourceModel:
    """Reads a file of `torch.export.save`; `weights` replace its parameters, by name. Raises DiagnosticError."""
    exported = load_program(path)
    try:
        lowered = _lowered(exported)
    except Exception as error:  # torch raises errors of many classes for nodes that contradict each other
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise _error("bad-pt2", f"the program of `{path}` contradicts itself: {reason}") from error
    return assemble(describe(lowered, path.stem), str(path), weights)


def refuse_pickle(path: Path, weights: WeightSource | None = None) -> SourceModel:
    """Refuses a file of `torch.save` as a model: it holds weights, and no graph."""
    raise archive.refuse_pickle(path)


def read_exported(
    exported: Any,
    name: str = "model",
    file: str = "<torch>",
    weights: WeightSource | None = None,
    names: Mapping[str, str] | None = None,
) -> SourceModel:
    """Reads an exported program."""
    return assemble(describe(_lowered(exported), name, names), file, weights)


def _lowered(exported: Any) -> Any:
    """Returns a program in which operators without a converter are decomposed to core ATen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return exported.run_decompositions(decompositions())


def decompositions() -> Any:
    """Returns PyTorch's decompositions to core ATen, except those of operators that have a converter."""
    torch = load_torch()
    table = torch.export.default_decompositions()
    for name in operator_names():
        base, _, overload = name.partition(".")
        packet = getattr(torch.ops.aten, base, None)
        if packet is not None and overload in packet.overloads():
            table.pop(getattr(packet, overload), None)
    return table


def from_torch(
    module: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    name: str | None = None,
) -> SourceModel:
    """Returns the model of a PyTorch module, for `nacre.compile`.

    module: a `torch.nn.Module`, or an `ExportedProgram`, which needs no arguments.
    args, kwargs: example arguments. Only dtypes and shapes of tensors matter; the program is specialized to the values
        of other arguments.
    dynamic_shapes: the symbolic axes of the arguments, as `torch.export.export` takes them. The dims of the model have
        the names and the bounds of these `Dim`s.
    name: the name of the entry; by default the name of the module's class.

    Raises DiagnosticError, also for a module that `torch.export` cannot trace.
    """
    torch = load_torch()
    if isinstance(module, torch.export.ExportedProgram):
        return read_exported(module, name or "model")
    if not isinstance(module, torch.nn.Module):
        raise _error("no-module", f"`from_torch` takes a torch.nn.Module or an ExportedProgram, not {type(module)}")
    if not isinstance(args, Sequence):
        message = f"`args` must be a tuple of example arguments, not a {type(args).__name__}"
        raise _error("not-exportable", message, "write `from_torch(module, (x,))`")
    title = name or type(module).__name__
    exported = export(title, module, args, kwargs or {}, dynamic_shapes)
    return read_exported(exported, title, names=_dim_names(exported))


def _dim_names(exported: Any) -> dict[str, str]:
    """Returns the names of `Dim`s by the symbols of the program."""
    names: dict[str, str] = {}
    for node in exported.graph.nodes:
        shape = getattr(node.meta.get("val"), "shape", ()) if node.op == "placeholder" else ()
        for size in shape:
            environment = getattr(getattr(size, "node", None), "shape_env", None)
            sources = {} if environment is None else getattr(environment, "source_name_to_debug_name", {})
            found = {} if environment is None else getattr(environment, "source_to_var", {})
            for source, symbol in found.items():
                if source in sources:
                    names[str(symbol)] = sources[source]
    return names


def _error(code: str, message: str, help: str = "") -> DiagnosticError:
    return DiagnosticError([Diagnostic(code, message, help=help)])
