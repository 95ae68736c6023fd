"""Runs a text of StableHLO in the interpreter of graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nacre.compiler.readers.table import read_file
from nacre.dialect.interpreter import Interpreter


def run(tmp_path: Path, text: str, *arguments: Any) -> list[Any]:
    """Returns the results of the only function of a text."""
    path = tmp_path / "net.mlir"
    path.write_text(text)
    source = read_file(path)
    (function,) = source.module.functions
    weights = source.weights[function.name]
    return list(Interpreter(source.module, lambda p: weights.read(p.key)).run(function, arguments))
