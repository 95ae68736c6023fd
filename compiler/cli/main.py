"""The command line, `nacre COMMAND`: commands stand in files of their own; this one lists them."""

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
  nacre check model.nacre                    find every fault of a model file
  nacre compile model.nacre -o model.so      make a shared library of it
  nacre run model.so --input x=x.npy         call it
  nacre test model.nacre                     run the tests and budgets in the file
  nacre dump model.nacre --stage linalg      see what the compiler made of it
  nacre profile model.so                     see where the time of a call goes
"""


@click.group(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="nacre")
def cli() -> None:
    """Nacre compiles a model, written as readable text, into one self-contained shared library.

    Exit codes: 0 all is well, 1 a fault of the input, 2 a wrong command line, 70 a fault of the compiler.
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
    """Runs one command line, and gives its exit code."""
    # https://no-color.org
    color = False if os.environ.get("NO_COLOR") else None
    return contained(lambda: cli.main(list(arguments), "nacre", standalone_mode=False, color=color), arguments)


def main() -> None:
    """The entry point of the program `nacre`."""
    for stream in (sys.stdout, sys.stderr):
        # What a terminal cannot show is no reason to fail.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # Ended from outside, it still removes what it has half written.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
