"""The language server: answers an editor's questions about model text, over the Language Server Protocol.

    document.py     one open file: its text, its syntax tree and graph, and the conversion of positions
    explain.py      hover texts: types, sizes and their origins, bytes and operations
    locate.py       definitions, in this file, in imported files and in the checkpoint
    complete.py     completion: names in scope, operators, words, dtypes, keys of the checkpoint
    rename.py       the edits of a rename in all files of a folder
    server.py       the protocol

The protocol itself is the package `pygls`, of the extra `lsp`.
"""
