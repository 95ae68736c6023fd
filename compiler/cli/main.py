"""The command line, `nacre COMMAND`: each command has its own file; this one lists them."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from io import TextIOWrapper
from types import ModuleType

import click

from ..base.environment import CHECK_PASSES, use_one_blas_thread
from ..version import __version__
from .reporting import contained

_EPILOG = """\b
A first look:
  nacre check model.nacre                report all errors of a model file
  nacre compile model.nacre -o model.so  compile it to a shared library
  nacre run model.so --input x=x.npy     call it
  nacre test model.nacre                 run its tests and budgets
  nacre dump model.nacre --stage linalg  print the output of a compiler stage
  nacre profile model.so                 measure kernels and source lines
  nacre help shape-mismatch              explain a diagnostic or an operator
"""


_COMMANDS: Mapping[str, tuple[str, str]] = {
    "accuracy": ("accuracy", "Measure the error of a model on samples, layer by layer"),
    "bench": ("bench", "Measure the latency of calls and the memory of a model"),
    "bisect": ("triage", "Find the rewrite or the kernel that computes wrong numbers"),
    "chat": ("generating", "Talk with a compiled language model"),
    "check": ("check_sources", "Report all errors of model files and their checkpoints"),
    "compile": ("build", "Compile a model file into a shared library"),
    "completion": ("help", "Print a script that completes commands in a shell"),
    "diff": ("diff", "Compare two builds tensor by tensor"),
    "dump": ("dump_and_opt", "Print the output of a stage, or the difference of two stages"),
    "fmt": ("formatting", "Rewrite model files in the canonical format"),
    "generate": ("generating", "Continue a text with a compiled language model"),
    "graph": ("graph", "Draw a model: blocks, shapes, parameters and kernels"),
    "help": ("help", "Explain an operator, a construct, a diagnostic or a pass"),
    "import": ("importing", "Write a model of another format as model text"),
    "inspect": ("inspection", "Describe an artifact: entries, memory, target, libraries"),
    "lsp": ("lsp", "Serve an editor with diagnostics, hover texts and completion"),
    "opt": ("dump_and_opt", "Run graph passes on the text of a graph"),
    "profile": ("profile", "Attribute the time of a call to kernels and source lines"),
    "quantize": ("quantize", "Search for the fastest precision of each layer"),
    "reduce": ("triage", "Reduce a failing model to a small one"),
    "run": ("run_and_test", "Call a model"),
    "serve": ("serving", "Serve a compiled model over HTTP"),
    "test": ("run_and_test", "Run the tests and budgets of a model file"),
    "train": ("train", "Train a model on the samples of a file"),
}
"""The module of each command, which is imported when the command is needed, and a summary for the list of commands."""

_ON_ONE_THREAD = ("bisect", "check", "completion", "fmt", "help", "lsp", "reduce")
"""Commands that multiply no matrices, or many small ones. NumPy's library for matrices starts a pool of threads when it
is imported, which takes a tenth of the time of `nacre check`. If other processes use the CPUs, waiting for these
threads takes longer than small products."""


class Commands(click.Group):
    """A group whose commands are imported on demand: together, they need most of the compiler."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _COMMANDS and cmd_name not in self.commands:
            module = _imported(f".{_COMMANDS[cmd_name][0]}")
            self.add_command(getattr(module, f"{cmd_name}_command"))
        return self.commands.get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _COMMANDS and name[:1].isalnum() and not ctx.resilient_parsing:
            near = get_close_matches(name, _COMMANDS, 1)
            ctx.fail(f"No such command '{name}'.{f' Did you mean `{near[0]}`?' if near else ''}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = formatter.width - 6 - max(map(len, _COMMANDS))
        rows = [(name, _shortened(summary, width)) for name, (_, summary) in _COMMANDS.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _imported(name: str) -> ModuleType:
    """Imports a module without searches for garbage: modules stay, so that none is found, and later searches leave them
    out."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(name, __package__)
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def _shortened(summary: str, width: int) -> str:
    return click.Command(None, help=f"{summary}.").get_short_help_str(width)


@click.group(
    cls=Commands,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(__version__, prog_name="nacre")
def cli() -> None:
    """Nacre compiles a model from a text file into one self-contained shared library.

    Exit codes: 0 success, 1 an error in the input, 2 an invalid command line, 70 an internal compiler error.
    """


def all_commands() -> dict[str, click.Command]:
    """Returns every command, imported."""
    context = click.Context(cli)
    found = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code."""
    # https://no-color.org
    color = False if os.environ.get("NO_COLOR") else None
    return contained(lambda: cli.main(list(arguments), "nacre", standalone_mode=False, color=color), arguments)


def _is_on_one_thread(arguments: Sequence[str]) -> bool:
    """Returns whether a command multiplies no large matrices in NumPy. Checks of a build multiply many small ones."""
    checks = "--check-passes" in arguments or bool(os.environ.get(CHECK_PASSES))
    return bool(arguments) and (arguments[0] in _ON_ONE_THREAD or checks)


def main() -> None:
    """Runs the program `nacre`: its entry point."""
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal cannot show must not fail the command.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # Exit normally, so that partly written files are removed. `nohup` makes a command ignore SIGHUP.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    if _is_on_one_thread(sys.argv[1:]):
        use_one_blas_thread()
    code = run(sys.argv[1:])
    gc.freeze()  # the end of the process frees what is left
    sys.exit(code)


if __name__ == "__main__":
    main()
