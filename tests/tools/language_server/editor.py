"""An editor for tests: pygls's client, which starts `nacre lsp` and keeps the diagnostics that it sends."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from lsprotocol import types as protocol
from pygls.lsp.client import LanguageClient

TIMEOUT = 60.0
"""Seconds; a loaded machine starts slowly."""


class Editor:
    """One running server, with the files that are open in it."""

    def __init__(self) -> None:
        self.client = LanguageClient("tests", "1")
        self.diagnostics: dict[str, list[protocol.Diagnostic]] = {}
        self.messages: list[str] = []
        self.published = asyncio.Event()
        self.versions: dict[str, int] = {}

        @self.client.feature(protocol.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def _published(params: protocol.PublishDiagnosticsParams) -> None:
            self.diagnostics[params.uri] = list(params.diagnostics)
            self.published.set()

        @self.client.feature(protocol.WINDOW_SHOW_MESSAGE)
        def _shown(params: protocol.ShowMessageParams) -> None:
            self.messages.append(params.message)

    async def open(self, path: Path) -> str:
        """Opens a file and waits for its diagnostics; returns its URI."""
        uri = path.as_uri()
        self.versions[uri] = 1
        self.published.clear()
        item = protocol.TextDocumentItem(uri, "nacre", 1, path.read_text())
        self.client.text_document_did_open(protocol.DidOpenTextDocumentParams(item))
        await asyncio.wait_for(self.published.wait(), TIMEOUT)
        return uri

    async def type(self, uri: str, text: str) -> list[protocol.Diagnostic]:
        """Replaces the text of an open file; returns the new diagnostics."""
        self.versions[uri] += 1
        self.published.clear()
        document = protocol.VersionedTextDocumentIdentifier(self.versions[uri], uri)
        change = protocol.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(protocol.DidChangeTextDocumentParams(document, [change]))
        await asyncio.wait_for(self.published.wait(), TIMEOUT)
        return self.diagnostics[uri]

    async def ask(self, method: str, uri: str, position: protocol.Position, **more: Any) -> Any:
        """Sends a request about a place in a file: `hover`, `definition`, `completion`, `rename`, `references`."""
        names = {
            "hover": protocol.HoverParams,
            "definition": protocol.DefinitionParams,
            "completion": protocol.CompletionParams,
            "rename": protocol.RenameParams,
            "references": protocol.ReferenceParams,
        }
        params = names[method](protocol.TextDocumentIdentifier(uri), position, **more)
        call: Callable[[Any], Any] = getattr(self.client, f"text_document_{method}_async")
        return await asyncio.wait_for(call(params), TIMEOUT)


@asynccontextmanager
async def editor(folder: Path, checkpoint: Path | None = None) -> AsyncIterator[Editor]:
    """Starts the server for a folder, and shuts it down in the end."""
    made = Editor()
    await made.client.start_io(sys.executable, "-m", "nacre.compiler.cli.main", "lsp")
    options = {} if checkpoint is None else {"checkpoint": str(checkpoint)}
    params = protocol.InitializeParams(
        capabilities=protocol.ClientCapabilities(),
        root_uri=folder.as_uri(),
        initialization_options=options,
    )
    await asyncio.wait_for(made.client.initialize_async(params), TIMEOUT)
    made.client.initialized(protocol.InitializedParams())
    try:
        yield made
    finally:
        # The server ends when it is told to, also after a failed test.
        await asyncio.wait_for(made.client.shutdown_async(None), TIMEOUT)
        made.client.exit(None)
        await asyncio.wait_for(made.client.stop(), TIMEOUT)
