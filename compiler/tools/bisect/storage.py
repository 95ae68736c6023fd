"""Writes a case as files: a self-contained model, its weights and inputs beside it, and a test that shows the error.

`nacre test` of the model fails until the error is fixed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ....dialect.graph import Function
from ....dialect.types import Array
from ...base.files import check_writable, replacing, write_whole
from ...readers.language import load_module
from ...readers.language.model_writer import write_model
from ...validate.judge import Judge
from . import smaller
from .case import Case

_PARTS = ("weights", "inputs", "expected")


def _beside(path: Path, part: str) -> Path:
    return path.with_name(f"{path.stem}.{part}.npz")


def check_paths(path: Path, model: Path) -> None:
    """Raises DiagnosticError if the files of a case cannot be written, or would overwrite the model."""
    if path.resolve() == model.resolve():
        raise DiagnosticError([Diagnostic("cannot-write", f"cannot write `{path}`: it is the model itself")])
    check_writable(path)
    for part in _PARTS:
        check_writable(_beside(path, part))


def write_case(case: Case, path: Path, head: str = "", *, signed: bool = False) -> list[Path]:
    """Writes the model to `path` and its arrays beside it; `head` is the text of its first lines. With `signed`, the
    test compares the signs of zeros, where they are determined. Returns all paths. Raises DiagnosticError before
    writing for a graph that the language cannot express."""
    weights = {case.function.name: _beside(path, "weights").name} if case.parameters else {}
    model = write_model(case.module, weights)
    # Names that are not valid in the language are changed.
    written = smaller.only_function(load_module(model, text=True).module)
    judge = case.judge(in_blocks=True)
    expected = (e.exact.astype(e.dtype.numpy) for e in judge.expected)
    arrays: dict[str, Mapping[str, Array]] = {
        "weights": case.parameters,
        "inputs": {v.name: array for v, array in zip(written.arguments, case.trial_arrays, strict=True)},
        "expected": dict(zip(written.result_names, expected, strict=True)),
    }
    files = {_beside(path, part): held for part, held in arrays.items() if held}
    comment = "".join(f"# {line}\n" for line in head.splitlines())
    for file, held in files.items():
        with replacing(file) as stream:
            np.savez(stream, allow_pickle=False, **held)
    write_whole(path, comment + model + _test(written, path, judge, signed=signed))
    return [path, *files]


def _test(function: Function, path: Path, judge: Judge, *, signed: bool) -> str:
    """Returns a test block with the inputs and the expected results."""
    inputs, expected = (_beside(path, part).name for part in ("inputs", "expected"))
    lines = [f'  given {v.name} = file "{inputs}"' for v in function.arguments]
    for name, expectation in zip(function.result_names, judge.expected, strict=True):
        within = ""
        if expectation.dtype.is_float and expectation.allowed.size:
            # Rounded up, since the text is rounded.
            within = f" within {1.05 * float(expectation.allowed.max()):.1e}"
            within += " signed" if signed and expectation.has_signs else ""
        said = "" if len(function.results) == 1 else f"{name} = "
        lines.append(f'  expect {said}file "{expected}"{within}')
    return "\n".join([f'\ntest {function.name} "the numbers are right" {{', *lines, "}\n"])
