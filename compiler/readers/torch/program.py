"""The signature of a program: arguments, parameters and buffers by name, states, and results.

The names of parameters are those of the module. A buffer that the program writes becomes a state, whose initial
value is the stored one. A program that writes into its arguments is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from .writing.package import load_torch


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor of the module: its name and its data."""

    name: str
    tensor: Any


@dataclass(frozen=True, slots=True)
class Program:
    """A graph module, and the meaning of its placeholders and results.

    stored: parameters, buffers and constants, by the name of their placeholder.
    fixed: arguments that are numbers, strings or None, by placeholder; the program is specialized to them.
    results: the names of the results, each with the node (or number) that the program returns.
    written: the nodes of the new values of buffers, by the name of the buffer.
    """

    graph_module: Any
    name: str
    stored: Mapping[str, Stored]
    fixed: Mapping[str, Any]
    results: Sequence[tuple[str, Any]]
    written: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def describe(exported: Any, name: str, names: Mapping[str, str] | None = None) -> Program:
    """Returns the description of an exported program in core ATen. Raises DiagnosticError."""
    signature = exported.graph_signature
    stored: dict[str, Stored] = {}
    fixed: dict[str, Any] = {}
    for spec in signature.input_specs:
        kind, argument = spec.kind.name, spec.arg
        if kind in ("PARAMETER", "BUFFER"):
            tensor = exported.state_dict.get(spec.target)
            tensor = exported.constants[spec.target] if tensor is None else tensor
            stored[argument.name] = Stored(spec.target, tensor)
        elif kind == "CONSTANT_TENSOR":
            stored[argument.name] = Stored(spec.target, exported.constants[spec.target])
        elif kind == "USER_INPUT":
            if hasattr(argument, "value"):
                fixed[argument.name] = argument.value
        else:
            raise _refused("unsupported-argument", f"`{name}` takes {kind.lower().replace('_', ' ')} `{argument.name}`")
    results, written = _results(exported, name)
    ranges = {str(symbol): _range(found) for symbol, found in exported.range_constraints.items()}
    return Program(exported.graph_module, name, stored, fixed, results, written, names or {}, ranges)


def _results(exported: Any, name: str) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
    outputs = next(node for node in exported.graph.nodes if node.op == "output").args[0]
    user: list[Any] = []
    written: dict[str, Any] = {}
    for spec, node in zip(exported.graph_signature.output_specs, outputs, strict=True):
        kind = spec.kind.name
        if kind == "BUFFER_MUTATION":
            written[spec.target] = node
        elif kind in ("USER_OUTPUT", "LOSS_OUTPUT"):
            user.append(node)
        else:
            help_text = "a model that keeps values between calls stores them in buffers"
            message = f"`{name}` writes into its argument or parameter `{spec.target}`"
            raise _refused("writes-argument", message, help_text)
    named = _result_names(exported.call_spec.out_spec, len(user))
    # A result `None` of a module is not a result of the entry.
    return [(label, node) for label, node in zip(named, user, strict=True) if node is not None], written


def _result_names(spec: Any, count: int) -> list[str]:
    """Returns the names of results: the keys of a dict or a record, and positions elsewhere."""
    if count == 0:
        return []
    pytree = load_torch("utils._pytree")
    paths = [path for path, _ in pytree.tree_flatten_with_path(pytree.tree_unflatten(list(range(count)), spec))[0]]
    names = ["_".join(str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", "")))) for key in path)
             for path in paths]  # fmt: skip
    return [f"output_{name}" if name[:1].isdigit() else name or "output" for name in names]


def _range(found: Any) -> tuple[int, int]:
    low, high = str(found.lower), str(found.upper)
    return int(low) if low.isdigit() else 0, int(high) if high.isdigit() else 1 << 62


def _refused(code: str, message: str, help: str = "") -> DiagnosticError:
    return DiagnosticError([Diagnostic(code, message, help=help)])
