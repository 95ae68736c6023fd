"""What the tests of the command line share: small models, and ways to run `nacre` in processes of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DIGITS = Path(__file__).parents[2] / "samples" / "digits"

DOUBLE = """dim N in 1..64

model double(x: f32[N, 2]) -> y: f32[N, 2] {
  return x + x
}
"""

SCALED = """dim N in 1..64

model scaled(x: f32[N, 2]) -> f32[N, 2] {
  weights "scale.safetensors"
  param scale: f32[2]
  return x * scale
}
"""


PAGE = Path(__file__).parents[2] / "compiler" / "docs" / "json.md"
SCHEMAS: Mapping[str, Any] = {
    name: json.loads(text)
    for name, text in re.findall(
        r"^## `(\w+) --json`$.*?^```json$(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
}


def check_json(command: str, output: object) -> None:
    """Raises ValidationError if the output differs from the documented one. Checks nothing without jsonschema."""
    if importlib.util.find_spec("jsonschema") is not None:
        importlib.import_module("jsonschema").validate(output, SCHEMAS[command])


_WHOLE = re.compile(r".*\S{50}.*| *(\d+ \| .*|[+-].*)|.*%\w.*|[#;/]+ tiled as .*")
"""Lines that may be wider: those with a long name, source lines, and texts of graphs, MLIR and machine code."""
_CODE = frozenset({"completion", "dump", "fmt", "graph", "import", "opt", "generate"})
"""Commands whose output is text of a language."""
_CONTINUED = re.compile(r"(?<=\S)\n {3,}(?![ |]|-->|= |\S+:\d+:\d)(?=\S)")


def check_width(output: str) -> None:
    """Asserts that lines fit 80 columns."""
    wide = [line for line in output.splitlines() if len(line) > 80 and not _WHOLE.fullmatch(line)]
    assert not wide, "\n".join(wide)


@dataclass(frozen=True)
class Done:
    """The exit code and the output of a command. The lines of a sentence on standard error are joined in `err`."""

    code: int
    out: str
    err: str
    command: str = ""

    def __post_init__(self) -> None:
        if self.command not in ("", *_CODE):
            check_width(self.err)
            if not self.out.lstrip().startswith(("{", "[")):
                check_width(self.out)
        object.__setattr__(self, "err", _CONTINUED.sub(" ", self.err))

    @property
    def sentences(self) -> str:
        """The output, with each sentence on one line."""
        return _CONTINUED.sub(" ", self.out)

    @property
    def json(self) -> Any:
        """The output of `--json`, which agrees with its documentation."""
        data = json.loads(self.out)
        check_json(self.command, data)
        return data


Cli = Callable[..., Done]


def command_line(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "nacre.compiler.cli.main", *map(str, arguments)]


def nacre_process(*arguments: str | Path, **options: Any) -> Done:
    """Runs a command line in a process of its own. It writes no bytecode: one with a limit would cut it short."""
    options.setdefault("env", {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    done = subprocess.run(command_line(*arguments), capture_output=True, text=True, timeout=120, **options)
    return Done(done.returncode, done.stdout, done.stderr, *map(str, arguments[:1]))


def rerun_arguments(folder: Path) -> list[str]:
    """Returns the command line of `nacre` that the script of a reproducer runs; empty if it runs another program."""
    program, *arguments = shlex.split((folder / "rerun.sh").read_text().rpartition("exec ")[2])
    start = command_line()
    return arguments[len(start) - 1 :] if [program, *arguments][: len(start)] == start else []


def on_terminal(*arguments: str | Path, environment: Mapping[str, str] | None = None) -> Done:
    """Runs a command line whose output goes to a terminal; both streams are in `out`."""
    ours, theirs = pty.openpty()
    variables = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40", **(environment or {})}
    process = subprocess.Popen(command_line(*arguments), stdin=theirs, stdout=theirs, stderr=theirs, env=variables)
    os.close(theirs)
    parts = []
    try:
        while part := os.read(ours, 4096):
            parts.append(part)
    except OSError:
        pass  # on Linux the end of a terminal is an error
    os.close(ours)
    return Done(process.wait(timeout=60), b"".join(parts).decode(), "")


def leftovers(folder: Path) -> list[str]:
    """What nobody asked for: hidden files, where temporary ones would be."""
    return [p.name for p in folder.iterdir() if p.name.startswith(".")]
