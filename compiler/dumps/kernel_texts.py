"""The text of a stage of code generation: the graph that it was made of, then every kernel under the nodes it computes.

    // Made of this graph:
    // module digits
    // ...

    // -----
    // kernel softmax_0283f94a4d06653a
    // computes probabilities = softmax(14) at digits.nacre:34:10
    func.func @softmax_0283f94a4d06653a(...

A line `// -----` separates the parts, as for `mlir-opt --split-input-file`. The graph specifies the calls of the
kernels and the weights that they read: with it, the file is sufficient to continue the build. LLVM IR and assembly
contain less information than MLIR, so there a comment lists for each function of a kernel the tensors that it `uses`,
and the tensors that may overlap others (`over`); the entries, which call the kernels, follow them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from ...dialect.lazy_dataclass import dataclass
from ..lower.parts import KernelPart

COMMENTS: Mapping[str, str] = {"graph": "//", "mlir": "//", "ll": ";", "s": "#"}
"""The start of a comment, by the language of a text, which is also the suffix of its file."""
_RULE = "-----"
_HEAD = "Made of this graph:"
_FUNCTION = re.compile(r"func @(\w+)_items\(")
_USES = re.compile(r"uses ([01]+)((?:, \d+ over \d+)*)")
_OVER = re.compile(r"(\d+) over (\d+)")
_PARTS = re.compile(r"_part\d+$")

Kind = Literal["kernel", "entries"]


@dataclass(frozen=True, slots=True)
class Part:
    """The text of a kernel, or of the entries, by the first of them. `nodes` are the nodes that the kernel computes;
    `schedules` are the schedules of its loop nests once it is tiled; `functions` are its parts, once its text no longer
    lists them."""

    text: str
    symbol: str = ""
    nodes: tuple[str, ...] = ()
    schedules: tuple[str, ...] = ()
    functions: tuple[KernelPart, ...] = ()
    kind: Kind = "kernel"


def _comments(part: Part) -> Iterator[str]:
    if part.symbol:
        yield f"{part.kind} {part.symbol}"
    yield from (f"computes {node}" for node in part.nodes)
    yield from (f"tiled as {schedule}" for schedule in part.schedules)
    for function in part.functions:
        tensors = "".join("1" if used else "0" for used in function.uses)
        yield ", ".join([f"uses {tensors}", *(f"{new} over {old}" for new, old in function.in_place)])


def format_parts(language: str, graph: str, parts: Sequence[Part]) -> str:
    """Returns the text of a stage. Without a graph, it cannot be read back."""
    comment = COMMENTS[language]

    def commented(line: str) -> str:
        return f"{comment} {line}".rstrip() + "\n"

    head = ["".join(map(commented, [_HEAD, *graph.splitlines()])) + "\n"] if graph else []
    texts = ["".join(map(commented, _comments(part))) + part.text for part in parts]
    return commented(_RULE).join([*head, *texts])


def split_parts(language: str, text: str) -> tuple[str, list[Part]]:
    """Splits the text of a stage into its graph, empty if there is none, and its parts; the inverse of
    `format_parts`."""
    comment = COMMENTS[language]
    head, *texts = re.split(rf"^{comment} {_RULE}\n", text, flags=re.MULTILINE)
    if not head.startswith(f"{comment} {_HEAD}\n"):
        return "", [_read_part(comment, part) for part in (head, *texts)]
    lines = [line.removeprefix(comment).removeprefix(" ") for line in head.rstrip("\n").splitlines()]
    return "".join(f"{line}\n" for line in lines[1:]), [_read_part(comment, part) for part in texts]


def _read_part(comment: str, text: str) -> Part:
    found: dict[str, list[str]] = {"kernel": [], "entries": [], "computes": [], "tiled as": []}
    functions: list[KernelPart] = []
    kept = ""
    while (line := text.partition("\n")[0]).startswith(f"{comment} "):
        said = line.removeprefix(f"{comment} ")
        key = next((key for key in found if said.startswith(f"{key} ")), None)
        if key is not None:
            found[key].append(said.removeprefix(f"{key} "))
        elif uses := _USES.fullmatch(said):
            in_place = tuple((int(new), int(old)) for new, old in _OVER.findall(uses[2]))
            functions.append(KernelPart(tuple(used == "1" for used in uses[1]), in_place))
        else:
            kept += f"{line}\n"
        text = text.partition("\n")[2]
    symbol = next(iter((*found["kernel"], *found["entries"])), None) or _find_symbol(text)
    kind: Kind = "entries" if found["entries"] else "kernel"
    return Part(kept + text, symbol, tuple(found["computes"]), tuple(found["tiled as"]), tuple(functions), kind)


def _find_symbol(text: str) -> str:
    """Returns the kernel's name from the code: other programs drop comments when they rewrite it."""
    found = _FUNCTION.search(text)
    return _PARTS.sub("", found[1]) if found else ""
