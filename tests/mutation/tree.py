"""A copy of the checkout in which mutants are planted."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("compiler", "dialect", "passes", "runtime")


class Tree:
    """`root` is the copy; `view` is a folder for PYTHONPATH that holds its packages."""

    def __init__(self, folder: Path) -> None:
        self.root, self.view, self.cache = folder / "tree", folder / "view", folder / "cache"
        self._clock = 10**9
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).exists():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        package = self.view / "nacre"
        package.mkdir(parents=True)
        for room in ROOMS:
            (package / room).symlink_to(self.root / room)
        for path in (self.root / "compiler" / "nacre").iterdir():
            (package / path.name).symlink_to(path)
        # pytest begins a project at its configuration file, and finds the plugins beside it.
        for path in Path(__file__).parent.glob("reach*.py"):
            shutil.copy2(path, self.view / path.name)

    def write(self, file: str, text: str) -> None:
        """Writes a file and dates it anew: bytecode and caches tell files apart by size and time, to the second."""
        path = self.root / file
        path.write_text(text)
        self._clock += 2
        os.utime(path, (self._clock, self._clock))
