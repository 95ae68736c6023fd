"""The text of a stage of code generation: the graph that it was made of, then every kernel under the nodes it computes.

    // Made of this graph:
    // module digits
    // ...

    // -----
    // kernel softmax_0283f94a4d06653a
    // computes probabilities = softmax(14) at digits.nacre:34:10
    func.func @softmax_0283f94a4d06653a(...

Parts stand between lines `// -----`, where `mlir-opt --split-input-file` takes a text apart too. The graph says what
calls the kernels and which weights they read: with it, the file is enough to go on from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

COMMENTS: Mapping[str, str] = {"graph": "//", "mlir": "//", "ll": ";", "s": "#"}
"""How a comment begins, by the language of a text, which is also the suffix of its file."""
_RULE = "-----"
_HEAD = "Made of this graph:"
_FUNCTION = re.compile(r"func @(\w+)_units\(")
_PARTS = re.compile(r"_part\d+$")


@dataclass(frozen=True, slots=True)
class Part:
    """The text of a kernel, or of all of them and the entries, which has no `symbol`. `nodes` say what the kernel
    computes; `schemes` are those of its loop nests once it is tiled."""

    text: str
    symbol: str = ""
    nodes: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()


def _comments(part: Part) -> Iterator[str]:
    if part.symbol:
        yield f"kernel {part.symbol}"
    yield from (f"computes {node}" for node in part.nodes)
    if part.schemes:
        yield f"tiled as {', '.join(part.schemes)}"


def format_parts(language: str, graph: str, parts: Sequence[Part]) -> str:
    """The text of a stage. Without a graph, it cannot be read back."""
    comment = COMMENTS[language]

    def commented(line: str) -> str:
        return f"{comment} {line}".rstrip() + "\n"

    head = ["".join(map(commented, [_HEAD, *graph.splitlines()])) + "\n"] if graph else []
    texts = ["".join(map(commented, _comments(part))) + part.text for part in parts]
    return commented(_RULE).join([*head, *texts])


def split_parts(language: str, text: str) -> tuple[str, list[Part]]:
    """The graph that stands over the parts, or nothing, and the parts: what `format_parts` was given."""
    comment = COMMENTS[language]
    head, *texts = re.split(rf"^{comment} {_RULE}\n", text, flags=re.MULTILINE)
    if not head.startswith(f"{comment} {_HEAD}\n"):
        return "", [_read_part(comment, part) for part in (head, *texts)]
    lines = [line.removeprefix(comment).removeprefix(" ") for line in head.rstrip("\n").splitlines()]
    return "".join(f"{line}\n" for line in lines[1:]), [_read_part(comment, part) for part in texts]


def _read_part(comment: str, text: str) -> Part:
    told: dict[str, list[str]] = {"kernel": [], "computes": [], "tiled as": []}
    while (line := text.partition("\n")[0]).startswith(f"{comment} "):
        said = line.removeprefix(f"{comment} ")
        for key, values in told.items():
            if said.startswith(f"{key} "):
                values.append(said.removeprefix(f"{key} "))
        text = text.partition("\n")[2]
    symbol = next(iter(told["kernel"]), None) or _find_symbol(text)
    schemes = tuple(scheme for values in told["tiled as"] for scheme in values.split(", "))
    return Part(text, symbol, tuple(told["computes"]), schemes)


def _find_symbol(text: str) -> str:
    """The kernel's name out of the code: comments are lost where another program rewrites it."""
    found = _FUNCTION.search(text)
    return _PARTS.sub("", found[1]) if found else ""
