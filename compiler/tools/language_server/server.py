"""The protocol: one handler for each request of the editor."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from lsprotocol import types as protocol
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path

from ....dialect.diagnostics import Diagnostic, DiagnosticError, Span
from ...readers.language import syntax
from ...readers.language.format import format_source
from ...version import __version__
from .complete import complete
from .document import Document, range_of
from .explain import explain
from .locate import locate
from .rename import RenameError, rename

_DELAY = 0.15
"""The seconds without a further change after which a changed text is read."""
_SEVERITIES = {
    "error": protocol.DiagnosticSeverity.Error,
    "warning": protocol.DiagnosticSeverity.Warning,
}


class Server(LanguageServer):
    """The server of one editor."""

    def __init__(self) -> None:
        super().__init__("nacre", __version__)
        self.documents: dict[str, Document] = {}
        self.pending: dict[str, asyncio.TimerHandle] = {}
        self.checkpoint: Path | None = None

    def open(self, uri: str) -> Document:
        """Returns the document with the text that the editor shows."""
        text = self.workspace.get_text_document(uri).source
        document = self.documents.get(uri)
        if document is None:
            document = Document(_path(uri), text, self.checkpoint, self.workspace.position_codec)
            self.documents[uri] = document
        elif document.text != text:
            document.update(text)
        return document

    def publish(self, uri: str) -> None:
        """Sends the diagnostics of a document to the editor."""
        document = self.open(uri)
        version = self.workspace.get_text_document(uri).version
        found = [self._diagnostic(document, each) for each in document.diagnostics() if each.code != "no-model"]
        self.text_document_publish_diagnostics(protocol.PublishDiagnosticsParams(uri, found, version))

    def publish_soon(self, uri: str) -> None:
        if uri in self.pending:
            self.pending[uri].cancel()
        self.pending[uri] = asyncio.get_running_loop().call_later(_DELAY, self.publish, uri)

    def forget(self, uri: str) -> None:
        """Forgets a closed document, and its diagnostics."""
        handle = self.pending.pop(uri, None)
        if handle is not None:
            handle.cancel()
        self.documents.pop(uri, None)
        self.text_document_publish_diagnostics(protocol.PublishDiagnosticsParams(uri, []))

    def _diagnostic(self, document: Document, found: Diagnostic) -> protocol.Diagnostic:
        span = found.span
        here = span is None or span.file == str(document.path)
        start = protocol.Position(0, 0)
        where = document.range(span) if span is not None and here else protocol.Range(start, start)
        message = found.message + (f"\n{found.label}" if found.label else "")
        if span is not None and not here:
            message = f"{span}: {message}"
        if found.help:
            message += f"\nhelp: {found.help}"
        related = []
        for note in found.notes:
            if note.span is None:
                message += f"\n{note.message}"
            else:
                related.append(protocol.DiagnosticRelatedInformation(self.location(note.span), note.message))
        return protocol.Diagnostic(
            where,
            message,
            severity=_SEVERITIES[found.severity],
            code=found.code,
            source="nacre",
            related_information=related,
        )

    def location(self, span: Span) -> protocol.Location:
        """Returns the location of a span in any file."""
        path = Path(span.file)
        uri = from_fs_path(str(path.resolve()))
        assert uri is not None, path
        for opened in self.documents.values():
            if opened.path.resolve() == path.resolve():
                return protocol.Location(uri, opened.range(span))
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        except OSError:
            lines = []
        return protocol.Location(uri, range_of(span, lines, self.workspace.position_codec))


def _path(uri: str) -> Path:
    path = to_fs_path(uri)
    return Path(path) if path else Path("model.nacre")


server = Server()


@server.feature(protocol.WORKSPACE_DID_CHANGE_CONFIGURATION)
def _configured(ls: Server, params: protocol.DidChangeConfigurationParams) -> None:
    """Takes the setting `nacre.checkpoint`: a checkpoint file or folder, used by every file."""
    configure(ls, params.settings)
    for uri, document in ls.documents.items():
        document.checkpoint = ls.checkpoint
        document.update(document.text)
        ls.publish(uri)


def configure(ls: Server, settings: Any) -> None:
    section = settings.get("nacre", settings) if isinstance(settings, dict) else {}
    checkpoint = section.get("checkpoint") if isinstance(section, dict) else None
    ls.checkpoint = Path(checkpoint).expanduser() if checkpoint else None


@server.feature(protocol.INITIALIZE)
def _initialize(ls: Server, params: protocol.InitializeParams) -> None:
    configure(ls, params.initialization_options)


@server.feature(protocol.TEXT_DOCUMENT_DID_OPEN)
def _opened(ls: Server, params: protocol.DidOpenTextDocumentParams) -> None:
    ls.publish(params.text_document.uri)


@server.feature(protocol.TEXT_DOCUMENT_DID_CHANGE)
async def _changed(ls: Server, params: protocol.DidChangeTextDocumentParams) -> None:
    ls.publish_soon(params.text_document.uri)


@server.feature(protocol.TEXT_DOCUMENT_DID_SAVE)
def _saved(ls: Server, params: protocol.DidSaveTextDocumentParams) -> None:
    """Reads every open document again: one may import the saved file."""
    for uri, document in ls.documents.items():
        document.update(document.text)
        ls.publish(uri)


@server.feature(protocol.TEXT_DOCUMENT_DID_CLOSE)
def _closed(ls: Server, params: protocol.DidCloseTextDocumentParams) -> None:
    ls.forget(params.text_document.uri)


@server.feature(protocol.TEXT_DOCUMENT_HOVER)
def _hover(ls: Server, params: protocol.HoverParams) -> protocol.Hover | None:
    document = ls.open(params.text_document.uri)
    found = explain(document, *document.location(params.position))
    if found is None:
        return None
    text, span = found
    contents = protocol.MarkupContent(protocol.MarkupKind.Markdown, text)
    return protocol.Hover(contents, None if span is None else document.range(span))


@server.feature(protocol.TEXT_DOCUMENT_DEFINITION)
def _definition(ls: Server, params: protocol.DefinitionParams) -> protocol.Location | None:
    document = ls.open(params.text_document.uri)
    found = locate(document, *document.location(params.position))
    return None if found is None else ls.location(found[1])


@server.feature(protocol.TEXT_DOCUMENT_REFERENCES)
def _references(ls: Server, params: protocol.ReferenceParams) -> list[protocol.Location]:
    document = ls.open(params.text_document.uri)
    found = document.occurrence(*document.location(params.position))
    if found is None:
        return []
    study = document.readable or document.study
    spans = [o.span for o in study.occurrences.values() if o.definition == found.definition]
    return [ls.location(span) for span in spans]


@server.feature(protocol.TEXT_DOCUMENT_COMPLETION, protocol.CompletionOptions(trigger_characters=[".", '"', ":"]))
def _completion(ls: Server, params: protocol.CompletionParams) -> protocol.CompletionList:
    document = ls.open(params.text_document.uri)
    proposals = complete(document, *document.location(params.position))
    items = [
        protocol.CompletionItem(p.text, kind=p.kind, detail=p.detail or None, sort_text=f"{number:05}")
        for number, p in enumerate(proposals)
    ]
    return protocol.CompletionList(False, items)


@server.feature(protocol.TEXT_DOCUMENT_RENAME)
def _rename(ls: Server, params: protocol.RenameParams) -> protocol.WorkspaceEdit | None:
    document = ls.open(params.text_document.uri)
    root = ls.workspace.root_path
    texts = {other.path.resolve(): other.text for other in ls.documents.values()}
    line, column = document.location(params.position)
    try:
        edits = rename(document, line, column, params.new_name, Path(root) if root else None, texts)
    except RenameError as error:
        ls.window_show_message(protocol.ShowMessageParams(protocol.MessageType.Error, str(error)))
        return None
    changes = {}
    for replaced in edits.values():
        locations = [ls.location(span) for span, _ in replaced]
        changes[locations[0].uri] = [
            protocol.TextEdit(each.range, text) for each, (_, text) in zip(locations, replaced, strict=True)
        ]
    return protocol.WorkspaceEdit(changes)


@server.feature(protocol.TEXT_DOCUMENT_FORMATTING)
def _format(ls: Server, params: protocol.DocumentFormattingParams) -> list[protocol.TextEdit]:
    document = ls.open(params.text_document.uri)
    try:
        text = format_source(document.text, str(document.path))
    except DiagnosticError:
        return []  # the diagnostics say why
    end = protocol.Position(len(document.lines) + 1, 0)
    return [] if text == document.text else [protocol.TextEdit(protocol.Range(protocol.Position(0, 0), end), text)]


@server.feature(protocol.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
def _symbols(ls: Server, params: protocol.DocumentSymbolParams) -> list[protocol.DocumentSymbol]:
    document = ls.open(params.text_document.uri)
    study = document.readable or document.study
    symbols = []
    for item in () if study.tree is None else study.tree.items:
        if isinstance(item, (syntax.Block, syntax.Dim, syntax.Config)):
            kind = protocol.SymbolKind.Class if isinstance(item, syntax.Block) else protocol.SymbolKind.Constant
            where, name = document.range(item.span), document.range(item.name.span)
            symbols.append(protocol.DocumentSymbol(item.name.name, kind, where, name))
    return symbols


def serve() -> None:
    """Serves one editor over standard input and output, until it says to exit.

    pygls closes its streams, and the command needs its own to report an error: pygls gets copies. A stray `print` goes
    to standard error, since it would break the protocol.
    """
    with open(os.dup(0), "rb") as source, open(os.dup(1), "wb") as sink:
        os.dup2(2, 1)
        server.start_io(source, sink)
