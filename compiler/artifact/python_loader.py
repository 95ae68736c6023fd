"""The Python loader of one artifact: a single file that needs numpy, for machines without Nacre.

It consists of the joined modules of Nacre's own loader, followed by a function for each entry. The loading logic thus
exists only once.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from ...dialect.dims import format_size, symbols_of
from .header import unique_names
from .link import RUNTIME_FOLDER
from .spec import ArgumentSpec, ArtifactSpec, EntrySpec, c_identifier

_MODULES = ("library.py", "device_arrays.py", "arguments.py", "states.py", "loader.py")
"""The loader's modules, each after those that it imports."""


def _is_head(node: ast.stmt) -> bool:
    """Whether the statement belongs to the head of a module: docstring, imports, `__all__`. The joined text has one."""
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0]) == "__all__"
    return isinstance(node, ast.Import | ast.ImportFrom | ast.Expr)


def _join_modules() -> tuple[str, set[str]]:
    """Returns the modules as one text, and every name that it defines."""
    plain: set[str] = set()
    parts: dict[str, set[str]] = {}
    bodies: list[str] = []
    defined: set[str] = set()
    for file in _MODULES:
        text = (RUNTIME_FOLDER / file).read_text()
        statements = ast.parse(text).body
        head = list(takewhile(_is_head, statements))
        for node in statements:
            if isinstance(node, ast.Import | ast.ImportFrom):
                defined |= {alias.asname or alias.name for alias in node.names}
                if isinstance(node, ast.Import):
                    plain.add(ast.unparse(node))
                elif node.level == 0 and node.module and node.module != "__future__":
                    parts.setdefault(node.module, set()).update(alias.name for alias in node.names)
            elif isinstance(node, ast.ClassDef | ast.FunctionDef):
                defined.add(node.name)
            else:
                defined |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        bodies.append("\n".join(text.splitlines()[head[-1].end_lineno :]).strip())
    imports = sorted(plain) + [f"from {module} import {', '.join(sorted(parts[module]))}" for module in sorted(parts)]
    return "\n".join(imports) + "\n\n" + "\n\n\n".join(bodies), defined


def _explain(arguments: Sequence[ArgumentSpec]) -> list[str]:
    return [f"        {a.name}: {a.type}" for a in arguments]


def _emit_entry(entry: EntrySpec, function: str) -> str:
    names = unique_names((a.name for a in entry.arguments), [*keyword.kwlist, "out", "session"])
    single = len(entry.results) == 1
    dims = symbols_of(size for a in entry.arguments for size in a.type.shape)
    document = [
        entry.doc or f"The entry `{entry.name}`.",
        "",
        *(["    Arguments:", *_explain(entry.arguments)] if entry.arguments else []),
        *(["    Result:" if single else "    Results, as a named tuple:", *_explain(entry.results)]),
        *([f"    Dims: {', '.join(str(d).removeprefix('dim ') for d in dims)}."] if dims else []),
        f"    Workspace: {format_size(entry.workspace)} bytes.",
        *(["    It has states: `session` is one of `model().session(...)`."] if entry.states else []),
        "    ",
    ]
    session = ["session: Session"] if entry.states else []
    parameters = ", ".join([*(f"{name}: object" for name in names), "*", *session, "out: object = None"])
    returns = "Array" if single else "tuple[Array, ...]"
    passed = "".join(f"{name}, " for name in names)
    called = "session" if entry.states else "model()"
    body = f"    result: {returns} = {called}.entries[{entry.name!r}]({passed}out=out)\n    return result"
    return f"def {function}({parameters}) -> {returns}:\n    {_docstring(document)}\n{body}\n"


def _docstring(lines: Sequence[str]) -> str:
    text = "\n".join(lines).replace("\\", "\\\\").replace('"""', r"\"\"\"")
    return f'"""{text}"""'


def loader_path(artifact: Path) -> Path:
    """Returns the path of an artifact's loader: `model.so` has `model_loader.py`.

    The name is not `model.py`: Python prefers `model.so` in the same folder for the module `model`, and fails.
    """
    return artifact.with_name(f"{c_identifier(artifact.stem)}_loader.py")


def emit_python(spec: ArtifactSpec, file: str | None = None) -> str:
    """Returns the text of the loader. `file` is the artifact's file name; the loader looks for it in its own folder."""
    loader, defined = _join_modules()
    functions = unique_names((e.name for e in spec.entries), {*defined, *keyword.kwlist, "model"})
    entries = [_emit_entry(entry, name) for entry, name in zip(spec.entries, functions, strict=True)]
    public = sorted({"ArgumentError", "ArtifactError", "Model", "NacreError", "Session", "load", "model", *functions})
    head = [
        f"The model `{spec.name}`, for Python with numpy. Written by Nacre {spec.compiler_version}.",
        "",
        "The artifact is expected beside this file; `model(path)` takes it from elsewhere. Its entries are at the end.",
        "",
    ]
    start = f"{_docstring(head)}\n\nfrom __future__ import annotations\n\n"
    tail = f'''


__all__ = {public!r}

_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), {(file or f"{spec.name}.so")!r})
_models: dict[str, Model] = {{}}


def model(path: str | os.PathLike[str] = _FILE) -> Model:
    """The model, loaded at the first use of each path."""
    key = os.path.abspath(path)
    if key not in _models:
        _models[key] = load(key)
    return _models[key]


'''
    return start + loader + tail + "\n\n".join(entries)
