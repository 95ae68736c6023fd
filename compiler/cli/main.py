"""The command line, `nacre COMMAND`: each command has its own file; this one lists them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from io import TextIOWrapper

import click

from ..version import __version__
from .accuracy import accuracy_command
from .bench import bench_command
from .blame import bisect_command, reduce_command
from .build import compile_command
from .diff import diff_command
from .faults import contained
from .graph import graph_command
from .inspection import inspect_command
from .profile import profile_command
from .quantize import quantize_command
from .source import check_command, fmt_command
from .stages import dump_command, opt_command
from .use import run_command, test_command

_EPILOG = """\b
A first look:
  nacre check model.nacre                    report all errors of a model file
  nacre compile model.nacre -o model.so      compile it to a shared library
  nacre run model.so --input x=x.npy         call it
  nacre test model.nacre                     run the tests and budgets in the file
  nacre dump model.nacre --stage linalg      print the output of a compiler stage
  nacre profile model.so                     profile a call by kernel and source line
"""


@click.group(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="nacre")
def cli() -> None:
    """Nacre compiles a model from a text file into one self-contained shared library.

    Exit codes: 0 success, 1 an error in the input, 2 an invalid command line, 70 an internal compiler error.
    """


for _command in (
    compile_command,
    run_command,
    test_command,
    check_command,
    fmt_command,
    dump_command,
    opt_command,
    inspect_command,
    diff_command,
    accuracy_command,
    quantize_command,
    graph_command,
    bench_command,
    profile_command,
    bisect_command,
    reduce_command,
):
    cli.add_command(_command)


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code."""
    # https://no-color.org
    color = False if os.environ.get("NO_COLOR") else None
    return contained(lambda: cli.main(list(arguments), "nacre", standalone_mode=False, color=color), arguments)


def main() -> None:
    """Runs the program `nacre`: its entry point."""
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal cannot show must not fail the command.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # On SIGTERM, exit normally so that partly written files are removed.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
