"""A graph as a file that can be run again, and as text for people."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import numpy as np
from nacre.compiler.validate.inputs import Limit
from nacre.dialect.dims import format_size, parse_size
from nacre.dialect.parser import parse_module
from nacre.dialect.printer import collect_constants, print_module

from .check import Failure
from .maker import Graph


def describe(graph: Graph) -> str:
    """The text of the graph, and the sizes that its dims take."""
    bindings = "".join(f"// with {dict(b)}\n" for b in graph.bindings if b)
    return f"// seed {graph.seed}\n{bindings}{print_module(graph.module)}"


def save_graph(graph: Graph, failure: Failure, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{graph.seed}-{failure.level.text.replace('@', '-')}.json"
    constants = io.BytesIO()
    np.savez(constants, **collect_constants(graph.module))
    content = {
        "failure": str(failure),
        "seed": graph.seed,
        "graph": print_module(graph.module).splitlines(),
        "bindings": [dict(b) for b in graph.bindings],
        "limits": {
            name: [format_size(limit.size), format_size(limit.window), limit.checked]
            for name, limit in graph.limits.items()
        },
        "constants": base64.b64encode(constants.getvalue()).decode(),
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


def load_graph(path: Path) -> Graph:
    content = json.loads(path.read_text(encoding="utf-8"))
    constants = dict(np.load(io.BytesIO(base64.b64decode(content["constants"]))))
    module = parse_module("\n".join(content["graph"]) + "\n", constants=constants)
    dims = {d.name: d for d in module.dims}
    limits = {
        name: Limit(parse_size(size, dims), parse_size(window, dims), checked)
        for name, (size, window, checked) in content["limits"].items()
        if _is_known(size, set(dims)) and _is_known(window, set(dims))
    }
    return Graph(content["seed"], module, tuple(content["bindings"]), limits)


def _is_known(text: str, dims: set[str]) -> bool:
    """Has every dim of the size stayed in the graph?"""
    words = "".join(c if c.isalnum() or c == "_" else " " for c in text).split()
    return all(word in dims for word in words if not word.isdigit())
