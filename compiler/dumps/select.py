"""Parts of a stage's text by name: nodes and functions of a graph, kernels and the nodes that they compute.

The selected text is for people; it cannot be read back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase

from ...dialect.lazy_dataclass import dataclass
from .kernel_texts import COMMENTS, Part, format_parts, split_parts

_RESULTS = re.compile(r'\s*((?:%(?:[\w.$]+|"[^"]*")(?:, )?)+) = ')
_SCOPE = re.compile(r' @([\w.{}]+|"[^"]*")')
_DECLARED = re.compile(r'(?:func|param) (\w+|"[^"]*")')
_NODE = re.compile(r"(.*?) = .*?\)(?: in (\S+))?(?: at |$)")


@dataclass
class Selection:
    """Patterns with the syntax of file names, for names of functions, kernels, nodes (by any result) and parameters,
    and for the paths of block instances, which include everything inside them. `found` is set once a pattern matches.
    """

    patterns: Sequence[str]
    found: bool = field(default=False, init=False)

    def __call__(self, language: str, text: str) -> str:
        """Returns the matching part of the text; empty if nothing matches."""
        selected = _SELECT[language](self, language, text)
        self.found |= bool(selected)
        return selected

    def keeps(self, names: Sequence[str]) -> bool:
        """Returns whether one of the names matches."""
        kept = self.matches(iter(names))
        self.found |= kept
        return kept

    def matches(self, names: Iterator[str]) -> bool:
        return any(fnmatchcase(name, pattern) for name in names for pattern in self.patterns)


def _plain(name: str) -> str:
    return name.removeprefix("%").strip('"')


def _paths(path: str) -> Iterator[str]:
    """Yields the path and its parents."""
    parts = path.split(".")
    return (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _names_in_line(line: str) -> Iterator[str]:
    """Yields the names that a line of a graph defines."""
    if results := _RESULTS.match(line):
        yield from map(_plain, results[1].split(", "))
        if scope := _SCOPE.search(line):
            yield from _paths(_plain(scope[1]))
    elif declared := _DECLARED.match(line.lstrip()):
        yield from _paths(_plain(declared[1])) if line.lstrip().startswith("param") else [_plain(declared[1])]


def _select_lines(selection: Selection, lines: Sequence[str]) -> list[str]:
    kept: list[str] = []
    left_out = False
    position = 0
    while position < len(lines):
        line = lines[position]
        end = position + 1
        indent = line[: len(line) - len(line.lstrip())]
        if line.endswith("{"):
            while not lines[end].startswith(f"{indent}}}"):
                end += 1
            end += 1
        if selection.matches(_names_in_line(line)):
            chosen = list(lines[position:end])
        else:
            inner = _select_lines(selection, lines[position + 1 : end - 1])
            chosen = [line, *inner, lines[end - 1]] if inner else []
        if chosen and left_out:
            kept.append(f"{indent}{COMMENTS['graph']} ...")
        left_out = not chosen
        kept += chosen
        position = end
    if kept and left_out:
        kept.append(f"{indent}{COMMENTS['graph']} ...")
    return kept


def _select_graph(selection: Selection, language: str, text: str) -> str:
    return "".join(f"{line}\n" for line in _select_lines(selection, [line for line in text.splitlines() if line]))


def _names_of_part(part: Part) -> Iterator[str]:
    yield part.symbol
    for node in filter(None, map(_NODE.match, part.nodes)):
        yield from node[1].split(", ")
        yield from _paths(node[2] or "")


def _select_kernels(selection: Selection, language: str, text: str) -> str:
    _, parts = split_parts(language, text)
    return format_parts(language, "", [part for part in parts if selection.matches(_names_of_part(part))])


_SELECT: Mapping[str, Callable[[Selection, str, str], str]] = {
    "graph": _select_graph,
    "mlir": _select_kernels,
    "ll": _select_kernels,
    "s": _select_kernels,
}
