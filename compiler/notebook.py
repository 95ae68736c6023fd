"""The cell magic `%%nacre` of IPython and Jupyter, loaded by `%load_ext nacre`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from ..dialect.diagnostics import DiagnosticError
from .api import compile as compile_model
from .cli.model_options import SET
from .readers.language.settings import Settings


@click.command("%%nacre", add_help_option=False)
@click.argument("name", default="model")
@click.option("--weights", help="A checkpoint file or folder, or a variable with arrays by key.")
@click.option("--target", default="native")
@click.option("--precision")
@SET
@click.pass_obj
def _magic(
    notebook: tuple[Any, str],
    name: str,
    weights: str | None,
    target: str,
    precision: str | None,
    settings: Settings,
) -> None:
    """Compile the model in the cell and bind it to a variable."""
    shell, text = notebook
    given: Any = None
    if weights is not None:
        given = shell.user_ns[weights] if weights in shell.user_ns else Path(weights)
    # A cell of one line would be taken for a path.
    model = compile_model(f"{text}\n", weights=given, target=target, precision=precision, settings=settings or None)
    shell.user_ns[name] = model


def compile_cell(shell: Any, line: str, cell: str) -> None:
    """Compiles the text of a cell, `%%nacre [NAME] [--weights PATH] [--target T] [--precision P] [--set N=V]`, and
    binds the loaded model to the variable NAME, `model` by default.

    Errors are printed as `nacre check` prints them, and the variable keeps its value.
    """
    try:
        _magic.main(shlex.split(line), "%%nacre", standalone_mode=False, obj=(shell, cell))
    except DiagnosticError as error:
        print(error, file=sys.stderr)
    except ValueError as error:  # an unclosed quote
        print(f"%%nacre: {error}", file=sys.stderr)
    except click.ClickException as error:
        error.show(sys.stderr)


def register(shell: Any) -> None:
    """Adds the magic to a running shell of IPython."""
    shell.register_magic_function(lambda line, cell: compile_cell(shell, line, cell), "cell", "nacre")
