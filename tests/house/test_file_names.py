"""Modules in neighbouring folders have different names: a name that is read in a trace or a search says what it is."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("compiler", "dialect", "passes", "runtime")
SHARED = {
    "expressions.py": "the language and PMML call them so",
    "fields.py": "PMML and JSON call them so",
    "graph.py": "`nacre graph` and `nacre.graph`",
    "linear.py": "linear models, and leaves that are linear models",
    "models.py": "the language and PMML call them so",
    "nest.py": "the loop nest of a schedule, for CPUs and for GPUs",
    "nodes.py": "nodes of the graph, and nodes of trees as PMML calls them",
    "rows.py": "the schedule of rows, for CPUs and for GPUs",
    "states.py": "states in a graph, and those of a session",
    "text.py": "MLIR text, for CPUs and for GPUs",
    "train.py": "`nacre train`: the command, and its work",
    "windows.py": "windows that slide, and windows that a model reads",
    **dict.fromkeys(
        (
            *("arithmetic.py", "circular.py", "error_function.py", "exponential.py"),
            *("hyperbolic.py", "inverse_circular.py", "logarithm.py", "power.py"),
        ),
        "elementary functions of f32, and of f64",
    ),
}
"""Names in neighbouring folders for which no better word exists, with the reason."""


def shared_names(files: list[Path]) -> set[str]:
    """Returns the names of files whose folders have one parent, or contain each other."""
    folders = defaultdict(list)
    for path in files:
        folders[path.name].append(path.parent)
    return {
        name
        for name, found in folders.items()
        if any(a.parent == b.parent or a in b.parents or b in a.parents for a, b in combinations(found, 2))
    }


def test_neighbours_have_names_of_their_own() -> None:
    files = [path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert shared_names([path for path in files if not path.name.startswith("__")]) == set(SHARED)


def test_shared_names_are_found() -> None:
    names = ("a/b/x.py", "a/c/x.py", "a/y.py", "a/b/y.py", "a/b/z.py", "d/b/z.py")
    assert shared_names([Path(name) for name in names]) == {"x.py", "y.py"}


def test_files_of_tests_have_names_of_their_own() -> None:
    """pytest cannot collect two files of one name whose folders are no packages."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
