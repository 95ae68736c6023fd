"""The processor time of commands, from the start of the process to its end: `python tests/bench/command_starts.py`.

It prints the least of several runs, beside the time in which Python imports NumPy, which measures the machine.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

RUNS = 7
DIGITS = Path(__file__).parents[2] / "samples" / "digits" / "digits.nacre"
NACRE = ("-m", "nacre.compiler.cli.main")
COMMANDS: Mapping[str, Sequence[str]] = {
    "python -c 'import numpy'": ("-c", "import numpy"),
    "nacre --version": (*NACRE, "--version"),
    f"nacre check {DIGITS.name}": (*NACRE, "check", str(DIGITS)),
}


def cpu_time(arguments: Sequence[str], environment: Mapping[str, str]) -> float:
    """Returns the seconds of processor time of one run of Python."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "NACRE_CACHE": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for arguments in COMMANDS.values():
            cpu_time(arguments, environment)  # compiles modules, and derives the parser
        rounds = [[cpu_time(arguments, environment) for arguments in COMMANDS.values()] for _ in range(RUNS)]
    for name, times in zip(COMMANDS, zip(*rounds, strict=True), strict=True):
        print(f"{min(times):.3f} s  {name}")


if __name__ == "__main__":
    main()
