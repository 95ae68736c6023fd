"""The single-file Python loader works where Nacre is not installed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from c_models import argument, build, entry, zoo
from nacre.compiler.artifact.assemble import Placement
from nacre.compiler.artifact.python_loader import emit_python, loader_path
from nacre.compiler.artifact.spec import ArtifactSpec
from nacre.dialect.types import F32

CODE = """
import inspect
import sys
sys.modules["nacre"] = None  # as if it were not installed
import numpy as np
import zoo_loader as zoo
x = np.ones((1, 3), np.float32)
print(zoo.add(x, x), zoo.add(x=x, y=x), zoo.constant())
head, tail = zoo.split(np.arange(3, dtype=np.float32))
print(head, tail)
out = np.empty_like(x)
print(zoo.add(x, x, out=out) is out)
try:
    zoo.add(x, x[0])
except zoo.ArgumentError as error:
    print(error)
print(zoo.model().describe()["name"], zoo.load(sys.argv[1]) is not None)
print(inspect.getdoc(zoo.add))
print(sorted(m for m in sys.modules if m.split(".")[0] in {"nacre", "ml_dtypes", "safetensors", "lark"}))
"""

SHOWN = """\
[[2. 2. 2.]] [[2. 2. 2.]] 7.0
[0.] [1. 2.]
True
argument `y`: expected f32[B, T], got f32[3] (rank 1, expected 2)
zoo True
The sum of two arrays.

Arguments:
    x: f32[B, T]
    y: f32[B, T]
Result:
    sum: f32[B, T]
Dims: B in 1..64, T in 0..512.
Workspace: 4*B*T bytes.
"""


@pytest.mark.parametrize("placement", ["embedded", "external"])
def test_without_nacre(tmp_path: Path, placement: Placement) -> None:
    path = build(zoo(), tmp_path / "zoo.so", placement)
    loader_path(path).write_text(emit_python(zoo()))
    command = [sys.executable, "-c", CODE, str(path)]
    shown = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.splitlines()
    assert [line.rstrip() for line in shown[:-1]] == SHOWN.splitlines()
    assert shown[-1] == "['nacre']"  # only the mark that it is not installed


def test_it_imports_the_standard_library_and_numpy() -> None:
    tree = ast.parse(emit_python(zoo()))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} - set(sys.stdlib_module_names) == {"numpy"}


def test_names_that_python_does_not_allow() -> None:
    entries = (
        entry("load", [argument("class", F32), argument("out", F32)], [argument("y", F32)]),
        entry("Model", [argument("x.y", F32)], [], doc='a "quoted\\" text """ here'),
        entry("lambda", [], [argument("y", F32)]),
    )
    tree = ast.parse(emit_python(ArtifactSpec("x", entries)))
    functions = {node.name: [a.arg for a in node.args.args] for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert functions["load_"] == ["class_", "out_"]
    assert functions["Model_"] == ["x_y"]
    assert functions["lambda_"] == []
