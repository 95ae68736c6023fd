"""Compiles all functions of a module at once and makes them callable, without an artifact: for tests and passes.

Weights are not packed, only shapes are checked, and memory is allocated at every call.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np

from ...dialect.dims import evaluate
from ...dialect.graph import Constant, Function, Module, Parameter
from ...dialect.interpreter import Load, bind_dims, load_parameter
from ...dialect.ops.index_checks import RECORD
from ...dialect.types import Array, TensorType
from ...passes.fold.fold_constants import FoldConstants
from ...passes.simplify.check_indices import CheckIndices
from ...passes.simplify.decompose import Decompose
from ...passes.simplify.unroll_repeat import UnrollRepeat
from ..artifact.link import find_linker, link_shared
from ..host.entry import FAILURE_WORDS
from ..host.plan import LoweredEntry
from ..lower.module import Lowered, lower_module
from ..targets.target import TILE_FEATURES, Target, choose_panels, host_features
from .objects import CodeOptions, Program, generate_objects

_SAVE_TILES = (158, 0x1023, 18)
"""The system call of Linux on x86-64 that makes it save the tile registers of the process: `arch_prctl`,
`ARCH_REQ_XCOMP_PERM`, and the number of their state."""


class Run(Protocol):
    """A function of a module: arrays in the order of arguments to results. `dims` are the sizes of dims that the
    arguments do not define."""

    def __call__(self, arguments: Sequence[Array], dims: Mapping[str, int] | None = None) -> tuple[Array, ...]: ...


_ALIGNMENT = 64


def build_functions(
    module: Module, *, level: int = 0, load: Load | None = None, target: Target | None = None
) -> dict[str, Run]:
    """Compiles a callable for each function of the module, by name: arrays in the order of arguments to results. A call
    raises IndexError where an index is out of range, with the failed check and its record.

    `load` returns the data of parameters. Raises CompilerError.
    """
    module = CheckIndices().run(Decompose(having=("composite",)).run(module))
    if any(node.op == "repeat" for function in module.functions for node in function.body):
        module = FoldConstants().run(UnrollRepeat().run(module))
    return load_functions(
        lower_module(module, pack=choose_panels((target or Target(),)) if level >= 2 else None),
        module.functions,
        level=level,
        load=load,
        target=target,
    )


def load_functions(
    lowered: Lowered,
    functions: Sequence[Function],
    *,
    level: int = 0,
    load: Load | None = None,
    target: Target | None = None,
) -> dict[str, Run]:
    """Compiles a callable for each entry, by name. `functions` defines the types of each entry's arguments and
    results."""
    # At level 0, functions run once or twice: optimising them would take longer than that.
    options = CodeOptions((target or Target(),), level, quick=level == 0)
    return link_functions(lowered, functions, options, load)


def link_functions(
    lowered: Lowered, functions: Sequence[Function], options: CodeOptions, load: Load | None = None
) -> dict[str, Run]:
    """Links object files, which may come from any source, and returns a callable for each entry, by name."""
    program, objects = generate_objects(lowered, replace(options, visible=True))
    return link_program(program, objects, functions, load)


def link_program(
    program: Program, objects: Sequence[bytes], functions: Sequence[Function], load: Load | None = None
) -> dict[str, Run]:
    """Links the objects of a program, whose entries are visible, and returns a callable for each entry, by name."""
    library = link_objects(objects)
    weights = fill_weights(program.lowered, load)
    return {
        entry.name: _callable(library[entry.symbol], entry, function, weights)
        for entry, function in zip(program.entries, functions, strict=True)
    }


def link_objects(objects: Sequence[bytes]) -> ctypes.CDLL:
    if host_features() >= TILE_FEATURES:
        # The runtime of an artifact asks for this itself, in `runtime/cpu.c`.
        ctypes.CDLL(None).syscall(*_SAVE_TILES)
    with tempfile.TemporaryDirectory(prefix="nacre-") as name:
        folder = Path(name)
        names = [f"code_{i}.o" for i in range(len(objects))]
        for file, code in zip(names, objects, strict=True):
            (folder / file).write_bytes(code)
        linker = find_linker()
        for library in linker.stubs:
            ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
        link_shared(linker, folder, names, "functions.so")
        return ctypes.CDLL(str(folder / "functions.so"))


def fill_weights(lowered: Lowered, load: Load | None) -> Array:
    blob = _aligned(lowered.weight_bytes)
    for weight in lowered.weights:
        source = weight.source
        if isinstance(source, Parameter):
            assert load is not None, f"the data of `{source.name}` is needed"
            data = load_parameter(source, load)
        else:
            assert isinstance(source, Constant), source
            data = source.data
        data = weight.store(data)
        assert data.shape == weight.type.shape and data.dtype == weight.type.dtype.numpy, (weight, data.dtype)
        blob[weight.offset : weight.offset + data.nbytes] = np.frombuffer(data.tobytes(), np.uint8)
    return blob


def _aligned(size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    memory = np.zeros(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size]


def _callable(function: Callable[..., int], entry: LoweredEntry, graph: Function, weights: Array) -> Run:
    types = [v.type for v in graph.results]

    def run(arguments: Sequence[Array], dims: Mapping[str, int] | None = None) -> tuple[Array, ...]:
        inputs = [_checked(a, v.type) for a, v in zip(arguments, graph.arguments, strict=True)]
        dims = bind_dims(graph, inputs) if dims is None else dims
        outputs = [_fresh(t, t.concrete(dims)) for t in types]
        workspace = _aligned(evaluate(entry.workspace, dims))
        values = np.array([dims[s.name] for s in entry.dims], np.int64)
        passed = (ctypes.c_int8 * max(1, len(entry.checks)))()
        failure = (ctypes.c_int64 * FAILURE_WORDS)()
        failure[FAILURE_WORDS - 1] = ctypes.addressof(passed)
        failed = function(
            _pointers(inputs),
            _pointers(outputs),
            ctypes.c_void_p(workspace.ctypes.data),
            ctypes.c_void_p(weights.ctypes.data),
            ctypes.c_void_p(values.ctypes.data),
            ctypes.c_void_p(None),  # no team: one thread
            failure,
        )
        if failed:
            raise IndexError(entry.checks[failed - 1], tuple(failure[:RECORD]))
        return tuple(outputs)

    return run


def _checked(array: Array, type: TensorType) -> Array:
    array = np.ascontiguousarray(array).reshape(np.shape(array))
    assert array.dtype == type.dtype.numpy and array.ndim == type.rank, (array.dtype, array.shape, type)
    return array


def _fresh(type: TensorType, shape: tuple[int, ...]) -> Array:
    """Returns memory for a result, filled so that unwritten elements are visible."""
    result = np.empty(shape, type.dtype.numpy)
    result.view(np.uint8).fill(0xA5) if result.ndim else result.reshape(1).view(np.uint8).fill(0xA5)
    return result


def _pointers(arrays: Sequence[Array]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))
