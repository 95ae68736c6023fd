"""`nacre lsp`: the language server."""

from __future__ import annotations

import click

from ...dialect.diagnostics import Diagnostic, DiagnosticError


@click.command("lsp")
def lsp_command() -> int:
    """Serve an editor with diagnostics, hover texts and completion.

    \b
      pip install -e ".[lsp]"
      nacre lsp               # an editor starts it

    The editor starts this command and communicates with it over standard input and output, by the Language Server
    Protocol. A folder beside the server, `compiler/tools/language_server/vscode`, is an extension for Visual Studio
    Code.
    """
    try:
        from ..tools.language_server.server import serve  # noqa: PLC0415  (an extra)
    except ModuleNotFoundError as error:
        if error.name not in ("pygls", "lsprotocol"):
            raise
        help_text = 'pip install -e ".[lsp]"'
        message = "the language server needs the package `pygls`"
        raise DiagnosticError([Diagnostic("missing-package", message, help=help_text)]) from error
    serve()
    return 0
