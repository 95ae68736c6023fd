"""Runs `mypy --strict` over the package as it is installed: `python tests/house/check_types.py`.

mypy knows modules by the folders that they lie in, and no folder of the checkout is called `nacre`. So it is shown one
made of links, kept beside its cache.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
VIEW = ROOT / ".mypy_cache" / "view" / "nacre"
LINKS = {room: ROOT / room for room in ("compiler", "dialect", "passes", "runtime")}
LINKS |= {path.name: path for path in (ROOT / "compiler" / "nacre").glob("*.py")}


def check_types() -> tuple[int, str]:
    """mypy's exit code and what it printed, with the paths of the checkout."""
    VIEW.mkdir(parents=True, exist_ok=True)
    for name, target in LINKS.items():
        link = VIEW / name
        if not (link.is_symlink() and link.readlink() == target):
            link.unlink(missing_ok=True)
            link.symlink_to(target)
    view = str(VIEW.relative_to(ROOT))
    # The root stands at the top of the view, so its other place under `compiler` is left out.
    command = [sys.executable, "-m", "mypy", "--strict", "--exclude", "/compiler/nacre/", view]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.returncode, (done.stdout + done.stderr).replace(f"{view}/", "")


if __name__ == "__main__":
    code, output = check_types()
    print(output, end="")
    sys.exit(code)
