"""Models from JAX: `jax.export` traces a function to StableHLO, which the reader converts."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ....dialect.dims import INFINITY, Size, Symbol, floor_divide, maximum, minimum
from ...model.source import SourceModel
from .stablehlo_model import parse, read_functions


def from_jax(
    function: Any, *args: Any, shapes: Sequence[str | None] | None = None, name: str | None = None
) -> SourceModel:
    """Returns the model of a JAX function, for `nacre.compile`.

    function: a function of arrays, or of containers of arrays; it may be jitted. Arrays that it closes
        over become constants and parameters of the model.
    args: example arguments; their leaves become the arguments of the model, in the order of `jax.tree.leaves`.
    shapes: for each argument, its symbolic shape as `jax.export.symbolic_shape` takes it, such as `"batch, 28, 28"`;
        None for the shape of the example. An equal name is an equal dim.
    name: the name of the entry; by default the name of the function.

    Raises DiagnosticError, also for a function that JAX cannot trace.
    """
    try:
        jax, export = import_module("jax"), import_module("jax.export")
    except ImportError as error:
        message = "a JAX function is read with the Python package `jax`, which is not installed"
        raise DiagnosticError([Diagnostic("no-jax", message, help="pip install 'nacre[jax]'")]) from error
    title = name or str(getattr(function, "__name__", "model"))
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    try:
        specs = _specifications(jax, export, args, shapes)
        exported = export.export(jitted, platforms=("cpu",))(*specs)
    except Exception as error:  # JAX raises errors of many classes for functions that it cannot trace
        text = " ".join(str(error).split())
        raise DiagnosticError([Diagnostic("not-exportable", f"`jax.export` cannot trace `{title}`: {text}")]) from error
    text = str(exported.mlir_module())
    with tempfile.TemporaryDirectory(prefix="nacre-jax-") as folder:
        path = Path(folder) / "function.mlir"
        path.write_text(text, encoding="utf-8")
        functions = parse(path)
    dims: dict[str, Symbol] = {}
    kept = [exported.in_avals[number] for number in exported.module_kept_var_idx]
    return read_functions(functions, title, "<jax>", text, [[_size(s, dims) for s in aval.shape] for aval in kept])


def _specifications(jax: Any, export: Any, args: Sequence[Any], shapes: Sequence[str | None] | None) -> Sequence[Any]:
    """Returns the arguments without data, in their containers."""
    if shapes is not None and len(shapes) != len(args):
        raise ValueError(f"`shapes` has {len(shapes)} entries for {len(args)} arguments")
    scope = export.SymbolicScope()
    specs = []
    for number, argument in enumerate(args):
        given = None if shapes is None else shapes[number]

        def describe(leaf: Any, given: str | None = given) -> Any:
            array = jax.numpy.asarray(leaf)
            shape = array.shape if given is None else export.symbolic_shape(given, scope=scope)
            return jax.ShapeDtypeStruct(shape, array.dtype)

        specs.append(jax.tree.map(describe, argument))
    return specs


def _size(size: Any, dims: dict[str, Symbol]) -> Size:
    """Returns a size of JAX, an `int` or an expression of dims, as a size of the graph."""
    if isinstance(size, int):
        return size
    names: Mapping[str, Any] = {
        **{each: dims.setdefault(each, Symbol(each, 1, INFINITY)).size for each in sorted(size.get_vars())},
        "floordiv": floor_divide,
        "mod": lambda x, y: x - floor_divide(x, y) * y,
        "max": maximum,
        "min": minimum,
    }
    found: Size = eval(str(size), {"__builtins__": {}}, dict(names))  # the text is an expression of JAX's own
    return found
