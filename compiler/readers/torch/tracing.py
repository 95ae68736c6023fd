"""Traces modules with `torch.export`, with recurrent layers as single nodes.

PyTorch traces a recurrent layer step by step, which requires a constant sequence length. While this module traces a
module, recurrent layers call operators such as `nacre::lstm`, which the tracer records as single nodes: it has shape
functions for them.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from .writing.package import load_torch

_TAIL = "bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first"
_SCHEMAS: Mapping[str, str] = {
    "lstm": f"(Tensor input, Tensor[] hx, Tensor[] params, {_TAIL}) -> (Tensor, Tensor, Tensor)",
    **{
        name: f"(Tensor input, Tensor hx, Tensor[] params, {_TAIL}) -> (Tensor, Tensor)"
        for name in ("gru", "rnn_tanh", "rnn_relu")
    },
}


def export(title: str, module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any) -> Any:
    """Returns the exported program of a module. Raises DiagnosticError."""
    torch = load_torch()
    try:
        with torch.no_grad(), warnings.catch_warnings(), _recurrent_layers():
            warnings.simplefilter("ignore")
            args, kwargs = _distinct(module, (tuple(args), dict(kwargs)))
            return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes)
    except Exception as error:  # torch raises errors of many classes for programs that it cannot trace
        text = " ".join(str(error).split())
        raise DiagnosticError(
            [Diagnostic("not-exportable", f"`torch.export` cannot trace `{title}`: {text}")]
        ) from error


def _distinct(module: Any, arguments: Any) -> Any:
    """Returns arguments without repeated tensors. `torch.export` identifies arguments that are the same object: a
    program that is traced with `(x, x)` reads only one of both."""
    seen = {id(each) for each in (*module.parameters(), *module.buffers())}

    def distinguish(argument: Any) -> Any:
        found = argument.detach() if id(argument) in seen else argument
        seen.add(id(argument))
        return found

    torch, pytree = load_torch(), load_torch("utils._pytree")
    return pytree.tree_map_only(torch.Tensor, distinguish, arguments)


@cache
def _operators() -> Any:
    """Defines the operators of recurrent layers, once in a process. The library must stay alive."""
    torch = load_torch()
    library = torch.library.Library("nacre", "FRAGMENT")
    functions = torch._C._VariableFunctions
    for name, schema in _SCHEMAS.items():
        library.define(name + schema)
        library.impl(name, partial(_run, getattr(functions, name)), "CompositeExplicitAutograd")
        torch.library.register_fake(f"nacre::{name}", partial(_shapes, name), lib=library)
    return library


def _run(function: Any, *arguments: Any) -> Any:
    return tuple(each.clone() for each in function(*arguments))


def _shapes(name: str, x: Any, hx: Any, params: Sequence[Any], *rest: Any) -> tuple[Any, ...]:
    states = list(hx) if name == "lstm" else [hx]
    directions = 2 if rest[4] else 1
    output = x.new_empty((*x.shape[:-1], directions * states[0].shape[-1]))
    return (output, *(state.new_empty(state.shape) for state in states))


class _Functions:
    """A replacement of `torch._VF` in the module of recurrent layers."""

    def __init__(self, original: Any, operators: Any) -> None:
        self._original, self._operators = original, operators

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, name) if name in _SCHEMAS else getattr(self._original, name)

    def _call(self, name: str, *arguments: Any) -> Any:
        # Sequences of different lengths have a packed form, with other arguments.
        if len(arguments) != 9 or not isinstance(arguments[3], bool):
            return getattr(self._original, name)(*arguments)
        return getattr(self._operators, name)(*arguments)


@contextlib.contextmanager
def _recurrent_layers() -> Iterator[None]:
    torch = load_torch()
    _operators()
    home = load_torch("nn.modules.rnn")
    original = home._VF
    home._VF = _Functions(original, torch.ops.nacre)
    try:
        yield
    finally:
        home._VF = original
