"""Chooses the tests of a mutant: those near its file first, then ever wider circles."""

from __future__ import annotations

import re
from pathlib import Path

WIDER = (
    ("files", ["tests/test_files.py"]),
    ("quick", ["tests", "-m", "quick"]),
    ("models", ["tests/models", "tests/samples/test_digits.py", "tests/differential"]),
    ("operators", ["tests/operators"]),
)
"""Circles beyond the nearest tests, each with pytest's arguments."""


SMALL = (
    "tests/test_files.py",
    *("tests/readers", "tests/passes", "tests/lower", "tests/weights", "tests/quantization", "tests/dialect"),
    *("tests/runtime", "tests/artifact", "tests/codegen", "tests/operators/test_operators.py", "tests/states"),
)
"""Tests that are recorded: those of the folders that mutants are taken from."""


OF_C = {
    "runtime": ("tests/runtime", "tests/artifact", "tests/states"),
    "runtime/cuda": ("tests/gpu",),
}
"""The folders of tests that run the C files of a folder. No probe tells which tests reach a place in C."""


def nearest_tests(path: Path, root: Path) -> list[str]:
    """Returns test files that name the file's stem in their own name, then those that import it, then those of the
    folder that mirrors its folder. `path` is relative to `root`."""
    tests = sorted((root / "tests").rglob("test_*.py"))
    texts = {test: test.read_text() for test in tests}
    module = re.escape(".".join(path.with_suffix("").parts))
    named = [test for test in tests if path.stem in test.stem]
    importing = [test for test in tests if re.search(rf"nacre\.{module}\b|{re.escape(path.name)}", texts[test])]
    mirrored = _mirrored(path.parent, root)
    folders = [root / folder for folder in OF_C.get(str(path.parent), ())] if path.suffix == ".c" else [mirrored]
    beside = [test for test in tests if any(folder in test.parents for folder in folders)]
    return [str(test.relative_to(root)) for test in dict.fromkeys([*named, *importing, *beside])]


def _mirrored(folder: Path, root: Path) -> Path | None:
    """`compiler/readers/language` -> `tests/readers/language`; the closest folder above it where there is none."""
    parts = folder.parts[1:] if folder.parts[0] == "compiler" else folder.parts
    for count in range(len(parts), 0, -1):
        found = root.joinpath("tests", *parts[:count])
        if found.is_dir():
            return found
    return None
