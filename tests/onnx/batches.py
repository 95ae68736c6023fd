"""Compiles many small models as the entries of one artifact, and calls them in a process that may crash.

A build has a fixed cost, and every test of the suite needs a real artifact: models with constant shapes are united,
each with its own names of parameters. If the build of a batch fails, its halves are built, down to single models.
"""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import ml_dtypes
import nacre
import numpy as np
from backend_cases import BackendCase, DataSet
from nacre.compiler.base.compiler_errors import CompilerError
from nacre.compiler.model.source import SourceModel
from nacre.compiler.weights import open_arrays
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.graph import Function, Module, Node, Parameter, walk


@dataclass(frozen=True)
class ReadCase:
    """A test whose model was read."""

    case: BackendCase
    source: SourceModel
    sets: Sequence[DataSet]
    stated: Sequence[str] = ()


@dataclass(frozen=True)
class Outcome:
    """The result of a test: `pass`, or the kind of its failure, with a reason."""

    name: str
    kind: str
    reason: str = ""


def can_be_united(read: ReadCase) -> bool:
    """Returns whether a model is small and has constant shapes; a whole network is built alone."""
    return not read.source.module.dims and not read.case.name.startswith("real/")


def unite(sources: Sequence[SourceModel]) -> SourceModel:
    """Returns one model with the functions `entry_0`, `entry_1`, ..."""
    functions: list[Function] = []
    parameters: list[Parameter] = []
    arrays: dict[str, Any] = {}
    for number, source in enumerate(sources):
        (function,) = source.module.functions
        prefix = f"{number}."
        parameters += [replace(p, name=prefix + p.name) for p in source.module.parameters]
        weights = source.weights[function.name]
        if source.module.parameters:
            assert weights is not None and not isinstance(weights, Path)
            arrays |= {prefix + p.name: weights.read(p.key) for p in source.module.parameters}
        body = tuple(_renamed(node, prefix) for node in function.body)
        functions.append(replace(function, name=f"entry_{number}", body=body))
    dims = sources[0].module.dims if len(sources) == 1 else ()
    module = Module("suite", dims, tuple(parameters), tuple(functions))
    stored = open_arrays(arrays) if arrays else None
    return SourceModel(module, "suite", {function.name: stored for function in functions})


def _renamed(node: Node, prefix: str) -> Node:
    assert not any(inner.op == "parameter" for region in node.regions for inner in walk(region.body)), node
    if node.op != "parameter":
        return node
    return replace(node, attributes=(("name", f"{prefix}{node.attribute('name')}"),))


def run_batch(cases: Sequence[ReadCase], folder: Path, time_limit: float, level: int = 2) -> list[Outcome]:
    """Builds the cases as one artifact and calls each entry with all data of its test."""
    path = folder / f"batch_{abs(hash(tuple(c.case.name for c in cases)))}.so"
    try:
        nacre.compile(unite([c.source for c in cases]), path, opt_level=level)
    except (DiagnosticError, CompilerError, AssertionError, Exception) as error:
        if len(cases) == 1:
            return [Outcome(cases[0].case.name, _kind_of(error), _short(error))]
        half = len(cases) // 2
        parts = (cases[:half], cases[half:])
        return [outcome for part in parts for outcome in run_batch(part, folder, time_limit, level)]
    try:
        return _call_all(cases, path, time_limit)
    finally:
        path.unlink(missing_ok=True)


def _kind_of(error: BaseException) -> str:
    return error.diagnostics[0].code if isinstance(error, DiagnosticError) else "compiler-error"


def _short(error: BaseException) -> str:
    text = error.diagnostics[0].message if isinstance(error, DiagnosticError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:200]


def _call_all(cases: Sequence[ReadCase], path: Path, time_limit: float) -> list[Outcome]:
    """Calls the entries in a child process; a crash or a call over the time limit ends the child, not the run."""
    context = multiprocessing.get_context("fork")
    outcomes: list[Outcome] = []
    while len(outcomes) < len(cases):
        here, there = context.Pipe()
        child = context.Process(target=_serve, args=(there, cases, path, len(outcomes)))
        child.start()
        there.close()
        while len(outcomes) < len(cases):
            case = cases[len(outcomes)].case
            try:
                if not here.poll(time_limit):
                    outcomes.append(Outcome(case.name, "time-out", f"a call took more than {time_limit:g} s"))
                    break
                outcomes.append(Outcome(case.name, *here.recv()))
            except EOFError:
                child.join(10)
                outcomes.append(Outcome(case.name, "crash", f"the process ended with code {child.exitcode}"))
                break
        child.kill()
        child.join()
        here.close()
    return outcomes


def _serve(pipe: Connection, cases: Sequence[ReadCase], path: Path, first: int) -> None:
    model = nacre.load(path)
    for number in range(first, len(cases)):
        pipe.send(_check(model.entries[f"entry_{number}"], cases[number]))
    pipe.close()


def _is_rounding(expected: Sequence[Any], actual: Sequence[Any]) -> bool:
    """Returns whether floats differ by no more than 4 roundings of the greatest element: the expectation is rounded
    too, and the tolerance of the test is relative to each element."""
    for e, a in zip(expected, actual, strict=True):
        e, a = np.asarray(e), np.asarray(a)
        if e.dtype != a.dtype or e.shape != a.shape or e.dtype.kind != "f":
            return False
        bound = 4 * float(np.finfo(e.dtype).eps) * float(np.abs(e).max(initial=0))
        if not float(np.abs(e.astype(np.float64) - a.astype(np.float64)).max(initial=0)) <= bound:
            return False
    return True


_HELD = {
    **dict.fromkeys(("int2", "int4"), np.dtype(np.int8)),
    **dict.fromkeys(("uint2", "uint4"), np.dtype(np.uint8)),
    **dict.fromkeys(("float8_e4m3fnuz", "float8_e5m2fnuz"), np.dtype(np.float16)),
    "float4_e2m1fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e8m0fnu": np.dtype(ml_dtypes.bfloat16),
}
"""The dtypes of arguments and results of an artifact that stand for others, which the graph does not have."""


def _as_argument(array: Any) -> Any:
    if array.dtype.kind in "OU":
        return nacre.encode_strings(array)
    held = _HELD.get(array.dtype.name)
    return array if held is None else array.astype(np.float32).astype(held)


def _as_expected(array: Any, expected: Any) -> Any:
    """Returns a result in the dtype that the test expects, which must have all of its numbers."""
    wanted = np.asarray(expected).dtype
    if wanted.kind in "OU":
        return nacre.decode_strings(array)
    if wanted.name not in _HELD:
        return array
    assert array.dtype == _HELD[wanted.name], (array.dtype, wanted)
    exact = array.astype(np.float32)
    made = exact.astype(wanted)
    assert np.array_equal(made.astype(np.float32), exact, equal_nan=True), (array, wanted)
    return made


def _without_padding(results: Sequence[Any], names: Sequence[str], expected: Sequence[Any]) -> list[Any]:
    """Returns the results without their sizes: a result `y_size` is the size of `y` in the one axis in which `y` is
    longer than expected."""
    made: list[Any] = []
    previous = ""
    for name, result in zip(names, results, strict=True):
        if made and name == f"{previous}_size":
            whole, wanted = np.asarray(made[-1]), np.shape(expected[len(made) - 1])
            # Strings have an axis of bytes more than expected.
            axes = [axis for axis, size in enumerate(wanted) if whole.shape[axis] != size]
            assert len(axes) <= 1, (whole.shape, wanted)
            axis = axes[0] if axes else int(np.argmax(np.array(whole.shape) == int(result)))
            made[-1] = np.take(whole, range(int(result)), axis)
            assert not np.take(whole, range(int(result), whole.shape[axis]), axis).any(), whole
        else:
            made.append(result)
        previous = name
    return made


def _flat(values: Sequence[Any]) -> list[Any]:
    """Returns the tensors of values, each sequence in its place; an empty optional value has none."""
    listed = [value if isinstance(value, list) else [value] for value in values]
    return [each for items in listed for each in items if each is not None]


def _check(entry: Any, read: ReadCase) -> tuple[str, str]:
    for data in read.sets:
        try:
            made = entry(*(_as_argument(np.asarray(x)) for x in _flat(data.inputs)))
        except Exception as error:
            return "failed-call", _short(error)
        results = list(made) if isinstance(made, (tuple, list)) else [made]
        try:
            expected = _flat(data.outputs)
            results = _without_padding(results, read.source.module.functions[0].result_names, expected)
            assert len(results) == len(expected), f"{len(results)} results, expected {len(expected)}"
            results = [_as_expected(np.asarray(a), e) for a, e in zip(results, expected, strict=True)]
            read.case.check(expected, results)
        except (AssertionError, TypeError, AttributeError) as error:
            kind = "rounding" if _is_rounding(_flat(data.outputs), results) else "wrong-value"
            return kind, _short(error) or traceback.format_exc(limit=1)
    return "pass", f"with stated {', '.join(read.stated)}" if read.stated else ""
