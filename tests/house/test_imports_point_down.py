"""The tree is the pipeline and imports point down it: compiler -> passes -> dialect, and runtime imports none of them.

Also: each package uses certain third-party packages alone, one file imports MLIR, and no code generator imports another
one, or reads what `codegen/structured` reads for all.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from nacre.compiler.tools.reference.architecture import statements

ROOT = Path(__file__).parents[2]
MLIR = {"mlir", "torch_mlir"}
MLIR_SEAM = Path("compiler/base/mlir.py")
LITERALS = {"import_module", "find_spec", "__import__"}


@dataclass(frozen=True)
class Room:
    """What a room may import: other rooms, and packages beside the standard library.

    `optional` packages may be looked for while the program runs, by `import_module` or `find_spec`.
    """

    rooms: frozenset[str]
    packages: frozenset[str]
    optional: frozenset[str] = frozenset()


ROOMS = {
    "dialect": Room(frozenset(), frozenset({"numpy", "ml_dtypes", "lark"})),
    "passes": Room(frozenset({"dialect"}), frozenset({"numpy", "ml_dtypes"})),
    "runtime": Room(frozenset(), frozenset({"numpy"}), optional=frozenset({"ml_dtypes", "ray", "torch"})),
    "compiler": Room(
        frozenset({"dialect", "passes", "runtime"}),
        frozenset({"numpy", "ml_dtypes", "lark", "llvmlite", "safetensors", "click", "rich", *MLIR}),
        optional=frozenset(
            {"gguf", "h5py", "igraph", "jax", "jinja2", "matplotlib", "onnx", "onnxruntime", "skops", "starlette"}
            | {"nvidia", "tensorboard", "tokenizers", "torch", "uvicorn", "wandb", "ziglang"}
        ),
    ),
}
SERVED = {
    Path("compiler/tools/language_server"): frozenset({"lsprotocol", "pygls"}),
    Path("compiler/tools/serve"): frozenset({"starlette"}),
    Path("compiler/tools/generate/chat_templates.py"): frozenset({"jinja2"}),
}
"""Folders and modules that one command imports, with the packages that they are built on."""
CODEGEN = "nacre.compiler.codegen"
APART = {
    Path("compiler/codegen/structured"): (f"{CODEGEN}.tiler", f"{CODEGEN}.gpu"),
    Path("compiler/codegen/gpu"): (f"{CODEGEN}.tiler",),
    Path("compiler/codegen/tiler"): (f"{CODEGEN}.gpu",),
}
"""Folders, and packages that their files do not import: targets, and what all targets build on."""
READ_ONCE = {
    *("indexing_maps", "iterator_types", "reassociation"),
    *(f"static_{name}" for name in ("offsets", "output_shape", "sizes", "strides")),
}
"""The attributes of structured ops and views that `codegen/structured` reads for all targets."""
FILES = sorted(path.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def module_of(path: Path) -> list[str]:
    """The dotted name of the package that relative imports of a file start from."""
    if path.parts[:2] == ("compiler", "nacre"):
        return ["nacre", *path.parts[2:-1]]
    return ["nacre", *path.parts[:-1]]


def imported_names(path: Path, source: str) -> Iterator[tuple[int, str, bool]]:
    """Line and absolute name of all that a file imports, also inside functions, and whether `import_module` does it."""
    package = module_of(path)
    # Calls are among the nodes of expressions, which most files need not be searched for.
    for node in ast.walk(ast.parse(source)) if any(name in source for name in LITERALS) else statements(source):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, False) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            full = [*base, *(node.module.split(".") if node.module else [])]
            # `from .. import types` names a module of the package, `from ..types import F32` a name in a module.
            yield from ((node.lineno, ".".join([*full, alias.name]), False) for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            name = node.args[0].value
            if function in LITERALS and isinstance(name, str) and not name.startswith("."):
                yield node.lineno, name, True


def find_errors(path: Path, source: str) -> list[str]:
    if path.parts[:2] == ("compiler", "nacre"):
        return []  # the root of the package hands on the public names of every room
    room = ROOMS[path.parts[0]]
    faults = []
    for line, name, by_call in imported_names(path, source):
        top, *rest = name.split(".")
        if top == "nacre":
            target = rest[0] if rest else "nacre"
            wrong = target != path.parts[0] and target not in room.rooms
        else:
            served = SERVED.get(path.parent, frozenset()) | SERVED.get(path, frozenset())
            allowed = room.packages | (room.optional if by_call else served)
            wrong = top not in allowed and top not in sys.stdlib_module_names
            wrong |= top in MLIR and path != MLIR_SEAM
        if wrong:
            faults.append(f"{path}:{line}: imports {name}")
    return faults


def find_second_readers(path: Path, source: str) -> list[str]:
    """Returns the imports of one code generator in another one, and the attributes that it reads itself."""
    folder = next((folder for folder in APART if path.is_relative_to(folder)), None)
    if folder is None:
        return []
    names = [(line, name) for line, name, _ in imported_names(path, source)]
    faults = [
        f"{path}:{line}: imports {name}"
        for line, name in names
        if name.startswith(tuple(f"{other}." for other in APART[folder]))
    ]
    if folder.name == "structured":
        return faults
    if not any(name in source for name in READ_ONCE):
        return faults
    read = (node.slice for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Subscript))
    known = [key for key in read if isinstance(key, ast.Constant) and key.value in READ_ONCE]
    return faults + [f"{path}:{key.lineno}: reads {key.value}" for key in known]


def test_targets_are_apart() -> None:
    files = [path for path in FILES if any(path.is_relative_to(folder) for folder in APART)]
    faults = [fault for path in files for fault in find_second_readers(path, (ROOT / path).read_text(encoding="utf-8"))]
    assert len(files) > 100, len(files)
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("compiler/codegen/gpu/x.py", "from ..tiler.structure import Op"),
        ("compiler/codegen/gpu/x.py", "def f():\n  from ..tiler import read"),
        ("compiler/codegen/tiler/parts/x.py", "from ...gpu.nest import Nest"),
        ("compiler/codegen/structured/x.py", "from ..tiler.text import Writer"),
        ("compiler/codegen/gpu/x.py", "maps = op.attributes['indexing_maps']"),
        ("compiler/codegen/tiler/x.py", "known = list(op.attributes['static_sizes'])"),
    ],
)
def test_second_readers_are_found(path: str, source: str) -> None:
    assert len(find_second_readers(Path(path), source)) == 1


def test_imports_point_down() -> None:
    """One test for all files: a test for each would take longer than the check."""
    faults = [fault for path in FILES for fault in find_errors(path, (ROOT / path).read_text(encoding="utf-8"))]
    assert len(FILES) > 500, len(FILES)
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("dialect/x.py", "from ..passes import manager"),
        ("dialect/ops/x.py", "from ... import compiler"),
        ("dialect/x.py", "import nacre.compiler.api"),
        ("dialect/x.py", "import nacre"),
        ("passes/x.py", "def f():\n  from ..compiler.api import compile"),
        ("passes/x.py", "import lark"),
        ("runtime/x.py", "from ..dialect.types import F32"),
        ("runtime/x.py", "import ml_dtypes"),
        ("runtime/x.py", "import importlib\nm = importlib.import_module('jax')"),
        ("compiler/lower/x.py", "import torch_mlir.ir"),
        ("compiler/x.py", "import onnx"),
    ],
)
def test_faults_are_found(path: str, source: str) -> None:
    assert len(find_errors(Path(path), source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("dialect/ops/x.py", "from ..types import F32\nfrom . import common\nimport numpy, ml_dtypes"),
        ("passes/x.py", "from ..dialect import graph"),
        (
            "compiler/readers/language/x.py",
            "from ...dialect import dims\nfrom ...runtime import loader\nfrom .. import version",
        ),
        ("compiler/base/mlir.py", "import torch_mlir.ir"),
        ("runtime/x.py", "import ctypes, numpy.typing"),
        ("runtime/x.py", "import importlib\nm = importlib.import_module('ml_dtypes')"),
    ],
)
def test_good_imports_pass(path: str, source: str) -> None:
    assert not find_errors(Path(path), source)
